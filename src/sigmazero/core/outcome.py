"""How a sample can end."""

from enum import IntEnum


class Outcome(IntEnum):
    """How a sample ended; `result.outcome` has one of these numbers for each."""

    #: The clean input reaches the goal: nothing to change, l0 is 0.
    ALREADY = 0
    #: An adversarial point was found and verified, within the budget if there is one.
    FOUND = 1
    #: Nothing was found within the steps; l0 is infinite, as in 3 to 6.
    NOT_FOUND = 2
    #: The model returned NaN or Inf before anything was found.
    NON_FINITE = 3
    #: Something was found, but a fresh forward pass did not confirm it.
    UNVERIFIED = 4
    #: The attack needs a starting point and found none.
    NO_START = 5
    #: The model answered no more before this sample was done: its queries were spent, or it failed.
    STOPPED = 6
    #: An adversarial point was found and verified, but with more changes than the budget allows: no success.
    BEYOND_BUDGET = 7
