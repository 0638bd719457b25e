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

FUNCTIONS = (
    *("sigma_zero", "sigma_swap", "swap_search", "query_swap", "label_swap", "corner", "saliency", "genetic", "fmn"),
    *("pdpgd", "ead", "pgd_l0", "sparsefool", "vfga", "bb", "sparse_rs", "spgd"),
)
PLACES = {"sigma_zero": ("steps", "step_size", "smoothing", "threshold")}  # given by position too; else steps alone
ARRAYS = ("model", "inputs", "labels")
RUN = {
    name: each.replace(annotation=Parameter.empty)  # a signature that can be read
    for name, each in inspect.signature(Attack.run).parameters.items()
    if each.kind is each.KEYWORD_ONLY
}
TEXT = """Run {name} and return a tensor like the inputs.

{idea}

    adv = sz.{function}(model, inputs, labels{example})

Each sample gets the adversarial point with the fewest changes that was found{within}, verified on the model, or else \
the clean input. sz.{kind}(steps=...)(model, inputs, labels) returns a Result, which tells more about each sample.

Arguments
  model               a callable from inputs to logits, or what sz.wrap understands
  inputs              tensor, NumPy array or list, one row per sample
  labels              the true classes, or with targeted=True the classes to reach
{meanings}
  {run}: see help(sz.Attack.run)

Names of other libraries work too: {others}.
Paper: {paper}
"""


def function(name: str) -> Callable[..., Tensor]:
    """Make the function of an attack, with its whole signature and docstring."""
    attack = ATTACKS[find(name)]
    parameters = signature(name)
    places = [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]

    def call(*args: Any, **options: Any) -> Tensor:
        return attacked(attack, name, our_names(attack, name, places, args, options))

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


def our_names(
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
    rows = [(name, meaning(type(attack), name).replace("`", "")) for name in attack.parameters()]
    within = attack.kind == "budget"
    text = TEXT.format(
        name=attack.name,
        idea=idea(attack),
        function=function,
        example=", budget=24" if within else "",
        within=" within the budget" if within else "",
        kind=type(attack).__name__,
        meanings="\n".join(f"  {name:<19} {text}" for name, text in rows),
        run=", ".join(RUN),
        others=", ".join(f"{other} for {here}" for other, here in (ALIASES | attack.aliases).items()),
        paper=attack.paper,
    )
    lines, indent = text.splitlines(), " " * 22
    return "\n".join(textwrap.fill(line, 110, subsequent_indent=indent[: 22 * (line[:2] == "  ")]) for line in lines)


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
