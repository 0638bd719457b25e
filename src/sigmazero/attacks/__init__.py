"""The registry: one name per attack or preset, each a ready instance to run or to vary."""

import difflib
from dataclasses import replace
from typing import Any

from sigmazero.attacks._swap import SwapSearch
from sigmazero.attacks.bb import BrendelBethge
from sigmazero.attacks.corner import Corner, CornerAt
from sigmazero.attacks.ead import EAD
from sigmazero.attacks.fmn import FMN
from sigmazero.attacks.genetic import Genetic
from sigmazero.attacks.label_swap import LabelSwap
from sigmazero.attacks.minimum import MinimumNorm
from sigmazero.attacks.pdpgd import PDPGD
from sigmazero.attacks.pgd_l0 import PGDL0
from sigmazero.attacks.query_swap import QuerySwap
from sigmazero.attacks.saliency import Saliency
from sigmazero.attacks.sigma_swap import SigmaSwap
from sigmazero.attacks.sigma_zero import SigmaZero
from sigmazero.attacks.sparse_rs import InnerRS, SparseRS
from sigmazero.attacks.sparsefool import SparseFool
from sigmazero.attacks.spgd import SparsePGD
from sigmazero.attacks.vfga import VFGA
from sigmazero.core import ability
from sigmazero.core.attack import Attack

__all__ = ["ATTACKS", "get", "register"]

ATTACKS: dict[str, Attack] = {
    attack.name: attack
    for attack in (
        SigmaZero(),
        SigmaZero(name="sigma-zero-star", step_size=0.1, smoothing=1.0, threshold=0.1, threshold_rate=0.0015),
        SigmaSwap(first=SigmaZero(step_size_end=1.0, beta2=0.99), first_hard=SigmaZero()),
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
ability.NEEDS.update({name: attack.needs for name, attack in ATTACKS.items()})
ability.TAKES.update({name: attack.takes for name, attack in ATTACKS.items()})


def get(name: str, **parameters: Any) -> Attack:
    """An attack by name, with some of its parameters changed.

    >>> get("sigma-zero", steps=100).steps
    100
    """
    if name not in ATTACKS:
        near = difflib.get_close_matches(name, ATTACKS, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(ATTACKS)}"
        if ":" in name:
            hint = f"attacks of other libraries are made by sz.foreign({name!r}), or named in a plan: attack = {name!r}"
        raise KeyError(f"no attack is called {name!r}; {hint}")
    attack = ATTACKS[name]
    known = attack.parameters()
    for unknown in sorted(set(parameters) - set(known)):
        raise TypeError(renamed(attack, unknown) or f"{name} has no parameter {unknown!r}; it has: {', '.join(known)}")
    return replace(attack, **parameters)


def renamed(attack: Attack, parameter: str) -> str | None:
    """What to say of a parameter's old name; None if it is none.

    >>> renamed(get("sigma-zero"), "memory")
    "sigma-zero: parameter 'memory' is now called 'beta2'"
    """
    if parameter not in attack.renamed:
        return None
    name, _, remark = attack.renamed[parameter].partition(" ")
    return f"{attack.name}: parameter {parameter!r} is now called {name!r} {remark}".rstrip()


def register(attack: Attack) -> None:
    """Make an attack of your own known by its name, to `get` and to plans of this process."""
    if attack.name in ATTACKS:
        raise ValueError(f"there is an attack called {attack.name!r} already; give this one another name")
    ATTACKS[attack.name] = attack
    ability.NEEDS[attack.name], ability.TAKES[attack.name] = attack.needs, attack.takes
