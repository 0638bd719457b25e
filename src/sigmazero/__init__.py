"""How many input values must change before this model is wrong?

>>> import sigmazero as sz
>>> sz.get("sigma-zero", steps=100).steps
100
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sigmazero.adapters.foreign import foreign
    from sigmazero.attacks import ATTACKS, get, register
    from sigmazero.attacks.functions import refine, sigma_zero
    from sigmazero.auto import SparseAutoAttack
    from sigmazero.auto.gating import gate
    from sigmazero.bench.evaluate import evaluate
    from sigmazero.core.attack import Attack
    from sigmazero.core.result import Outcome, Result
    from sigmazero.models.any import wrap
    from sigmazero.run.check import check
    from sigmazero.spaces.rules import Formula, Rule
    from sigmazero.spaces.space import Space
    from sigmazero.store.results import load_result
    from sigmazero.truth.ablation import smooth
    from sigmazero.truth.certificates import Certificates
    from sigmazero.truth.certify import certify

__version__ = "0.1.0"
__all__ = [
    "ATTACKS",
    "Attack",
    "Certificates",
    "Formula",
    "Outcome",
    "Result",
    "Rule",
    "Space",
    "SparseAutoAttack",
    "certify",
    "check",
    "evaluate",
    "foreign",
    "gate",
    "get",
    "load_result",
    "refine",
    "register",
    "sigma_zero",
    "smooth",
    "wrap",
]

# Loaded when they are asked for: the core stays light, and the command line can be interrupted before torch is there.
_LATER = {
    **dict.fromkeys(("ATTACKS", "get", "register"), "sigmazero.attacks"),
    **dict.fromkeys(("refine", "sigma_zero"), "sigmazero.attacks.functions"),
    **dict.fromkeys(("Outcome", "Result"), "sigmazero.core.result"),
    **dict.fromkeys(("Formula", "Rule"), "sigmazero.spaces.rules"),
    "Attack": "sigmazero.core.attack",
    "Certificates": "sigmazero.truth.certificates",
    "certify": "sigmazero.truth.certify",
    "Space": "sigmazero.spaces.space",
    "load_result": "sigmazero.store.results",
    "SparseAutoAttack": "sigmazero.auto",
    "check": "sigmazero.run.check",
    "evaluate": "sigmazero.bench.evaluate",
    "foreign": "sigmazero.adapters.foreign",
    "gate": "sigmazero.auto.gating",
    "smooth": "sigmazero.truth.ablation",
    "wrap": "sigmazero.models.any",
}
# Packages to import from: sigmazero.models, sigmazero.data and so on. What is not named here is our own business.
_PACKAGES = ("adapters", "attacks", "auto", "bench", "board", "data", "models", "report", "store", "testing", "truth")


def __getattr__(name: str) -> object:
    """A name of another package, or a package, that nobody asked for before."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name in _PACKAGES:
        return import_module(f"sigmazero.{name}")
    raise AttributeError(f"module 'sigmazero' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names alone."""
    return sorted([*__all__, *_PACKAGES, "__version__"])
