"""Make the function of an attack from its declaration: arrays in, a tensor out."""

import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ParamSpec

import torch
from torch import Tensor

from sigmazero.attacks import ATTACKS, no_parameter, words
from sigmazero.core.attack import Attack
from sigmazero.core.ops import per_row

P = ParamSpec("P")
ARRAYS = ("model", "inputs", "labels")
RUN = {
    name: each.replace(annotation=inspect.Parameter.empty)  # a signature that can be read
    for name, each in inspect.signature(Attack.run).parameters.items()
    if each.kind is each.KEYWORD_ONLY
}
# What adv-lib and the authors of σ-zero call what every attack has.
ALIASES = {"num_steps": "steps", "max_iter": "steps", "epsilon_budget": "budget", "verbose": "progress"}
RETURNED = (
    "Return a tensor like the inputs: for each sample the adversarial point with the fewest changes that was "
    "found{within}, or the clean input where there is none. Each point was verified on the model itself. To learn "
    "more about each sample, call sz.{kind}(steps=...)(model, inputs, labels): it returns a Result."
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

{remark}Other libraries' names are understood: {others}.{paper}
"""


def function(name: str, remark: str = "") -> Callable[[Callable[P, Tensor]], Callable[P, Tensor]]:
    """Turn a declaration into the function of a registered attack, with its whole signature and docstring."""
    attack = ATTACKS[name]

    def make(declared: Callable[P, Tensor]) -> Callable[P, Tensor]:
        listed = [each for each in inspect.signature(declared).parameters.values() if each.kind is not each.VAR_KEYWORD]
        own = [each.replace(annotation=each.empty) if each.name in ARRAYS else each for each in listed]
        places = [each.name for each in own if each.kind is each.POSITIONAL_OR_KEYWORD]

        @functools.wraps(declared)
        def call(*args: P.args, **options: P.kwargs) -> Tensor:
            return attacked(attack, declared.__name__, named(attack, declared.__name__, places, args, options))

        del call.__wrapped__
        call.__signature__ = inspect.Signature([*own, *RUN.values()], return_annotation=Tensor)  # type: ignore[attr-defined]
        call.__doc__ = _explained(attack, declared.__name__, inspect.getdoc(declared) or "", remark)
        return call

    return make


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
        if here in given:
            names = ", ".join(repr(other) for other, meant in known.items() if meant == here)
            raise TypeError(f"{title}() got {here!r} twice" + (f"; it is also called {names}" if names else ""))
        given[here] = value
    if given.pop("norm", 0) != 0:
        raise ValueError(f"{title}() counts changes, so the norm is 0; it got norm={options['norm']!r}")
    return given


def attacked(attack: Attack, title: str, given: dict[str, Any]) -> Tensor:
    """Run an attack and return its points within the budget, clean inputs where there is none."""
    if missing := [name for name in ARRAYS if name not in given]:
        raise TypeError(f"{title}() misses {', '.join(missing)}; call {title}(model, inputs, labels)")
    own = attack.parameters()
    for unknown in sorted(given.keys() - own.keys() - RUN.keys() - set(ARRAYS)):
        raise TypeError(no_parameter(attack, unknown))
    chosen = replace(attack, **{name: value for name, value in given.items() if name in own})
    how = {name: value for name, value in given.items() if name in RUN}
    result = chosen.run(given["model"], given["inputs"], given["labels"], **how)
    assert result.x is not None  # a run keeps its inputs
    return torch.where(per_row(result.success, result.x), result.x_adv, result.x.detach())


def _explained(attack: Attack, function: str, title: str, remark: str) -> str:
    """Return the docstring of an attack's function."""
    rows = [(name, words.meaning(attack, name)) for name in attack.parameters()]
    wrapped = [textwrap.fill(f"  {name:<19} {text}", 110, subsequent_indent=" " * 22) for name, text in rows]
    others = ", ".join(f"{other} for {here}" for other, here in (ALIASES | attack.aliases).items())
    free, kind = attack.kind == "minimum-norm", type(attack).__name__
    text = TEXT.format(
        title=title,
        idea=textwrap.fill(words.idea(attack), 110),
        returned=textwrap.fill(RETURNED.format(within="" if free else " within the budget", kind=kind), 110),
        meanings="\n".join(wrapped).replace("`", ""),
        function=function,
        example="" if free else ", budget=24",
        run=", ".join(name for name in RUN if name not in EXPLAINED),
        remark=f"{remark}\n" if remark else "",
        others=others,
        paper=f"\nPaper: {attack.paper}" if attack.paper.startswith("http") else "",
    )
    lines = [textwrap.fill(line, 110) if len(line) > 112 else line for line in text.splitlines()]
    return "\n".join(lines)
