"""Every query of adv-lib's FMN, reproduced."""

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.fmn import FMN, State
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from tests.golden.recorded import BATCH, Queries
from tests.golden.test_sigma_zero import CORRECT
from tests.helpers.networks import TRACES, TinyNet


def load(run, kind):
    """The arrays of one trace for one network."""
    with np.load(TRACES / f"{run}.npz") as arrays:
        return {k.removeprefix(f"{kind}__"): torch.from_numpy(arrays[k]) for k in arrays.files if k.startswith(kind)}


def check_every_query(attack, run, kind, monkeypatch):
    """One forward and one backward per step: the saved points, the l0 and margin of all, the counts and the answer."""
    net, trace = TinyNet(kind), load(run, kind)
    recorder = Queries(monkeypatch, "value_and_grad")
    result = attack.run(net, net.x, net.y, batch_size=BATCH)
    for row in CORRECT:
        ours = torch.stack(recorder.points[row])
        stable = int(trace["stable_queries"][row])
        assert stable == attack.steps  # all of these traces are stable to their end
        saved = min(stable, int(trace["n_saved"][row]))
        torch.testing.assert_close(ours[:saved], trace["queries"][row, :saved], rtol=0, atol=1e-9)
        assert torch.equal((ours != net.x[row]).flatten(1).sum(1), trace["all_query_l0"][row, :stable])
        logits, own = net(ours), net.y[row]
        others = logits[:, torch.arange(logits.shape[1]) != own]
        margin = logits[:, own] - others.amax(1)
        torch.testing.assert_close(margin, trace["all_query_margin"][row, :stable], rtol=0, atol=1e-9)
        # The trace counts the search alone; a run also counts the clean check and the verification.
        assert result.forwards[row] - 2 == trace["n_forward"][row]
        assert result.backwards[row] == trace["n_backward"][row]
        # The references start with "best = all features" and so never store a point that changes every one.
        assert result.l0[row] == trace["l0"][row]
        assert result.success[row]
        torch.testing.assert_close(result.x_adv[row], trace["final"][row], rtol=0, atol=1e-9)
    assert (result.l0[5], result.forwards[5], result.backwards[5]) == (0, 1, 0)


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("steps", [30, 100])
def test_every_query_is_adv_libs(steps, kind, monkeypatch):
    check_every_query(sz.get("fmn", steps=steps), f"fmn_{steps}", kind, monkeypatch)


def test_ties_with_the_threshold_survive():
    """Equal gradients give equal changes: with one change allowed all of them stay; the traces contain no such case."""
    seen = []

    def model(x):
        seen.append(x.detach().clone())
        total = x.sum(1, keepdim=True)
        return torch.cat([total, 1.9 - 0 * total], 1)

    x = torch.full((1, 4), 0.5, dtype=torch.float64)
    sz.get("fmn", steps=2).run(model, x, torch.tensor([0]))
    assert (seen[2] != x).sum() == 4


def test_no_change_allowed_means_one():
    """A point with one change shrinks ε to 0, where adv-lib asks for the 0-th largest value and crashes."""
    model = torch.nn.Linear(4, 2, dtype=torch.float64).requires_grad_(False)
    model.weight.copy_(torch.tensor([[8.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]))
    model.bias.copy_(torch.tensor([0.0, 4.5]))
    result = sz.get("fmn", steps=30).run(model, torch.full((1, 4), 0.5, dtype=torch.float64), torch.tensor([0]))
    assert result.l0.tolist() == [1]
    assert result.forwards.tolist() == [32]


@pytest.mark.parametrize(("fooled", "after"), [(True, 47), (False, 52)])
def test_many_changes_grow_and_shrink_by_a_share_rounded_down(fooled, after):
    """From 50 by 5 %: 47.5 and 52.5. The traces hold few changes, where one more or less is the larger move."""
    answer = torch.tensor([0.0, 1.0] if fooled else [1.0, 0.0], dtype=torch.float64)
    x = torch.full((1, 100), 0.5, dtype=torch.float64)
    oracle = Oracle(lambda x: x[:, :2] * 0 + answer, make_problem(x, torch.tensor([0])))
    state = FMN().step(torch.tensor(0), State(x + 0.1, x.new_full((1,), 50)), oracle)
    assert state.ε.tolist() == [after]
