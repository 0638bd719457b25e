"""The search loses nothing: what it says is proved was asked about, and what was proved stays so."""

import math
import time
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.certifier import search
from sigmazero.certifier.bounds import NetworkBounds, Strength
from sigmazero.certifier.graph import trace
from sigmazero.certifier.search import SITES, BranchAndBound, Progress, Queue, Size, Strategy
from sigmazero.certifier.subproblems import Question, SiteGroups, ValueBoxes, curve, join


def question(seed: int, features: int = 5, rows: int = 3) -> Question:
    """A small network, some inputs, and a box of its own for each feature; one feature may not change."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 3)).requires_grad_(False).eval()
    x = torch.rand(rows, features)
    low, high = x - 0.5 * torch.rand(features), x + 0.5 * torch.rand(features)
    low[:, 1] = high[:, 1] = x[:, 1]
    return Question(model, NetworkBounds(trace(model, x)), x, model(x).argmax(1), low, high)


class Covered(BranchAndBound):
    """Notes what was proved: for each input and set of sites, how much of the box of values."""

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self.parts: dict[tuple[int, frozenset[int]], float] = {}
        self.boxes = 0

    def _proved(self, some: Any, size: Size) -> torch.Tensor:
        good = super()._proved(some, size)
        if isinstance(some, SiteGroups) and bool(good.any()):
            self.note(some.take(good))
        return good

    def _bounded(self, some: Any, strength: Strength) -> torch.Tensor:
        """Prove nothing about the first site, so that its values are halved."""
        good = super()._bounded(some, strength)
        if isinstance(some, SiteGroups):
            return good & (some.begin > 0).all(1)
        if bool(good.any()):
            self.note(some.take(good))
        return good

    def note(self, some: SiteGroups | ValueBoxes) -> None:
        """Note what was proved."""
        if isinstance(some, ValueBoxes):
            self.boxes += len(some)
            whole = ValueBoxes.whole(self.question, some.rows, some.sites)
            moves = whole.high > whole.low
            share = torch.where(moves, (some.high - some.low) / (whole.high - whole.low), 1.0).flatten(1).prod(1)
            for row, sites, part in zip(some.rows.tolist(), some.sites.tolist(), share.tolist(), strict=True):
                self.add(row, sites, part)
            return
        for row, ranges in zip(some.rows.tolist(), some.sites(self.question.order).tolist(), strict=True):
            for sites in combinations({site for places in ranges for site in places if site >= 0}, self.t):
                most = [sum(site in places for site in sites) <= ranges.count(places) for places in ranges]
                if all(most):
                    self.add(row, sites, 1.0)

    def add(self, row: int, sites: Any, part: float) -> None:
        """Add some of the values of a set of sites."""
        key = row, frozenset(sites)
        self.parts[key] = self.parts.get(key, 0.0) + part


@pytest.mark.parametrize("t", [1, 2, 3])
def test_what_is_proved_was_asked_about(t, monkeypatch):
    """Every set of t sites, with all its values, and none twice; also where every input waits for the others."""
    monkeypatch.setattr(search, "PATIENCE", 1e-9)
    proved = valued = 0
    for seed in range(8):
        asked = question(seed)
        progress = Progress.new(asked)
        run = Covered(asked, progress, t, batch=16)
        for row in run.run(torch.arange(3)).tolist():
            proved += 1
            for sites in combinations(range(5), t):
                part = run.parts[row, frozenset(sites)]
                assert part == pytest.approx(1.0, abs=1e-6)
            valued += run.boxes > 0
    assert proved > 3
    assert valued > 3


def test_what_is_proved_when_time_is_over_stays_proved():
    """The end comes when nothing of the first input is left."""
    asked = question(0)
    strategy = Strategy(1)
    strategy.note(Size(SITES, 3), Strength.INTERVALS, 10, 10, 1.0)
    run = BranchAndBound(asked, Progress.new(asked), 1, batch=16, strategy=strategy)

    def bounded(some: Any, strength: Strength) -> torch.Tensor:
        if not bool((some.rows == 0).any()):
            run.end = -math.inf
        return some.rows == 0

    run._bounded = bounded
    assert run.run(torch.arange(3)).tolist() == [0]
    assert run.progress.open.tolist() == [False, True, True]


def test_a_witness_is_one_point():
    """Of several that are met at once, and not some values of each."""
    asked = question(0)
    progress = Progress.new(asked)
    points = torch.arange(20.0).view(4, 5)
    progress.meet(points, torch.tensor([2, 0, 2, 0]))
    assert progress.found.tolist() == [True, False, True]
    assert torch.equal(progress.witness[[2, 0]], points[:2])


def test_the_strongest_bound_has_the_last_word(monkeypatch):
    """Whatever the strategy leaves out, a box that cannot be halved is not given up before it was tried."""
    asked = question(0)
    monkeypatch.setattr(Strategy, "choose", lambda self, at: ())
    found = sz.certify(asked.model, asked.x, asked.y, mask=torch.zeros(5, dtype=torch.bool), attack=None)
    assert found.status == ["proved"] * 3


def test_a_box_without_a_number_between_its_ends_is_not_halved():
    """It would be a half of itself, for ever."""
    asked = question(0)
    low = torch.ones(1, 1, 1, dtype=torch.float64)
    box = ValueBoxes(torch.tensor([0]), torch.tensor([[0]]), low, low + 2.0**-52)
    ends = torch.ones_like(asked.x.double())
    narrow = Question(asked.model, asked.bounds, ends, asked.y, ends, ends + 2.0**-52)
    halves, left = box.split(narrow)
    assert (len(halves), len(left)) == (0, 1)


def test_where_memory_runs_out_batches_become_smaller(monkeypatch, caplog):
    asked = question(0, rows=12)
    right, ids = NetworkBounds.margins, torch.arange(12)

    def narrow(self, clean, rows, labels, region, strength):
        if len(rows) > 9:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(self, clean, rows, labels, region, strength)

    found = []
    for margins in (right, narrow):
        strategy = Strategy(2)
        strategy.note(
            Size(SITES, 3), Strength.INTERVALS, 1000, 999, 1.0
        )  # so that the first batch, of all inputs, is tried
        monkeypatch.setattr(NetworkBounds, "margins", margins)
        found.append(BranchAndBound(asked, Progress.new(asked), 2, batch=16, strategy=strategy).run(ids).tolist())
    assert found[0] == found[1]
    assert len(found[0])
    assert "batches have 6 subproblems" in caplog.text


def test_a_slow_step_ends_when_time_is_over(monkeypatch):
    """Not after the batch: the clock is read inside it."""
    asked = question(0)
    right = NetworkBounds._relax

    def slow(self, *given):
        for _ in range(50):
            time.sleep(0.01)
            self.tick()
        return right(self, *given)

    monkeypatch.setattr(NetworkBounds, "_relax", slow)
    progress = Progress.new(asked)
    run = BranchAndBound(asked, progress, 2, batch=16, limit=0.03)
    assert run.run(torch.arange(3)).tolist() == []
    assert progress.open.all()
    assert float(progress.boxes.sum()) == 0


def whole(rows: int, sites: int, t: int) -> SiteGroups:
    """One subproblem for each row, which allows any t sites."""
    begin = torch.zeros(rows, t, dtype=torch.long)
    return SiteGroups(torch.arange(rows), begin, begin + sites)


def allowed(tasks: SiteGroups) -> list[set[frozenset[int]]]:
    """The sets of t sites that each task allows."""
    found = []
    for begin, end in zip(tasks.begin.tolist(), tasks.end.tolist(), strict=True):
        ranges = list(zip(begin, end, strict=True))
        most = {one: ranges.count(one) for one in ranges}
        sites = sorted({site for b, e in ranges for site in range(b, e)})
        sets = combinations(sites, len(ranges))
        found.append({frozenset(s) for s in sets if all(sum(b <= k < e for k in s) <= m for (b, e), m in most.items())})
    return found


@pytest.mark.parametrize(("sites", "t"), [(7, 1), (8, 2), (7, 3), (6, 4), (3, 3)])
def test_halving_covers_every_set_once(sites, t):
    tasks = whole(1, sites, t)
    everything = {frozenset(s) for s in combinations(range(sites), t)}
    while int(tasks.longest.max()) > 1:
        # Only the longest ones, so that tasks of several sizes stand side by side.
        long = tasks.longest == tasks.longest.max()
        tasks = join([tasks.take(~long), tasks.take(long).split()])
        each = allowed(tasks)
        assert set().union(*each) == everything
        assert sum(len(sets) for sets in each) == len(everything), "a set is in two tasks"
    assert len(tasks) == len(everything)


def test_equal_ranges_stand_side_by_side():
    tasks = whole(2, 9, 3).split().split().split()
    for begin in tasks.begin.tolist():
        assert begin == sorted(begin)


def test_sites_of_a_range_follow_the_curve():
    order = curve(4, 4, 1)
    tasks = SiteGroups(torch.tensor([0]), torch.tensor([[0, 5]]), torch.tensor([[4, 6]]))
    assert tasks.sites(order).tolist() == [[[0, 1, 4, 5], [3, -1, -1, -1]]]


@pytest.mark.parametrize("shape", [(3, 5, 2), (1, 1, 7), (28, 28, 1)])
def test_the_curve_meets_every_site(shape):
    assert sorted(curve(*shape).tolist()) == list(range(shape[0] * shape[1] * shape[2]))


def test_a_level_that_fills_a_batch_comes_first_and_the_lowest_of_those():
    queue = Queue(4)
    tasks = whole(6, 8, 1)
    for level, count in ((3, 6), (1, 5), (0, 3)):
        queue.push(Size(SITES, level), tasks.take(slice(0, count)))
    found = [(size.log2, some.rows.tolist()) for size, some in (queue.pop() for _ in range(5))]
    assert found == [(1, [1, 2, 3, 4]), (3, [2, 3, 4, 5]), (0, [0, 1, 2]), (3, [0, 1]), (1, [0])]
    assert not queue


INTERVALS, PLANES, FULL = Strength


def scored(t: int) -> Strategy:
    """Intervals prove small tasks, the full bound larger ones at six times the cost."""
    strategy = Strategy(t)
    strategy.note(Size(SITES, 5), INTERVALS, 1000, 1000, 5.0)
    strategy.note(Size(SITES, 6), INTERVALS, 1000, 0, 5.0)
    strategy.note(Size(SITES, 6), FULL, 1000, 1000, 30.0)
    return strategy


def test_one_range_is_rather_halved():
    assert scored(1).choose(Size(SITES, 6)) == ()


def test_many_halves_cost_more_than_the_full_bound():
    assert scored(3).choose(Size(SITES, 6)) == (FULL,)


def test_sizes_above_those_known_are_halved_and_those_below_tried():
    assert scored(1).choose(Size(SITES, 9)) == ()
    assert scored(1).choose(Size(SITES, 4)) is None
    assert Strategy().choose(Size(SITES, 0)) is None


def test_the_middle_bound_is_taken_where_it_is_the_cheapest():
    strategy = Strategy()
    strategy.note(Size(SITES, 0), INTERVALS, 100, 10, 1.0)
    strategy.note(Size(SITES, 0), PLANES, 90, 88, 1.8)
    strategy.note(Size(SITES, 0), FULL, 2, 2, 2.0)
    assert strategy.choose(Size(SITES, 0)) == (PLANES,)
