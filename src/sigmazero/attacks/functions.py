# mypy: disable-error-code="empty-body"
"""One function for each attack: tensors, arrays or lists in, a tensor out.

What stands here are declarations, for type checkers and editors. `function` makes each of them from the registry, with
the signature and the docstring that `help` shows. Presets of an attack have no function: `sz.get` makes them.
"""

import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, ParamSpec, Unpack

import torch
from torch import Tensor

from sigmazero.attacks.registry import ATTACKS, get, idea, no_parameter
from sigmazero.attacks.swap.search import SwapSearch
from sigmazero.attacks.swap.sigma_swap import SigmaSwap
from sigmazero.core.attack import Attack, RunOptions
from sigmazero.core.inputs import Array
from sigmazero.core.ops import per_row
from sigmazero.core.parameters import meaning

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
    rows = [(name, meaning(type(attack), name)) for name in attack.parameters()]
    wrapped = [textwrap.fill(f"  {name:<19} {text}", 110, subsequent_indent=" " * 22) for name, text in rows]
    others = ", ".join(f"{other} for {here}" for other, here in (ALIASES | attack.aliases).items())
    free, kind = attack.kind == "minimum-norm", type(attack).__name__
    text = TEXT.format(
        title=title,
        idea=textwrap.fill(idea(attack), 110),
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


class FunctionOptions(RunOptions, total=False):
    """The options of a run, and the names that adv-lib and the authors of σ-zero have for some of them."""

    num_steps: int
    max_iter: int
    norm: Literal[0]
    epsilon_budget: int | None
    verbose: bool


class SigmaZeroOptions(FunctionOptions, total=False):
    """The same with their names for parameters of σ-zero."""

    lr: float
    η_0: float
    sigma: float
    σ: float
    τ_0: float
    t: float
    τ_factor: float


class FMNOptions(FunctionOptions, total=False):
    """The same with adv-lib's names for parameters of FMN."""

    α_init: float
    γ_init: float


class VFGAOptions(FunctionOptions, total=False):
    """The same with adv-lib's name for a parameter of VFGA."""

    n_samples: int


@function(
    "sigma-zero",
    remark="Calls of the authors' function and of adv-lib's work unchanged. With as many steps the number of changes "
    "equals that of the authors' code, whose default is 100 steps. The step size of adv-lib lags by one step, so its "
    "numbers differ a little. It ignores targeted=True; this function does not.",
)
def sigma_zero(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    step_size: float = 1.0,
    smoothing: float = 0.001,
    threshold: float = 0.3,
    *,
    step_size_end: float = 0.1,
    beta2: float = 0.999,
    loss: str = "hinge",
    threshold_rate: float = 0.01,
    normalize: bool = True,
    grad_norm: float | Literal["inf"] = "inf",
    adaptive_threshold: bool = True,
    projection: bool = True,
    l0_term: bool = True,
    optimizer: Literal["adam", "sgd"] = "adam",
    order: Literal["released", "paper"] = "released",
    **options: Unpack[SigmaZeroOptions],
) -> Tensor:
    """Run σ-zero, which descends on a smooth count of the changes."""


@function("sigma-swap")
def sigma_swap(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    *,
    proposals: int = 5,
    radius: int = 1,
    sharpness: int = 2,
    choices: float = 5.0,
    trust: float = 10.0,
    heat: float = 0.2,
    momentum: float = 0.7,
    jitter: float = 0.25,
    queries: int | None = None,
    share: float = 0.2,
    warm_up: int = 50,
    first: Attack = SigmaSwap.first,
    warm_up_hard: int = 250,
    first_hard: Attack = SigmaSwap.first_hard,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run σ-swap: a short σ-zero, then exchanges of changed sites, within a limit of queries."""


@function("swap-search")
def swap_search(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 200,
    *,
    proposals: int = 5,
    radius: int = 1,
    sharpness: int = 2,
    choices: float = 5.0,
    trust: float = 10.0,
    heat: float = 0.2,
    momentum: float = 0.7,
    jitter: float = 0.25,
    queries: int | None = None,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run swap search, which makes points sparser by exchanging changed sites."""


@function("query-swap")
def query_swap(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 2000,
    *,
    proposals: int = 5,
    radius: int = 1,
    sharpness: int = 2,
    choices: float = 5.0,
    trust: float = 10.0,
    heat: float = 0.2,
    momentum: float = 0.7,
    jitter: float = 0.25,
    queries: int | None = None,
    share: float = 0.05,
    openings: int = 20,
    surrogate: object | None = None,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run query-swap, a swap search for models that give scores alone."""


@function("label-swap")
def label_swap(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 2000,
    *,
    radius: int = 1,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run label-swap, a swap search for models that give labels alone."""


@function("corner")
def corner(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    *,
    width: int = 32,
    pairs: int = 8,
    beam: int = 4,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Try every single change to an end of the box, then pairs, then go on greedily."""


@function("saliency")
def saliency(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    *,
    loss: str = "margin",
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Change one feature after the other, each time the one whose gradient promises most."""


@function("genetic")
def genetic(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 100,
    *,
    population: int = 50,
    parents: int = 25,
    mutations: float = 2.0,
    penalty: float = 1.0,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run a genetic search, for models that give scores alone."""


@function("fmn")
def fmn(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    *,
    step_size: float = 1.0,
    step_size_end: float = 0.01,
    budget_rate: float = 0.05,
    budget_rate_end: float = 0.02,
    loss: str = "margin",
    **options: Unpack[FMNOptions],
) -> Tensor:
    """Run the fast minimum-norm attack for the l0 norm."""


@function("pdpgd")
def pdpgd(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    *,
    proximal: Literal["l2/3", "l0", "l0-pixel"] = "l2/3",
    random_start: float = 0.25,
    step_size: float = 0.1,
    step_size_end: float = 0.01,
    dual_ratio: float = 0.01,
    dual_ratio_min: float = 1e-06,
    dual_step_size: float = 0.1,
    dual_step_size_end: float = 0.1,
    dual_momentum: float = 0.9,
    proximal_steps: int = 5,
    proximal_tolerance: float = 0.01,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run the primal-dual proximal gradient descent attack for the l0 norm."""


@function("ead")
def ead(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    *,
    rule: Literal["l1", "elastic-net"] = "l1",
    binary_search_steps: int = 9,
    initial_const: float = 0.001,
    regularization: float = 0.01,
    step_size: float = 0.01,
    confidence: float = 0.0,
    abort_early: bool = True,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run the elastic-net attack."""


@function("pgd-l0")
def pgd_l0(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 100,
    *,
    restarts: int = 5,
    step_size: float = 120000 / 255,
    loss: str = "cross-entropy",
    group: Literal["unit", "pixel"] = "unit",
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run PGD for the l0 norm, within a budget."""


@function("sparsefool")
def sparsefool(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 20,
    *,
    pull: float = 3.0,
    overshoot: float = 0.02,
    inner_steps: int = 50,
    classes: int | None = 10,
    variant: Literal["published", "torchattacks"] = "published",
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run SparseFool."""


@function("vfga")
def vfga(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    *,
    samples: int = 10,
    **options: Unpack[VFGAOptions],
) -> Tensor:
    """Run the voting folded Gaussian attack."""


@function("bb")
def bb(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 1000,
    *,
    overshoot: float = 1.1,
    radius: float = 0.001,
    radius_batch: int = 32,
    radius_decay: float = 0.5,
    radius_decays: int = 20,
    momentum: float = 0.8,
    halvings: int = 10,
    tolerance: float = 0.0001,
    start_from: Literal["noise", "pool"] = "noise",
    directions: int = 1000,
    blends: int = 1000,
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run the attack of Brendel and Bethge for the l0 norm."""


@function("sparse-rs")
def sparse_rs(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 10000,
    *,
    initial_share: float = 0.8,
    loss: str = "margin",
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run Sparse-RS, a random search within a budget."""


@function("spgd-unprojected")
def spgd(
    model: object,
    inputs: Array,
    labels: Array,
    steps: int = 10000,
    *,
    gradient: Literal["projected", "unprojected"] = "unprojected",
    step_size: float = 0.25,
    mask_step_size: float = 0.25,
    patience: int = 3,
    patience_counts: Literal["consecutive", "total"] = "consecutive",
    loss: str = "cross-entropy",
    **options: Unpack[FunctionOptions],
) -> Tensor:
    """Run sparse PGD, within a budget."""


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
