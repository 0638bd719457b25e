"""How many input values must change before this model is wrong?

>>> import sigmazero as sz
>>> sz.get("sigma-zero", steps=100).steps
100
"""

from sigmazero.attack import Attack
from sigmazero.attacks import ATTACKS, get
from sigmazero.functional import sigma_zero
from sigmazero.result import Outcome, Result

__version__ = "0.1.0"
__all__ = ["ATTACKS", "Attack", "Outcome", "Result", "get", "sigma_zero"]
