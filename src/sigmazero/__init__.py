"""How many input values must change before this model is wrong?

>>> import sigmazero as sz
>>> sz.SigmaZero(steps=100) == sz.get("sigma-zero", steps=100)
True

Stable are attacks, run, evaluate, auto, reports, models, data and bridges. Experimental, and so free to change, are
certify, smooth, spaces and tables, leaderboards and Ray. docs/reference/python.md is the reference.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sigmazero import adapters as adapters
    from sigmazero import attacks as attacks
    from sigmazero import auto as auto
    from sigmazero import bench as bench
    from sigmazero import board as board
    from sigmazero import certifier as certifier
    from sigmazero import data as data
    from sigmazero import models as models
    from sigmazero import report as report
    from sigmazero import store as store
    from sigmazero import testing as testing
    from sigmazero.adapters.foreign import foreign
    from sigmazero.attacks.bb.bb import BrendelBethge
    from sigmazero.attacks.blackbox.genetic import Genetic
    from sigmazero.attacks.blackbox.label_swap import LabelSwap
    from sigmazero.attacks.blackbox.query_swap import QuerySwap
    from sigmazero.attacks.budget import MinimumNorm
    from sigmazero.attacks.corner import Corner
    from sigmazero.attacks.ead import EAD
    from sigmazero.attacks.fmn import FMN
    from sigmazero.attacks.pdpgd import PDPGD
    from sigmazero.attacks.pgd_l0 import PGDL0
    from sigmazero.attacks.registry import ATTACKS, get, register
    from sigmazero.attacks.saliency import Saliency
    from sigmazero.attacks.sigma_zero import SigmaZero
    from sigmazero.attacks.signatures import (
        bb,
        corner,
        ead,
        fmn,
        genetic,
        label_swap,
        pdpgd,
        pgd_l0,
        query_swap,
        refine,
        saliency,
        sigma_swap,
        sigma_zero,
        sparse_rs,
        sparsefool,
        spgd,
        swap_search,
        vfga,
    )
    from sigmazero.attacks.sparse_rs import SparseRS
    from sigmazero.attacks.sparsefool import SparseFool
    from sigmazero.attacks.spgd import SparsePGD
    from sigmazero.attacks.swap.search import SwapSearch
    from sigmazero.attacks.swap.sigma_swap import SigmaSwap
    from sigmazero.attacks.vfga import VFGA
    from sigmazero.auto import SparseAutoAttack, gate
    from sigmazero.bench.evaluate import Evaluation, evaluate
    from sigmazero.certifier.certify import Certificates, certify
    from sigmazero.certifier.smoothing import smooth
    from sigmazero.core import losses
    from sigmazero.core.attack import Attack
    from sigmazero.core.hardware import Hardware
    from sigmazero.core.metrics import Outcome
    from sigmazero.core.result import Result
    from sigmazero.models.wrapping import limit, wrap
    from sigmazero.run.check import check
    from sigmazero.spaces.rules import Formula, Rule
    from sigmazero.spaces.space import Space
    from sigmazero.store.results import load_result

__version__ = "0.1.0"
__all__ = [  # noqa: RUF022 - in groups, as the reference has them
    # A function for each attack: arrays in, a tensor out.
    "bb",
    "corner",
    "ead",
    "fmn",
    "genetic",
    "label_swap",
    "pdpgd",
    "pgd_l0",
    "query_swap",
    "saliency",
    "sigma_swap",
    "sigma_zero",
    "sparse_rs",
    "sparsefool",
    "spgd",
    "swap_search",
    "vfga",
    "refine",
    # A class for each attack: its parameters, and run.
    "BrendelBethge",
    "Corner",
    "EAD",
    "FMN",
    "Genetic",
    "LabelSwap",
    "MinimumNorm",
    "PDPGD",
    "PGDL0",
    "QuerySwap",
    "Saliency",
    "SigmaSwap",
    "SigmaZero",
    "SparseFool",
    "SparsePGD",
    "SparseRS",
    "SwapSearch",
    "VFGA",
    # Attacks by name, and of one's own.
    "ATTACKS",
    "Attack",
    "foreign",
    "get",
    "losses",
    "register",
    # Run, and read what came of it.
    "Evaluation",
    "Hardware",
    "Outcome",
    "Result",
    "SparseAutoAttack",
    "check",
    "evaluate",
    "gate",
    "limit",
    "load_result",
    "wrap",
    # Experimental: may still change.
    "Certificates",
    "Formula",
    "Rule",
    "Space",
    "certify",
    "smooth",
]

# The module of each name. It is loaded when the name is used, so that `import sigmazero` loads neither torch nor numpy.
_LATER = {
    **dict.fromkeys(__all__[: __all__.index("refine") + 1], "attacks.functions"),
    **dict.fromkeys(("ATTACKS", "get", "register"), "attacks"),
    **dict.fromkeys(("Formula", "Rule"), "spaces.rules"),
    "Attack": "core.attack",
    "BrendelBethge": "attacks.bb.bb",
    "Certificates": "certifier.certify",
    "Corner": "attacks.corner",
    "EAD": "attacks.ead",
    "FMN": "attacks.fmn",
    "Genetic": "attacks.blackbox.genetic",
    "Hardware": "core.hardware",
    "LabelSwap": "attacks.blackbox.label_swap",
    "MinimumNorm": "attacks.budget",
    "Outcome": "core.metrics",
    "PDPGD": "attacks.pdpgd",
    "PGDL0": "attacks.pgd_l0",
    "QuerySwap": "attacks.blackbox.query_swap",
    "Result": "core.result",
    "Saliency": "attacks.saliency",
    "SigmaSwap": "attacks.swap.sigma_swap",
    "SigmaZero": "attacks.sigma_zero",
    "Space": "spaces.space",
    **dict.fromkeys(("SparseAutoAttack", "gate"), "auto"),
    "SparseFool": "attacks.sparsefool",
    "SparsePGD": "attacks.spgd",
    "SparseRS": "attacks.sparse_rs",
    "SwapSearch": "attacks.swap.search",
    "VFGA": "attacks.vfga",
    "certify": "certifier.certify",
    "check": "run.check",
    **dict.fromkeys(("Evaluation", "evaluate"), "bench.evaluate"),
    "foreign": "adapters.foreign",
    "load_result": "store.results",
    **dict.fromkeys(("limit", "wrap"), "models.wrapping"),
    "losses": "core",
    "smooth": "certifier.smoothing",
}
# Packages to import from: sigmazero.models, sigmazero.data and so on. Those that are not named here are private.
_PACKAGES = (
    "adapters",
    "attacks",
    "auto",
    "bench",
    "board",
    "certifier",
    "data",
    "models",
    "report",
    "store",
    "testing",
)


def __getattr__(name: str) -> object:
    """Load a name, or a package, when it is first used."""
    if name == "losses" or name in _PACKAGES:
        return import_module(f"sigmazero.{'core.' if name == 'losses' else ''}{name}")
    if name in _LATER:
        return getattr(import_module(f"sigmazero.{_LATER[name]}"), name)
    from difflib import get_close_matches

    # A word with a capital is meant for a class: SigmaZer0 is near to SigmaZero, not to sigma_zero.
    known = {each.lower(): each for each in sorted([*__all__, *_PACKAGES], reverse=name != name.lower())}
    near = get_close_matches(name.lower(), known, 1)
    hint = f"; did you mean {known[near[0]]!r}?" if near else ""
    raise AttributeError(f"module 'sigmazero' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    """Return the public names alone."""
    return sorted([*__all__, *_PACKAGES, "__version__"])
