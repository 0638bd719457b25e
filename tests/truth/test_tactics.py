"""What is tried at which size follows from what it costs and how often it succeeds."""

from sigmazero.truth.tactics import Tactics


def scored(t: int) -> Tactics:
    """The quick bound proves small tasks, the full one larger ones at six times the cost."""
    tactics = Tactics(t)
    tactics.note(5, False, 1000, 1000, 5.0)
    tactics.note(6, False, 1000, 0, 5.0)
    tactics.note(6, True, 1000, 1000, 30.0)
    return tactics


def test_one_range_is_rather_halved():
    assert scored(1).choose(6) == (False, False)


def test_many_halves_cost_more_than_the_full_bound():
    assert scored(3).choose(6) == (False, True)


def test_sizes_above_those_known_are_halved_and_those_below_tried():
    assert scored(1).choose(9) == (False, False)
    assert scored(1).choose(4) == (True, True)
    assert Tactics().choose(0) == (True, True)


def test_single_sites_are_always_tried():
    tactics = Tactics()
    tactics.note(0, False, 100, 0, 1.0)
    assert any(tactics.choose(0))


def test_what_neither_bound_proves():
    tactics = scored(1)
    assert tactics.failure(5) < 0.01
    assert tactics.failure(6) < 0.01
    assert tactics.failure(3) == 1.0
