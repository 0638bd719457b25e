"""sPGD: every query of the reference, given its draws."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.spgd import SparsePGD
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from tests.golden.recorded import BATCH, Queries, recorded
from tests.helpers.networks import TinyNet


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("mode", ["pixel", "feature"])
@pytest.mark.parametrize("name", ["spgd-projected", "spgd-unprojected"])
def test_every_query_is_the_references(name, mode, kind, monkeypatch):
    net = TinyNet(kind)
    trace = recorded(f"spgd_{name[5:].removesuffix('ected')}_{mode}_k4_t30", kind)
    used = torch.zeros(6, dtype=torch.int64)
    step = SparsePGD.step

    def noting(self, i, s, oracle):
        ids = oracle.problem.ids
        used[ids] += ((s.age == 0) | (s.idle >= self.patience)).long()
        return step(self, i, s, oracle)

    def mask(self, oracle, i):
        ids = oracle.problem.ids
        return trace["mask_draws"][ids, used[ids] - 1].flatten(1)

    def magnitude(self, oracle, i):
        return trace["init_perturb"][oracle.problem.ids].reshape(len(oracle.problem), -1, oracle.problem.sites)

    monkeypatch.setattr(SparsePGD, "step", noting)
    monkeypatch.setattr(SparsePGD, "_draw_mask", mask)
    monkeypatch.setattr(SparsePGD, "_draw_magnitude", magnitude)
    queries = Queries(monkeypatch, "value_and_grad")
    result = sz.get(name, steps=30).run(net, net.x, net.y, budget=4, unit=mode, batch_size=BATCH)
    for row in range(5):
        asked = int(trace["n_forward"][row])
        assert trace["stable_queries"][row] == asked
        torch.testing.assert_close(queries.of(row), trace["queries"][row, 1:asked], rtol=0, atol=1e-9)
        assert result.forwards[row] - int(result.success[row]) == asked
        assert result.backwards[row] == trace["n_backward"][row]
        assert result.success[row] == trace["success"][row]
        if result.success[row]:
            torch.testing.assert_close(result.x_adv[row], trace["final"][row], rtol=0, atol=1e-9)
    # A mask redrawn after the last step is not used, here not even drawn.
    assert (used[:5] <= trace["n_mask_draws"][:5]).all()
    assert (used[:5] >= trace["n_mask_draws"][:5] - 1).all()
    assert used[:5].max() > 1


def test_patience_counts_idle_steps_in_a_row_or_in_total():
    """A model without gradient never moves the mask: idle at every step, redrawn after every third."""
    net = TinyNet("conv")

    def flat(x):
        return net(net.x[: len(x)]) + 0 * x.flatten(1).sum(1, keepdim=True)

    oracle = Oracle(flat, make_problem(net.x[:2], net.y[:2], budget=4))
    attack = SparsePGD(steps=20)
    state, masks = attack.init(oracle), []
    for i in range(9):
        state = attack.step(torch.tensor(i), state, oracle)
        masks.append(state.u[0])
    new = [j for j in range(1, 9) if not torch.equal(masks[j], masks[j - 1])]
    assert new == [4, 7]


def test_patience_in_total_redraws_more_often():
    net = TinyNet("rgb")
    seen = {}
    for counts in ("consecutive", "total"):
        oracle = Oracle(net, make_problem(net.x[:5], net.y[:5], budget=4))
        attack = SparsePGD(steps=60, patience_counts=counts)
        state, redraws = attack.init(oracle), 0
        for i in range(60):
            redraws += int((state.idle >= attack.patience).sum())
            state = attack.step(torch.tensor(i), state, oracle)
        seen[counts] = redraws
    assert seen["total"] > seen["consecutive"] > 0


def test_an_adversarial_start_ends_the_row():
    net = TinyNet("conv")
    x, y = net.x[:1].repeat(200, 1, 1, 1), net.y[:1].repeat(200)
    result = sz.get("spgd-unprojected", steps=1).run(net, x, y, budget=30)
    assert (result.step_found == 0).any()
    assert (result.backwards[result.step_found == 0] == 1).all()


@pytest.mark.parametrize("unit", ["feature", "pixel"])
def test_sites_that_may_not_change_take_no_part_of_the_budget(unit, monkeypatch):
    net = TinyNet("rgb")
    mask = torch.zeros(3, 6, 6, dtype=torch.bool)
    mask[:, 2, :] = True
    oracle = Oracle(net, make_problem(net.x, net.y, mask=mask, unit=unit, budget=4))
    attack = SparsePGD(steps=10)
    state = attack.init(oracle)
    queries = Queries(monkeypatch, "value_and_grad")
    for i in range(10):
        state = attack.step(torch.tensor(i), state, oracle)
    for j in range(10):
        assert (oracle.problem.l0(torch.stack([queries.of(row)[j] for row in range(6)])) == 4).all()
