"""The registry: one name per attack or preset, each a ready instance to run or to vary."""

import difflib
import inspect
import re
from dataclasses import replace
from typing import Any

from sigmazero.attacks.bb.bb import BrendelBethge
from sigmazero.attacks.blackbox.genetic import Genetic
from sigmazero.attacks.blackbox.label_swap import LabelSwap
from sigmazero.attacks.blackbox.query_swap import QuerySwap
from sigmazero.attacks.budget import MinimumNorm
from sigmazero.attacks.corner import Corner, CornerAt
from sigmazero.attacks.ead import EAD
from sigmazero.attacks.fmn import FMN
from sigmazero.attacks.pdpgd import PDPGD
from sigmazero.attacks.pgd_l0 import PGDL0
from sigmazero.attacks.saliency import Saliency
from sigmazero.attacks.sigma_zero import SigmaZero
from sigmazero.attacks.sparse_rs import InnerRS, SparseRS
from sigmazero.attacks.sparsefool import SparseFool
from sigmazero.attacks.spgd import SparsePGD
from sigmazero.attacks.swap.search import SwapSearch
from sigmazero.attacks.swap.sigma_swap import SigmaSwap
from sigmazero.attacks.vfga import VFGA
from sigmazero.core import model as models
from sigmazero.core.attack import Attack, no_parameter
from sigmazero.core.parameters import meaning

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        SigmaZero(),
        SigmaZero(name="sigma-zero-star", step_size=0.1, smoothing=1.0, threshold=0.1, threshold_rate=0.0015),
        SigmaSwap(),
        SwapSearch(),
        QuerySwap(),
        LabelSwap(),
        Corner(),
        CornerAt(),
        Saliency(),
        Genetic(),
        FMN(),
        PDPGD(),
        PDPGD(name="pdpgd-paper", proximal="l0-pixel", random_start=0.0),
        EAD(),
        EAD(name="ead-paper", rule="elastic-net"),
        PGDL0(),
        PGDL0(name="pgd-l0-paper", steps=1000, restarts=1, group="pixel"),
        SparseFool(),
        SparseFool(name="sparsefool-paper", classes=None, variant="torchattacks"),
        VFGA(),
        BrendelBethge(),
        BrendelBethge(name="bb-dataset", start_from="pool"),
        SparseRS(),
        InnerRS(),
        SparsePGD(name="spgd-projected", gradient="projected"),
        SparsePGD(),
        MinimumNorm(name="pgd-l0-min", attack=PGDL0(restarts=1)),
        MinimumNorm(name="sparse-rs-min", attack=SparseRS(), steps=2000),
        MinimumNorm(name="spgd-projected-min", attack=SparsePGD(name="spgd-projected", gradient="projected")),
        MinimumNorm(name="spgd-unprojected-min", attack=SparsePGD()),
    )
}
models.NEEDS.update({name: attack.needs for name, attack in ATTACKS.items()})
models.TAKES.update({name: attack.takes for name, attack in ATTACKS.items()})


SHORT = {"spgd": "spgd-unprojected"}  # names that stand for another one


def get(name: str, **parameters: Any) -> Attack:
    """Return an attack by name, with some of its parameters changed.

    Case, hyphens and underscores do not matter.

    >>> get("sigma-zero", steps=100).steps, get("Sigma_Zero").name
    (100, 'sigma-zero')
    """
    attack = ATTACKS[find(name)]
    for unknown in sorted(set(parameters) - set(attack.parameters())):
        raise no_parameter(type(attack), attack.name, unknown)
    return replace(attack, **parameters)


def find(name: str) -> str:
    """Return the name in the registry that a user means; refuse one that is none, with those near to it."""
    if not isinstance(name, str):
        raise TypeError(f"the name of an attack is a text, not a {type(name).__name__}")
    if name in ATTACKS:
        return name
    by_letters = {_letters(each): each for each in (*ATTACKS, *SHORT)}
    if (meant := by_letters.get(_letters(name))) is not None:
        return SHORT.get(meant, meant)
    near = difflib.get_close_matches(_letters(name), by_letters, n=3)
    hint = (
        f"did you mean {' or '.join(by_letters[each] for each in near)}?"
        if near
        else f"there are: {', '.join(ATTACKS)}"
    )
    if ":" in name:
        hint = f"attacks of other libraries are made by sz.foreign({name!r}), or named in a plan: attack = {name!r}"
    raise KeyError(f"no attack is called {name!r}; {hint}")


def _letters(name: str) -> str:
    """Return a name without what does not matter.

    >>> _letters("Sigma_Zero"), _letters("σ-zero")
    ('sigmazero', 'sigmazero')
    """
    return re.sub(r"[-_ ]", "", name.lower()).replace("σ", "sigma")


def register(attack: Attack) -> None:
    """Make an attack of your own known by its name, to `get` and to plans of this process."""
    if _letters(attack.name) in map(_letters, (*ATTACKS, *SHORT)):
        raise ValueError(f"there is an attack called {attack.name!r} already; give this one another name")
    ATTACKS[attack.name] = attack
    models.NEEDS[attack.name], models.TAKES[attack.name] = attack.needs, attack.takes


def idea(attack: Attack) -> str:
    """Return what an attack does: the first paragraph of its class's docstring."""
    return " ".join(inspect.cleandoc(type(attack).__doc__ or "").partition("\n\n")[0].split())


def parameter_rows(attack: Attack) -> list[dict[str, str]]:
    """Return a row for each parameter: its default and what it means."""
    return [
        {"parameter": name, "default": _shown(value), "meaning": meaning(type(attack), name)}
        for name, value in attack.parameters().items()
    ]


def _shown(value: object) -> str:
    """Return a default as one would write it; of an attack inside another what differs from the registry's.

    >>> _shown(ATTACKS["sparse-rs-min"].parameters()["attack"])
    'sparse-rs'
    """
    if not isinstance(value, Attack):
        return repr(value)
    usual = ATTACKS[value.name].parameters()
    differing = ", ".join(f"{key}={own!r}" for key, own in value.parameters().items() if own != usual[key])
    return f"{value.name}({differing})" if differing else value.name
