"""Sparse-RS: every query of the reference, given its draws, and its outcomes over many seeds."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.sparse_rs import SparseRS
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from tests.golden.recorded import Queries, rank_sum_z, recorded
from tests.helpers.networks import TinyNet

Exchange = tuple[list[int], list[int], torch.Tensor]


def replay(trace: dict[str, torch.Tensor], row: int, k: int) -> list[Exchange]:
    """Per query: the sites that leave, those that come, and their values."""
    order = trace["init_perm"][row].tolist()
    members, others = order[:k], order[k:]
    plan: list[Exchange] = [([], list(members), trace["init_colour"][row])]
    margins = trace["all_query_margin"][row]
    best = margins[1]
    for j in range(1, int(trace["n_forward"][row]) - 2):
        n = int(trace["it_n"][row, j - 1])
        out, into = (trace[key][row, j - 1, :n].tolist() for key in ("it_out", "it_in"))
        plan.append(([members[a] for a in out], [others[b] for b in into], trace["it_colour"][row, j - 1, :n]))
        if margins[j + 1] < best or margins[j + 1] < -1e-6:
            best = margins[j + 1]
            for a, b in zip(out, into, strict=True):
                members[a], others[b] = others[b], members[a]
    return plan


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("k", [4, 12])
def test_every_query_is_the_references(k, kind, monkeypatch):
    net, trace = TinyNet(kind), recorded(f"trace_sparse_rs_feature_k{k}_q200", kind)
    plans = {row: replay(trace, row, k) for row in range(5)}

    def order(self, oracle, i):
        keys = torch.ones(len(oracle.problem), oracle.problem.sites, dtype=torch.int64)
        for row, sample in enumerate(oracle.problem.ids.tolist()):
            out, into, _ = plans[sample][i]
            keys[row, out + into] = 0
        return keys

    def values(self, oracle, i, a, must_differ):
        drawn = a.clone()
        for row, sample in enumerate(oracle.problem.ids.tolist()):
            _, into, colour = plans[sample][i]
            assert bool(must_differ[row]) == (i > 0 and len(into) == 1)
            drawn[row, 0, into] = colour
        return drawn

    monkeypatch.setattr(SparseRS, "_draw_order", order)
    monkeypatch.setattr(SparseRS, "_draw_values", values)
    queries = Queries(monkeypatch, "logits")
    result = sz.get("sparse-rs", steps=200).run(net, net.x, net.y, budget=k)
    for row in range(5):
        # The reference also asks about the clean input and, at the end, about its answer.
        searched = int(trace["n_forward"][row]) - 2
        ours = queries.of(row)
        assert len(ours) == searched
        torch.testing.assert_close(ours, trace["queries"][row, 1 : 1 + searched], rtol=0, atol=1e-9)
        assert result.forwards[row] == trace["n_forward"][row] - int(not trace["success"][row])
        assert result.success[row] == trace["success"][row]
        torch.testing.assert_close(result.x_adv[row], trace["final"][row], rtol=0, atol=1e-9)
    assert result.backwards.sum() == 0


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("k", [4, 12])
def test_as_many_sites_are_exchanged(k, kind):
    trace = recorded(f"trace_sparse_rs_feature_k{k}_q200", kind)
    for row in range(5):
        searched = int(trace["n_forward"][row]) - 3
        ages = torch.arange(1, 1 + searched)
        ours = SparseRS(steps=200).exchanged(ages, torch.full_like(ages, k))
        assert torch.equal(ours, trace["it_n"][row, :searched])


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("k", [4, 8])
def test_outcomes_are_distributed_like_the_references(k, kind):
    net, theirs = TinyNet(kind), recorded(f"stats_sparse_rs_feature_k{k}_q200", kind)
    seeds = 200
    x, y = (t[:5].repeat_interleave(seeds, 0) for t in (net.x, net.y))
    result = sz.get("sparse-rs", steps=200).run(net, x, y, budget=k)
    queries = torch.where(result.success, result.forwards, 202).view(5, seeds)
    for row in range(5):
        assert abs(rank_sum_z(queries[row], theirs["n_forward"][row])) < 3, row
        found = result.success.view(5, seeds)[row]
        ours, reference = result.l0.view(5, seeds)[row][found], theirs["l0"][row][theirs["success"][row] == 1]
        if len(ours) and len(reference):
            assert abs(rank_sum_z(ours, reference)) < 3, row


def test_a_single_new_site_never_keeps_its_value():
    """All other values are equally likely: 7 corners of a black pixel, fewer where a channel may not change."""
    x = torch.zeros(7000, 3, 1, 2, dtype=torch.float64)
    mask = torch.ones(3, 1, 2, dtype=torch.bool)
    mask[1, 0, 1] = False
    oracle = Oracle(
        lambda x: x.flatten(1), make_problem(x, torch.zeros(7000).long(), unit="pixel", mask=mask, budget=1)
    )
    a = x.view(7000, 3, 2)
    must = torch.ones(7000, dtype=torch.bool)
    values = SparseRS()._draw_values(oracle, torch.tensor(3), a, must)
    number = (values * torch.tensor([1, 2, 4])[:, None]).sum(1).long()
    counts = torch.bincount(number[:, 0], minlength=8)
    assert counts[0] == 0
    assert ((counts[1:] - 1000).abs() < 120).all()  # four standard deviations
    counts = torch.bincount(number[:, 1], minlength=8)
    assert counts[[0, 2, 3, 6, 7]].sum() == 0
    assert ((counts[[1, 4, 5]] - 7000 / 3).abs() < 160).all()
    free = SparseRS()._draw_values(oracle, torch.tensor(3), a, ~must)
    assert ((free[:, :, 0] == 0).all(1).sum() - 875).abs() < 120


def test_exchanges_keep_the_number_of_members():
    """Also where nearly all sites, or all that may change, are members."""
    net = TinyNet("conv")
    mask = torch.zeros(1, 8, 8, dtype=torch.bool)
    mask.view(-1)[:10] = True
    for k, members in ((3, 3), (9, 9), (10, 10), (40, 10)):
        oracle = Oracle(net, make_problem(net.x[3:5], net.y[3:5], mask=mask, budget=k))
        attack = SparseRS(steps=50)
        state = attack.init(oracle)
        points = []
        for i in range(50):
            state = attack.step(torch.tensor(i), state, oracle)
            assert state.M.sum(1).tolist() == [members, members]
            assert (oracle.problem.l0(state.a) <= members).all()
            points.append(state.a)
        assert (torch.stack(points) != points[0]).any()
        assert not state.M[:, 10:].any()
