"""σ-swap keeps its limit of queries, plans its phases inside it, and its search refines what others found."""

from dataclasses import replace
from unittest import mock

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.swap.opening import Ladder, Rung
from sigmazero.attacks.swap.search import SwapSearch
from sigmazero.core.attack import Fork
from sigmazero.core.inputs import make_problem
from tests.helpers.networks import TinyNet, linear_optimum, linear_problem

TARGETS = [False, True]


def test_refine_returns_what_it_cannot_use():
    def steadfast(x):
        return torch.stack([1 + 0 * x.sum(1), 0 * x.sum(1)], 1)

    x, start = torch.rand(3, 5), torch.rand(3, 5)
    with pytest.warns(UserWarning, match="SZ004"):
        assert torch.equal(sz.refine(steadfast, x, torch.zeros(3, dtype=torch.int64), start, queries=40), start)


def test_a_start_without_finite_logits_is_no_start():
    """The row goes on from the clean input; before, it ended there."""
    model, x, y = linear_problem((12,), 4, seed=1)
    start = x.clone()
    start[1] = 0.123

    def fragile(z):
        return model(z) + torch.where((z == 0.123).all(1, keepdim=True), torch.nan, 0.0)

    attack = sz.get("swap-search", steps=40)
    result = attack.run(fragile, x, y, start=start)
    assert result.success.all()
    assert result.outcome[1] == sz.Outcome.FOUND


def paths(phases):
    """Return the phases of each way that a row may go."""
    *first, last = phases
    return [(*first, *way) for way in last.ways] if isinstance(last, Fork) else [phases]


@pytest.mark.parametrize("targeted", TARGETS)
@pytest.mark.parametrize("queries", [5, 40, 66, 67, 68, 100, 200, 252, 254, 2000])
def test_the_plan_uses_what_it_may(queries, targeted):
    problem = make_problem(torch.zeros(1, 3), torch.zeros(1, dtype=torch.int64), targeted=targeted)
    ways = paths(sz.get("sigma-swap", queries=queries).phases(problem))
    assert len(ways) == 1 + (67 <= queries < 253 and not targeted)
    for way in ways:
        asked = [(phase.proposals + 1 if isinstance(phase, SwapSearch) else 2) * phase.steps for phase in way]
        assert queries - 1 <= 3 + sum(asked) <= queries
        assert isinstance(way[0], Ladder) == (queries < 253 and not targeted)
        searches = isinstance(way[-1], SwapSearch)  # which begins from a fair example
        assert not searches or sum(phase.steps for phase in way[:-1]) >= 24


def test_rows_part_and_do_not_notice_each_other():
    """With few queries some rows go on with the ladder, the others with σ-zero."""
    net = TinyNet("conv")
    x = torch.rand(24, *net.x.shape[1:], generator=torch.Generator().manual_seed(0)).to(net.x)
    best, y = net(x).topk(2).values.unbind(1), net(x).argmax(1)
    margin = (best[0] - best[1]).detach()
    attack = sz.get("sigma-swap", queries=100)

    def attacked(most, x=x, y=y, **options):
        """Let σ-zero take the rows whose margin is larger than this."""
        with mock.patch.object(Rung, "misled", lambda s: s.clean > most):
            return attack.run(net, x, y, **options)

    middle = margin.sort().values[11:13].mean()
    ways = attacked(-torch.inf), attacked(torch.inf)
    together = attacked(middle)
    alone = attacked(middle, x.flip(0), y.flip(0), ids=torch.arange(24).flip(0), batch_size=5)
    assert torch.equal(together.x_adv, alone.x_adv.flip(0))
    assert torch.equal(together.forwards, alone.forwards.flip(0))
    for rows, one in ((margin > middle, ways[0]), (margin < middle, ways[1])):
        assert torch.equal(together.x_adv[rows], one.x_adv[rows])
    assert not torch.equal(ways[0].x_adv, ways[1].x_adv)
    assert int((together.forwards + together.backwards).max()) <= 100


def test_a_choice_that_takes_an_eighth_of_the_margin_is_trusted():
    none = torch.zeros(3)
    rung = Rung(walk=none, walking=none, g=none, n=none, low=none, clean=torch.full((3,), 4.0), m=none, done=none)
    assert replace(rung, m=torch.tensor([3.6, 3.5, -1.0])).misled().tolist() == [True, False, False]


@pytest.mark.parametrize(("queries", "gap"), [(40, 1.0), (200, 0.5)])
def test_near_the_fewest_changes_and_sparser_than_sigma_zero(queries, gap):
    """On random linear models, where the optimum is known; the whole point of the attack."""
    model, x, y = linear_problem((3, 8, 8), 60, seed=1)
    ours = sz.get("sigma-swap", queries=queries).run(model, x, y)
    theirs = sz.get("sigma-zero", steps=queries // 2).run(model, x, y)
    best, worst = linear_optimum(model, x, y), x[0].numel()
    assert float((ours.l0 - best).mean()) <= gap
    assert ours.l0.mean() < theirs.l0.clamp(max=worst).mean()
    assert int((ours.forwards + ours.backwards).max()) <= queries
