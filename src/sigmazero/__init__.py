"""How many input values must change before this model is wrong?

>>> import sigmazero as sz
>>> sz.get("sigma-zero", steps=100).steps
100
"""

from typing import TYPE_CHECKING

from sigmazero.attacks import ATTACKS, get, register
from sigmazero.attacks.functions import refine, sigma_zero
from sigmazero.core.attack import Attack
from sigmazero.core.result import Outcome, Result

if TYPE_CHECKING:
    from sigmazero.auto import SparseAutoAttack
    from sigmazero.bench.evaluate import evaluate

__version__ = "0.1.0"
__all__ = [
    "ATTACKS",
    "Attack",
    "Outcome",
    "Result",
    "SparseAutoAttack",
    "evaluate",
    "get",
    "refine",
    "register",
    "sigma_zero",
]


def __getattr__(name: str) -> object:
    """The benchmark and the cascade are loaded when they are asked for: the core stays light."""
    if name == "evaluate":
        from sigmazero.bench.evaluate import evaluate

        return evaluate
    if name == "SparseAutoAttack":
        from sigmazero.auto import SparseAutoAttack

        return SparseAutoAttack
    raise AttributeError(f"module 'sigmazero' has no attribute {name!r}")
