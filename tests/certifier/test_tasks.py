"""Tasks cover every set of t sites, and none is asked about more often than needed."""

from itertools import combinations

import pytest
import torch

from sigmazero.certifier.piles import Piles, join
from sigmazero.certifier.tasks import Tasks, curve, whole


def allowed(tasks: Tasks) -> list[set[frozenset[int]]]:
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
    tasks = whole(torch.zeros(1, dtype=torch.long), sites, t)
    everything = {frozenset(s) for s in combinations(range(sites), t)}
    while int(tasks.longest.max()) > 1:
        # Only the longest ones, so that tasks of several sizes stand side by side.
        long = tasks.longest == tasks.longest.max()
        tasks = join([tasks.take(~long), tasks.take(long).halved()])
        each = allowed(tasks)
        assert set().union(*each) == everything
        assert sum(len(sets) for sets in each) == len(everything), "a set is in two tasks"
    assert len(tasks) == len(everything)


def test_equal_ranges_stand_side_by_side():
    tasks = whole(torch.zeros(2, dtype=torch.long), 9, 3).halved().halved().halved()
    for begin in tasks.begin.tolist():
        assert begin == sorted(begin)


def test_sites_of_a_range_follow_the_curve():
    order = curve(4, 4, 1)
    tasks = Tasks(torch.tensor([0]), torch.tensor([[0, 5]]), torch.tensor([[4, 6]]))
    assert tasks.sites(order).tolist() == [[[0, 1, 4, 5], [3, -1, -1, -1]]]


@pytest.mark.parametrize("shape", [(3, 5, 2), (1, 1, 7), (28, 28, 1)])
def test_the_curve_meets_every_site(shape):
    assert sorted(curve(*shape).tolist()) == list(range(shape[0] * shape[1] * shape[2]))


def test_a_level_that_fills_a_batch_comes_first_and_the_lowest_of_those():
    piles = Piles(4)
    tasks = whole(torch.arange(6), 8, 1)
    for level, count in ((3, 6), (1, 5), (0, 3)):
        piles.push(level, tasks.take(slice(0, count)))
    found = [(level, some.rows.tolist()) for level, some in (piles.pop() for _ in range(5))]
    assert found == [(1, [1, 2, 3, 4]), (3, [2, 3, 4, 5]), (0, [0, 1, 2]), (3, [0, 1]), (1, [0])]
    assert not piles
