"""One function for each attack: tensors, arrays or lists in, a tensor out.

Each is made here from the registry, with the signature and the docstring that `help` shows. Type checkers and editors
read signatures.pyi, which `python -m scripts.signatures` writes. Presets of an attack have no function: `sz.get` makes
them.
"""

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, Signature
from typing import Any, get_type_hints

import torch
from torch import Tensor

from sigmazero.attacks.registry import ATTACKS, find, get, idea
from sigmazero.attacks.swap.search import SwapSearch
from sigmazero.core.attack import ALIASES, Attack, no_parameter
from sigmazero.core.inputs import Array
from sigmazero.core.ops import per_row
from sigmazero.core.parameters import meaning

FUNCTIONS = {
    "sigma_zero": "Run σ-zero, which descends on a smooth count of the changes.",
    "sigma_swap": "Run σ-swap: a short σ-zero, then exchanges of changed sites, within a limit of queries.",
    "swap_search": "Run swap search, which makes points sparser by exchanging changed sites.",
    "query_swap": "Run query-swap, a swap search for models that give scores alone.",
    "label_swap": "Run label-swap, a swap search for models that give labels alone.",
    "corner": "Try every single change to an end of the box, then pairs, then go on greedily.",
    "saliency": "Change one feature after the other, each time the one whose gradient promises most.",
    "genetic": "Run a genetic search, for models that give scores alone.",
    "fmn": "Run the fast minimum-norm attack for the l0 norm.",
    "pdpgd": "Run the primal-dual proximal gradient descent attack for the l0 norm.",
    "ead": "Run the elastic-net attack.",
    "pgd_l0": "Run PGD for the l0 norm, within a budget.",
    "sparsefool": "Run SparseFool.",
    "vfga": "Run the voting folded Gaussian attack.",
    "bb": "Run the attack of Brendel and Bethge for the l0 norm.",
    "sparse_rs": "Run Sparse-RS, a random search within a budget.",
    "spgd": "Run sparse PGD, within a budget.",
}
PLACES = {"sigma_zero": ("steps", "step_size", "smoothing", "threshold")}  # given by position too; else steps alone
REMARKS = {
    "sigma_zero": "Calls written for the authors' function or for adv-lib's work unchanged. In the same number of "
    "steps this function finds points with as many changes as the authors' code, whose default is 100 steps. In "
    "adv-lib the step size lags by one step, so its numbers differ a little; it also ignores targeted=True, and this "
    "function does not.\n",
}
ARRAYS = ("model", "inputs", "labels")
RUN = {
    name: each.replace(annotation=Parameter.empty)  # a signature that can be read
    for name, each in inspect.signature(Attack.run).parameters.items()
    if each.kind is each.KEYWORD_ONLY
}
RETURNED = (
    "Return a tensor like the inputs: for each sample the adversarial point with the fewest changes that was "
    "found{within}, or the clean input where there is none. Each point was verified on the model itself. "
    "sz.{kind}(steps=...)(model, inputs, labels) returns a Result, which tells more about each sample."
)
EXPLAINED = ("targeted", "bounds", "unit", "mask", "budget", "seed")
TEXT = """{title}

{idea}

    adv = sz.{function}(model, inputs, labels{example})

{returned}

Arguments
  model               a callable from inputs to logits, or what sz.wrap understands
  inputs              tensor, NumPy array or list, one row per sample
  labels              the true classes, or with targeted=True the classes to reach
{meanings}

Options of every attack (help(sz.Attack.run) explains all)
  targeted            labels are the classes to reach
  bounds              lowest and highest legal value; (0, 1) unless given
  unit                count changed "feature"s, or "pixel"s with all their channels
  mask                True where a feature may change
  budget              stop a sample at the first point with at most this many changes
  seed                random numbers depend on it and on the sample, not on the batch
  also                {run}

{remark}Names of other libraries work too: {others}.{paper}
"""


def function(name: str) -> Callable[..., Tensor]:
    """Make the function of an attack, with its whole signature and docstring."""
    attack = ATTACKS[find(name)]
    parameters = signature(name)
    places = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]

    def call(*args: Any, **options: Any) -> Tensor:
        return attacked(attack, name, named(attack, name, places, args, options))

    call.__name__ = call.__qualname__ = name
    call.__signature__ = Signature([*parameters, *RUN.values()], return_annotation=Tensor)  # type: ignore[attr-defined]
    call.__doc__ = _explained(attack, name)
    return call


def signature(name: str) -> list[Parameter]:
    """Return the arguments of an attack's function, without the options of a run."""
    attack = ATTACKS[find(name)]
    own, hints, places = attack.parameters(), get_type_hints(type(attack)), PLACES.get(name, ("steps",))
    kinds = dict.fromkeys(places, Parameter.POSITIONAL_OR_KEYWORD)
    return [
        *(Parameter(each, Parameter.POSITIONAL_OR_KEYWORD) for each in ARRAYS),
        *(
            Parameter(each, kinds.get(each, Parameter.KEYWORD_ONLY), default=own[each], annotation=hints[each])
            for each in dict.fromkeys([*places, *own])
        ),
    ]


def named(
    attack: Attack, title: str, places: Sequence[str], args: Sequence[Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all arguments of a call by the names that they have here."""
    if len(args) > len(places):
        raise TypeError(f"{title}() takes {len(places)} arguments without a name and got {len(args)}; name the others")
    given: dict[str, Any] = dict(zip(places, args, strict=False))
    known = ALIASES | attack.aliases
    for name, value in options.items():
        here = known.get(name, name)
        if value is None and here != name:
            continue  # in another library's call it stands for the default
        if here in given:
            names = ", ".join(repr(other) for other, meant in known.items() if meant == here)
            raise TypeError(f"{title}() got {here!r} twice" + (f"; it is also called {names}" if names else ""))
        given[here] = value
    targets = given.pop("targets", None)  # the classes to reach, beside the true ones: as AttackBench calls an attack
    if targets is not None and given.get("targeted"):
        given["labels"] = targets
    if given.pop("norm", 0) != 0:
        raise ValueError(f"{title}() counts changes, so the norm is 0; it got norm={options['norm']!r}")
    return given


def attacked(attack: Attack, title: str, given: dict[str, Any]) -> Tensor:
    """Run an attack and return its points within the budget, clean inputs where there is none."""
    if missing := [name for name in ARRAYS if name not in given]:
        raise TypeError(f"{title}() misses {', '.join(missing)}; call {title}(model, inputs, labels)")
    own = attack.parameters()
    for unknown in sorted(given.keys() - own.keys() - RUN.keys() - set(ARRAYS)):
        raise no_parameter(type(attack), title, unknown, RUN)
    chosen = replace(attack, **{name: value for name, value in given.items() if name in own})
    how = {name: value for name, value in given.items() if name in RUN}
    result = chosen.run(given["model"], given["inputs"], given["labels"], **how)
    assert result.x is not None  # a run keeps its inputs
    return torch.where(per_row(result.success, result.x), result.x_adv, result.x.detach())


def _explained(attack: Attack, function: str) -> str:
    """Return the docstring of an attack's function."""
    rows = [(name, meaning(type(attack), name)) for name in attack.parameters()]
    wrapped = [textwrap.fill(f"  {name:<19} {text}", 110, subsequent_indent=" " * 22) for name, text in rows]
    others = ", ".join(f"{other} for {here}" for other, here in (ALIASES | attack.aliases).items())
    free, kind = attack.kind == "minimum-norm", type(attack).__name__
    text = TEXT.format(
        title=FUNCTIONS[function],
        idea=textwrap.fill(idea(attack), 110),
        returned=textwrap.fill(RETURNED.format(within="" if free else " within the budget", kind=kind), 110),
        meanings="\n".join(wrapped).replace("`", ""),
        function=function,
        example="" if free else ", budget=24",
        run=", ".join(name for name in RUN if name not in EXPLAINED),
        remark=REMARKS.get(function, ""),
        others=others,
        paper=f"\nPaper: {attack.paper}" if attack.paper.startswith("http") else "",
    )
    lines = [textwrap.fill(line, 110) if len(line) > 112 else line for line in text.splitlines()]
    return "\n".join(lines)


def refine(model: object, x: Array, y: Array, x_adv: Array, queries: int = 1000, **options: Any) -> Tensor:
    """Make adversarial inputs sparser, wherever they come from; one that cannot be made sparser comes back as it was.

    `queries` is the most that a sample may ask of the model. `options` are those of `swap-search` and of Attack.run.
    Where a point of x_adv does not reach the goal, the search begins at the clean input.
    """
    how = {k: options.pop(k) for k in RUN if k in options}
    a_step = options.get("proposals", SwapSearch.proposals) + 1
    attack = get("swap-search", steps=max(1, (queries - 5) // a_step), queries=queries, **options)
    result = attack.run(model, x, y, start=x_adv, **how)
    given = torch.as_tensor(x_adv, dtype=result.x_adv.dtype, device=result.x_adv.device)
    return torch.where(per_row(result.found, given), result.x_adv, given)


globals().update({name: function(name) for name in FUNCTIONS})
