"""Sparse-RS: a plain form of the reference, held against its recorded queries; ours, held against the plain form."""

import pytest
import torch

import sigmazero as sz
from tests.helpers.networks import TinyNet
from tests.helpers.traces import CORRECT, Recording, bits, rank_sum_z, recorded, same, search

# The share of exchanged sites is the initial one divided by this, up to so many of 10,000 queries.
SHARES = ((0, 1), (50, 2), (200, 4), (500, 5), (1000, 6), (2000, 8), (4000, 10), (6000, 12), (8000, 15), (10000, 20))


def exchanged(query, k, queries=200):
    """How many sites a query exchanges, as in the released code."""
    at = int(query / queries * 10_000)
    return max(int(0.8 / next(divisor for until, divisor in SHARES if at <= until) * k), 1)


def plain(model, x, y, k, draw, queries=200):
    """Return all points of a run on one input: `draw(i, n, members, others, a)` gives who leaves, who comes, values."""
    members: list[int] = []
    others, a, best, points = list(range(x.numel())), x, torch.inf, []
    for i in range(queries):
        out, into, values = draw(i, k if i == 0 else exchanged(i, k), members, others, a.flatten())
        point = a.clone()
        point.view(-1)[out] = x.flatten()[out]
        point.view(-1)[into] = values
        points.append(point)
        logits = model(point[None])[0]
        margin = logits[y] - logits[torch.arange(len(logits)) != y].amax()
        if margin < best or margin < -1e-6:
            a, best = point, margin
            members = [site for site in members if site not in out] + into
            others = [site for site in range(x.numel()) if site not in members]
        if margin < 0:
            break
    return torch.stack(points)


def recorded_draws(trace, row, k):
    """Return what the reference drew; it names places in its own lists of members and others."""
    order = trace["init_perm"][row].tolist()
    held, free = order[:k], order[k:]
    last: list[tuple[int, int]] = []

    def draw(i, n, members, *_):
        if i == 0:
            return [], list(held), trace["init_colour"][row]
        if set(members) != set(held):  # the exchange before this one stayed
            for a, b in last:
                held[a], free[b] = free[b], held[a]
        assert n == trace["it_n"][row, i - 1]
        out, into = (trace[key][row, i - 1, :n].tolist() for key in ("it_out", "it_in"))
        last[:] = zip(out, into, strict=True)
        return [held[a] for a in out], [free[b] for b in into], trace["it_colour"][row, i - 1, :n]

    return draw


def own_draws(row, sites):
    """Return what ours draws: sites in the order of random bits, corners by the last of other bits."""

    def draw(i, n, members, others, a):
        keys, corners = (bits(row, i, (sites,)) >> 2).tolist(), (bits(row, i, (sites,), stream=1) & 1).double()
        out, into = (sorted(which, key=keys.__getitem__)[:n] for which in (members, others))
        values = corners[into]
        if i and n == 1 and values[0] == a[into[0]]:
            values = 1 - values
        return out, into, values

    return draw


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("k", [4, 12])
def test_the_plain_form_asks_every_query_of_the_reference(k, kind):
    net, trace = TinyNet(kind), recorded(f"trace_sparse_rs_feature_k{k}_q200", kind)
    for row in CORRECT:
        points = plain(net, net.x[row], net.y[row], k, recorded_draws(trace, row, k))
        # The reference also asks about the clean input and, at the end, about its answer.
        assert len(points) == trace["n_forward"][row] - 2
        same(points, trace["queries"][row, 1 : 1 + len(points)])
        fooled = net(points[-1:]).argmax() != net.y[row]
        assert fooled == trace["success"][row]
        same(points[-1] if fooled else net.x[row], trace["final"][row])


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("k", [4, 12])
def test_every_query_is_that_of_the_plain_form(k, kind):
    net = TinyNet(kind)
    for row in CORRECT:
        ours, slopes, result = search(sz.get("sparse-rs", steps=200), net, net.x, net.y, row, budget=k)
        same(ours, plain(net, net.x[row], net.y[row], k, own_draws(row, net.x[0].numel())))
        assert not slopes.any()
        assert result.backwards[0] == 0
        assert result.success[0] == bool(net(ours[-1:]).argmax() != net.y[row])
        if result.success[0]:
            assert torch.equal(result.x_adv[0], ours[-1])


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("k", [4, 8])
def test_outcomes_are_distributed_like_the_references(k, kind):
    net, theirs = TinyNet(kind), recorded(f"stats_sparse_rs_feature_k{k}_q200", kind)
    seeds = 100
    x, y = (t[:5].repeat_interleave(seeds, 0) for t in (net.x, net.y))
    result = sz.get("sparse-rs", steps=200).run(net, x, y, budget=k)
    queries = torch.where(result.success, result.forwards - 1, 202).view(5, seeds)  # theirs ask once about an answer
    for row in range(5):
        assert abs(rank_sum_z(queries[row], theirs["n_forward"][row])) < 3, row
        found = result.success.view(5, seeds)[row]
        ours, reference = result.l0.view(5, seeds)[row][found], theirs["l0"][row][theirs["success"][row] == 1]
        if len(ours) and len(reference):
            assert abs(rank_sum_z(ours, reference)) < 3, row


def test_a_single_new_site_never_keeps_its_value():
    """All other values are equally likely: 7 corners of a black pixel, fewer where a channel may not change."""
    n = 14_000
    x = torch.zeros(n, 3, 1, 2, dtype=torch.float64)
    mask = torch.ones(3, 1, 2, dtype=torch.bool)
    mask[1, 0, 1] = False
    asked = Recording(lambda x: 0 * x.flatten(1)[:, :2] + torch.tensor([1.0, 0.0]))
    sz.get("sparse-rs", steps=2).run(asked, x, torch.zeros(n).long(), budget=1, unit="pixel", mask=mask, batch_size=n)
    first, second = (asked.calls[i].view(n, 3, 2) for i in (1, 2))
    weights = torch.tensor([1, 2, 4], dtype=torch.float64)
    start = torch.einsum("ncs,c->ns", first, weights).long()
    # The first query may draw black; the second moves to the other site, whose value then differs.
    counts = torch.bincount(start[start[:, 1] == 0, 0], minlength=8)
    assert counts[0] > 0
    moved = torch.einsum("ncs,c->ns", second, weights).long()
    assert ((moved > 0).sum(1) == 1).all()
    for site, allowed in ((0, [1, 2, 3, 4, 5, 6, 7]), (1, [1, 4, 5])):
        came = moved[(start[:, 1 - site] > 0), site]
        counts = torch.bincount(came, minlength=8)
        assert counts.sum() == counts[allowed].sum()
        share = len(came) / len(allowed)
        assert ((counts[allowed] - share).abs() < 4 * share**0.5).all()


def test_exchanges_keep_the_number_of_members():
    """Also where nearly all sites, or all that may change, are members."""
    net = TinyNet("conv")
    mask = torch.zeros(1, 8, 8, dtype=torch.bool)
    mask.view(-1)[:10] = True
    x = net.x.clamp(0.1, 0.9)  # so that a corner is always a change
    for k, members in ((3, 3), (9, 9), (10, 10), (40, 10)):
        points = search(sz.get("sparse-rs", steps=50), net, x, net(x).argmax(1), 4, mask=mask, budget=k).points
        changed = points != x[4]
        assert (changed.flatten(1).sum(1) == members).all()
        assert (changed <= mask).all()
        assert len(points) > 1
        assert (points != points[0]).any()
