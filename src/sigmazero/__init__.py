"""How many input values must change before this model is wrong?

>>> import sigmazero as sz
>>> sz.get("sigma-zero", steps=100).steps
100
"""

from typing import TYPE_CHECKING

from sigmazero.attack import Attack
from sigmazero.attacks import ATTACKS, get
from sigmazero.functional import sigma_zero
from sigmazero.result import Outcome, Result

if TYPE_CHECKING:
    from sigmazero.evaluation import evaluate

__version__ = "0.1.0"
__all__ = ["ATTACKS", "Attack", "Outcome", "Result", "evaluate", "get", "sigma_zero"]


def __getattr__(name: str) -> object:
    """The benchmark is loaded when it is asked for: the core stays light."""
    if name == "evaluate":
        from sigmazero.evaluation import evaluate

        return evaluate
    raise AttributeError(f"module 'sigmazero' has no attribute {name!r}")
