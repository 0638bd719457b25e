"""How a sample can end."""

from enum import IntEnum


class Outcome(IntEnum):
    """How a sample ended."""

    ALREADY = 0  # the clean input reaches the goal: nothing to change
    FOUND = 1
    NOT_FOUND = 2
    NON_FINITE = 3  # the model returned NaN or Inf before anything was found
    UNVERIFIED = 4  # found, but a fresh forward pass did not confirm it
    NO_START = 5  # the attack needs a starting point and found none
    STOPPED = 6  # the model answered no more before this sample was done: its queries were spent, or it failed
