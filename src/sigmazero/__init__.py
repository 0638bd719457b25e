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
    from sigmazero.adapters.foreign import foreign as foreign
    from sigmazero.attacks.bb.bb import BrendelBethge as BrendelBethge
    from sigmazero.attacks.blackbox.genetic import Genetic as Genetic
    from sigmazero.attacks.blackbox.label_swap import LabelSwap as LabelSwap
    from sigmazero.attacks.blackbox.query_swap import QuerySwap as QuerySwap
    from sigmazero.attacks.budget import MinimumNorm as MinimumNorm
    from sigmazero.attacks.corner import Corner as Corner
    from sigmazero.attacks.ead import EAD as EAD
    from sigmazero.attacks.fmn import FMN as FMN
    from sigmazero.attacks.pdpgd import PDPGD as PDPGD
    from sigmazero.attacks.pgd_l0 import PGDL0 as PGDL0
    from sigmazero.attacks.registry import ATTACKS as ATTACKS
    from sigmazero.attacks.registry import get as get
    from sigmazero.attacks.registry import register as register
    from sigmazero.attacks.saliency import Saliency as Saliency
    from sigmazero.attacks.sigma_zero import SigmaZero as SigmaZero
    from sigmazero.attacks.signatures import bb as bb
    from sigmazero.attacks.signatures import corner as corner
    from sigmazero.attacks.signatures import ead as ead
    from sigmazero.attacks.signatures import fmn as fmn
    from sigmazero.attacks.signatures import genetic as genetic
    from sigmazero.attacks.signatures import label_swap as label_swap
    from sigmazero.attacks.signatures import pdpgd as pdpgd
    from sigmazero.attacks.signatures import pgd_l0 as pgd_l0
    from sigmazero.attacks.signatures import query_swap as query_swap
    from sigmazero.attacks.signatures import refine as refine
    from sigmazero.attacks.signatures import saliency as saliency
    from sigmazero.attacks.signatures import sigma_swap as sigma_swap
    from sigmazero.attacks.signatures import sigma_zero as sigma_zero
    from sigmazero.attacks.signatures import sparse_rs as sparse_rs
    from sigmazero.attacks.signatures import sparsefool as sparsefool
    from sigmazero.attacks.signatures import spgd as spgd
    from sigmazero.attacks.signatures import swap_search as swap_search
    from sigmazero.attacks.signatures import vfga as vfga
    from sigmazero.attacks.sparse_rs import SparseRS as SparseRS
    from sigmazero.attacks.sparsefool import SparseFool as SparseFool
    from sigmazero.attacks.spgd import SparsePGD as SparsePGD
    from sigmazero.attacks.swap.search import SwapSearch as SwapSearch
    from sigmazero.attacks.swap.sigma_swap import SigmaSwap as SigmaSwap
    from sigmazero.attacks.vfga import VFGA as VFGA
    from sigmazero.auto import SparseAutoAttack as SparseAutoAttack
    from sigmazero.auto import gate as gate
    from sigmazero.bench.evaluate import Evaluation as Evaluation
    from sigmazero.bench.evaluate import evaluate as evaluate
    from sigmazero.certifier.certify import Certificates as Certificates
    from sigmazero.certifier.certify import certify as certify
    from sigmazero.certifier.smoothing import smooth as smooth
    from sigmazero.core import losses as losses
    from sigmazero.core.attack import Attack as Attack
    from sigmazero.core.hardware import Hardware as Hardware
    from sigmazero.core.metrics import Outcome as Outcome
    from sigmazero.core.result import Result as Result
    from sigmazero.models.wrapping import limit as limit
    from sigmazero.models.wrapping import wrap as wrap
    from sigmazero.run.check import check as check
    from sigmazero.spaces.rules import Formula as Formula
    from sigmazero.spaces.rules import Rule as Rule
    from sigmazero.spaces.space import Space as Space
    from sigmazero.store.results import load_result as load_result

__version__ = "0.1.0"
# The module of each public name, in the groups of the reference. It is loaded when a name is used, so that
# `import sigmazero` loads neither torch nor numpy.
_MODULES = {
    # A function for each attack: arrays in, a tensor out.
    **dict.fromkeys(
        (
            *("bb", "corner", "ead", "fmn", "genetic", "label_swap", "pdpgd", "pgd_l0", "query_swap", "saliency"),
            *("sigma_swap", "sigma_zero", "sparse_rs", "sparsefool", "spgd", "swap_search", "vfga", "refine"),
        ),
        "attacks.functions",
    ),
    # A class for each attack: its parameters, and run.
    "BrendelBethge": "attacks.bb.bb",
    "Corner": "attacks.corner",
    "EAD": "attacks.ead",
    "FMN": "attacks.fmn",
    "Genetic": "attacks.blackbox.genetic",
    "LabelSwap": "attacks.blackbox.label_swap",
    "MinimumNorm": "attacks.budget",
    "PDPGD": "attacks.pdpgd",
    "PGDL0": "attacks.pgd_l0",
    "QuerySwap": "attacks.blackbox.query_swap",
    "Saliency": "attacks.saliency",
    "SigmaSwap": "attacks.swap.sigma_swap",
    "SigmaZero": "attacks.sigma_zero",
    "SparseFool": "attacks.sparsefool",
    "SparsePGD": "attacks.spgd",
    "SparseRS": "attacks.sparse_rs",
    "SwapSearch": "attacks.swap.search",
    "VFGA": "attacks.vfga",
    # Attacks by name, and of one's own.
    "ATTACKS": "attacks",
    "Attack": "core.attack",
    "foreign": "adapters.foreign",
    "get": "attacks",
    "losses": "core",
    "register": "attacks",
    # Run, and read the results.
    "Evaluation": "bench.evaluate",
    "Hardware": "core.hardware",
    "Outcome": "core.metrics",
    "Result": "core.result",
    "SparseAutoAttack": "auto",
    "check": "run.check",
    "evaluate": "bench.evaluate",
    "gate": "auto",
    "limit": "models.wrapping",
    "load_result": "store.results",
    "wrap": "models.wrapping",
    # Experimental: may still change.
    "Certificates": "certifier.certify",
    "Formula": "spaces.rules",
    "Rule": "spaces.rules",
    "Space": "spaces.space",
    "certify": "certifier.certify",
    "smooth": "certifier.smoothing",
}
__all__ = list(_MODULES)
# Packages to import from: sigmazero.models, sigmazero.data and so on. Those that are not named here are private.
_PARTS = ["adapters", "attacks", "auto", "bench", "board", "certifier", "data", "models", "report", "store", "testing"]


def __getattr__(name: str) -> object:
    """Load a name, or a package, when it is first used."""
    if name == "losses" or name in _PARTS:
        return import_module(f"sigmazero.{'core.' if name == 'losses' else ''}{name}")
    if name in _MODULES:
        return getattr(import_module(f"sigmazero.{_MODULES[name]}"), name)
    from difflib import get_close_matches

    # A word with a capital is meant for a class: SigmaZer0 is near to SigmaZero, not to sigma_zero.
    known = {each.lower(): each for each in sorted([*__all__, *_PARTS], reverse=name != name.lower())}
    near = get_close_matches(name.lower(), known, 1)
    hint = f"; did you mean {known[near[0]]!r}?" if near else ""
    raise AttributeError(f"module 'sigmazero' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    """Return the public names alone."""
    return sorted([*__all__, *_PARTS, "__version__"])
