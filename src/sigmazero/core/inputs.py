"""From what a user hands in to a Problem: every wrong value is named here, before the first query."""

import difflib
import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, get_args

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.domain import Box, Domain, Unit, enclosed
from sigmazero.core.goal import LeaveClass, ReachClass
from sigmazero.core.layout import Order, channels_first, check_layout, looks_last
from sigmazero.core.problem import Problem, whole
from sigmazero.core.warn import warn_caller

if TYPE_CHECKING:
    from sigmazero.spaces.space import Space

Bound = float | Tensor
Bounds = tuple[Bound, Bound]
SPREAD = 10.0  # normalised pictures reach about ±3, those of narrow channels more


def make_problem(
    x: Tensor,
    y: Tensor,
    *,
    targeted: bool = False,
    bounds: Bounds = (0.0, 1.0),
    unit: Unit = "feature",
    layout: Order | None = None,
    mask: Tensor | None = None,
    space: "Space | None" = None,
    budget: int | None = None,
    seed: int = 0,
    ids: Tensor | Sequence[int] | None = None,
    start: Tensor | None = None,
    pool: Tensor | None = None,
    margin: float = 0.0,
) -> Problem:
    """Check everything that can be checked without the model and make the question."""
    _check_numbers(seed, budget)
    check_inputs(x, getattr(space, "names", None))
    check_labels(x, y)
    _check_unit(x, unit, layout)
    if layout == "NHWC":
        bounds = _turned_bounds(bounds, x.ndim, space)
        x, mask, start, pool = (channels_first(value, x.ndim) for value in (x, mask, start, pool))
    check_margin(margin)
    # A clone: the caller's tensor is never written to, and one made in inference mode cannot carry gradients. Whatever
    # the caller's order in memory, it has one of its own: sums round by that order.
    x = x.detach().clone(memory_format=torch.contiguous_format)
    free = None if mask is None else _free(mask, x)
    if space is None:
        lower, upper = _ends(bounds, x)
        lower, upper, free, per_sample = enclosed(x, lower, upper, free)
        domain: Domain = Box.make(x, lower, upper, free, unit, per_sample)
    else:
        domain = _declared(space, bounds, x, unit, free)
    goal = (ReachClass if targeted else LeaveClass)(
        y.detach().to(device=x.device, dtype=torch.int64).clone(), float(margin)
    )
    return Problem(
        goal=goal,
        domain=domain,
        ids=_ids(ids, x),
        budget=None if budget is None else int(budget),
        seed=int(seed),
        start=None if start is None else _like(start, "start", x, x.shape),
        pool=x if pool is None else _like(pool, "pool", x, (len(pool), *x.shape[1:])),
    )


def _check_numbers(seed: object, budget: int | None) -> None:
    if not whole(seed):
        raise ValueError(f"seed={seed!r} must be a whole number")
    if budget is not None and not (whole(budget) and budget >= 0):
        raise ValueError(f"budget={budget!r} must be a whole number of changes, 0 or more (None for no budget)")


def _check_unit(x: Tensor, unit: Unit, layout: Order | None) -> None:
    """Refuse to count pixels where there are none, and doubt channels that look to come last."""
    if unit not in get_args(Unit):
        raise ValueError(f"unit={unit!r} is not one of {', '.join(map(repr, get_args(Unit)))}")
    check_layout(layout, tuple(x.shape))
    if unit == "pixel" and x.ndim < 3:
        raise ValueError(f"unit='pixel' is for images; inputs of shape {tuple(x.shape)} have features: unit='feature'")
    if unit == "pixel" and layout is None and looks_last(tuple(x.shape)):
        warn_caller(
            f"inputs of shape {tuple(x.shape)} look like images with the channels last, and pixels are counted with "
            "channels in dimension 1; say layout='NHWC', or layout='NCHW' if they are right"
        )


def _turned_bounds(bounds: Bounds, samples: int, space: "Space | None") -> Bounds:
    """Bounds of images that have the channels last, with the channels first."""
    if space is not None:
        raise ValueError("layout='NHWC' and space are both given; say in the space which features count together")
    lower, upper = (channels_first(bound, samples) for bound in _pair(bounds))
    return lower, upper


def check_margin(margin: object) -> None:
    """Refuse what no success can hold by."""
    if isinstance(margin, bool) or not isinstance(margin, Real) or not 0 <= float(margin) < math.inf:
        raise ValueError(f"margin={margin!r} must be a finite number, 0 or more: the least lead in the logits")


def check_inputs(x: Tensor, names: Sequence[str] | None = None) -> None:
    """Refuse inputs that no attack could change and count; `names` are what errors call their features."""
    if not isinstance(x, Tensor):
        raise TypeError(f"inputs are a {type(x).__name__}, not a torch tensor; {_tensors_of(x)}")
    if x.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(f"inputs have dtype {x.dtype}, in which l0 cannot be counted exactly; use x.float()")
    if x.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"inputs have dtype {x.dtype}; for 8-bit images use x.float() / 255")
    if x.ndim < 2:
        raise ValueError(f"inputs have shape {tuple(x.shape)}; the first dimension must be the batch: (N, ...)")
    if x.shape[1:].numel() == 0:
        raise ValueError(f"inputs have shape {tuple(x.shape)}: a sample has no features")
    if x.is_meta:
        raise ValueError("inputs are on the meta device, which holds no values; load them on another one")
    finite = x.isfinite().flatten(1)
    if not finite.all():
        row, k = (int(v) for v in (~finite).nonzero()[0])
        label = repr(names[k]) if names is not None and k < len(names) else str(k)
        raise ValueError(f"input row {row} holds NaN or Inf in feature {label}; clean the data first")


def _tensors_of(x: object) -> str:
    """What to do with inputs that are no tensor."""
    numbers = hasattr(x, "__array__") or isinstance(x, list | tuple)
    return "use torch.as_tensor(...)" if numbers else "give its tensors, or the whole of it to sz.evaluate"


def check_labels(x: Tensor, y: Tensor) -> None:
    """Refuse labels that are not one class index per input."""
    if not isinstance(y, Tensor):
        raise TypeError(f"labels are a {type(y).__name__}, not a torch tensor; use torch.as_tensor(...)")
    if y.dtype.is_floating_point or y.dtype.is_complex or y.dtype == torch.bool:
        fix = "y.argmax(1)" if y.ndim == 2 else "y.long()"
        raise TypeError(f"labels have dtype {y.dtype}; give class indices as integers, {fix}")
    if y.shape != x.shape[:1]:
        raise ValueError(f"labels have shape {tuple(y.shape)}, expected ({len(x)},): one class index per input")
    if (y < 0).any():
        raise ValueError(f"label {int(y.min())} in row {int(y.argmin())} is negative; classes count from 0")


def _ends(bounds: Bounds, x: Tensor) -> tuple[Tensor, Tensor]:
    lower, upper = (_bound(b, name, x) for b, name in zip(_pair(bounds), ("lower", "upper"), strict=True))
    _check_box(x, lower, upper)
    return lower, upper


def _declared(space: "Space", bounds: Bounds, x: Tensor, unit: Unit, free: Tensor | None) -> Domain:
    """Make the domain of a space; whatever has a method `domain` is one."""
    if not callable(getattr(space, "domain", None)):
        raise TypeError(f"space is a {type(space).__name__}; make one with sigmazero.Space(...)")
    if isinstance(bounds, tuple) and all(isinstance(b, Real) for b in bounds) and bounds == (0.0, 1.0):
        return space.domain(x, unit, free)
    raise ValueError("bounds and space are both given; say the bounds in the space: Space(lower=..., upper=...)")


def _free(mask: Tensor, x: Tensor) -> Tensor:
    free = _one_or_all(torch.as_tensor(mask, device=x.device), "mask", x)
    if free.dtype != torch.bool:
        raise TypeError(f"mask has dtype {free.dtype}; give booleans, True where a feature may change")
    return free


def _pair(bounds: Bounds) -> Bounds:
    try:
        lower, upper = bounds
    except (TypeError, ValueError):
        raise ValueError(f"bounds={bounds!r} must be a pair (lower, upper), for example (0, 1)") from None
    return lower, upper


def _one_or_all(value: Tensor, name: str, x: Tensor) -> Tensor:
    """Give a tensor the rank of x, with one row for all samples or one each."""
    shape = tuple(value.shape)
    try:
        return value.expand(x.shape) if value.ndim == x.ndim else value.expand(x.shape[1:])[None]
    except RuntimeError:
        raise ValueError(
            f"{name} of shape {shape} fits neither one sample {tuple(x.shape[1:])} nor all {tuple(x.shape)}"
        ) from None


def _bound(value: Bound, name: str, x: Tensor) -> Tensor:
    bound = torch.as_tensor(value, dtype=x.dtype, device=x.device)
    if bound.isnan().any():
        raise ValueError(f"the {name} bound holds NaN")
    # A scalar stays a scalar in memory: one element that broadcasts.
    return bound.reshape([1] * x.ndim) if bound.ndim == 0 else _one_or_all(bound, f"the {name} bound", x)


def _like(value: Tensor, name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}, not a torch tensor; use torch.as_tensor(...)")
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(value.shape)}, expected {tuple(shape)}")
    finite = value.isfinite().flatten(1).all(1)
    if not finite.all():
        raise ValueError(f"{name} row {int((~finite).nonzero()[0])} holds NaN or Inf")
    return value.detach().to(x).clone(memory_format=torch.contiguous_format)


def _check_box(x: Tensor, lower: Tensor, upper: Tensor) -> None:
    if (lower > upper).any():
        raise ValueError("the lower bound lies above the upper bound for some feature; swap them")
    outside = ((x < lower) | (x > upper)).flatten(1).any(1)
    if outside.any():
        row = int(outside.nonzero()[0])
        span = f"[{float(x[row].min()):g}, {float(x[row].max()):g}]"
        raise ValueError(
            f"input row {row} spans {span}, outside the bounds [{float(lower.min()):g}, {float(upper.max()):g}]; "
            f"{_suspected(x, lower, upper)}"
        )


def _suspected(x: Tensor, lower: Tensor, upper: Tensor) -> str:
    """What inputs outside the box most likely are, and what to do: pictures of 8 bits, or values normalised already."""
    least, most = float(x.min()), float(x.max())
    if x.ndim > 2 and bool((lower == 0).all()) and bool((upper == 1).all()):
        if least >= 0 and 2 < most <= 255:
            return "they look like 8-bit pictures: divide them by 255, or pass bounds=(0, 255)"
        if -SPREAD <= least < 0 < most <= SPREAD:
            return (
                "they look normalised: give plain values in [0, 1], and put the normalisation in front of the model "
                "(sigmazero.models.Normalize), or pass bounds=(lower, upper)"
            )
    return "scale the inputs or pass bounds=(lower, upper)"


def _ids(ids: Tensor | Sequence[int] | None, x: Tensor) -> Tensor:
    if ids is None:
        return torch.arange(len(x), device=x.device)
    array = torch.as_tensor(np.asarray(ids) if not isinstance(ids, Tensor) else ids, device=x.device)
    if array.shape != x.shape[:1] or array.dtype.is_floating_point:
        raise ValueError(f"ids have shape {tuple(array.shape)} and dtype {array.dtype}; give {len(x)} integers")
    return array.to(torch.int64)


def hint(word: str, known: Iterable[str]) -> str:
    """The names near to a wrong one, or all there are.

    >>> hint("bugdets", ["budgets", "unit"]), hint("x", ["budgets", "unit"])
    ("did you mean 'budgets'? allowed: budgets, unit", 'allowed: budgets, unit')
    """
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"allowed: {', '.join(names) or 'none'}"
