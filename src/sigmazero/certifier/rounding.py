"""How much rounding can spoil a bound, so that what is proved stays proved (docs/evidence/soundness.md).

All arithmetic here is float64. A sum of n products, in whatever order it is taken, is off by at most gamma(n) times the
sum of their magnitudes. Every bound is moved outward by more than that.
"""

from torch import Tensor

UNIT = 2.0**-53  # the largest relative error of one operation in float64
TINY = 1e-200  # more than all that underflow can take away


def gamma(terms: int) -> float:
    """Largest relative error of a sum of so many products; some operations around it are included.

    >>> gamma(100) < 2e-14
    True
    """
    n = terms + 16
    return n * UNIT / (1 - n * UNIT)


def outward(lo: Tensor, hi: Tensor, relative: float) -> tuple[Tensor, Tensor]:
    """Intervals around 0 that are wider by a relative error of their width; those of no width stay so."""
    slack = (hi - lo) * relative
    return lo - slack, hi + slack
