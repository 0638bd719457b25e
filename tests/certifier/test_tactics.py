"""What is tried at which size follows from what it costs and how often it succeeds."""

from sigmazero.certifier.bounds import Effort
from sigmazero.certifier.tactics import Tactics

INTERVALS, PLANES, FULL = Effort


def scored(t: int) -> Tactics:
    """Intervals prove small tasks, the full bound larger ones at six times the cost."""
    tactics = Tactics(t)
    tactics.note(5, INTERVALS, 1000, 1000, 5.0)
    tactics.note(6, INTERVALS, 1000, 0, 5.0)
    tactics.note(6, FULL, 1000, 1000, 30.0)
    return tactics


def test_one_range_is_rather_halved():
    assert scored(1).choose(6) == ()


def test_many_halves_cost_more_than_the_full_bound():
    assert scored(3).choose(6) == (FULL,)


def test_sizes_above_those_known_are_halved_and_those_below_tried():
    assert scored(1).choose(9) == ()
    assert scored(1).choose(4) is None
    assert Tactics().choose(0) is None


def test_single_sites_are_tried_unless_their_values_are_known_to_be_better():
    tactics = Tactics()
    tactics.note(0, INTERVALS, 100, 0, 1.0)
    assert tactics.choose(0) == (INTERVALS,)
    tactics.note(-1, INTERVALS, 100, 100, 1.0)
    assert tactics.choose(0) == ()


def test_the_middle_bound_is_taken_where_it_is_the_cheapest():
    tactics = Tactics()
    tactics.note(0, INTERVALS, 100, 10, 1.0)
    tactics.note(0, PLANES, 90, 88, 1.8)
    tactics.note(0, FULL, 2, 2, 2.0)
    assert tactics.choose(0) == (PLANES,)


def test_what_no_bound_proves():
    tactics = scored(1)
    assert tactics.failure(5) < 0.01
    assert tactics.failure(6) < 0.01
    assert tactics.failure(3) == 1.0
