"""Check what a user passes and make a Problem of it: wrong values are refused before the first query."""

import difflib
import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core.domain import Domain, Unit, enclosed, make_box
from sigmazero.core.goal import LeaveClass, ReachClass
from sigmazero.core.messages import warn_caller
from sigmazero.core.model import looks_last
from sigmazero.core.problem import Problem, whole

if TYPE_CHECKING:
    from sigmazero.spaces.space import Space

Array = Tensor | NDArray[Any] | Sequence[Any]
Bound = float | Tensor
Bounds = tuple[Bound, Bound]
SPREAD = 10.0  # normalised pictures reach about ±3, those of narrow channels more


def as_inputs(x: Array, model: object, bounds: Bounds = (0.0, 1.0)) -> Tensor:
    """Return inputs as a tensor where they are; arrays and lists get the number format of the model.

    8-bit values are not scaled where the bounds differ from 0 and 1.

    >>> as_inputs([[0, 1], [1, 0]], torch.nn.Linear(2, 2)).dtype
    torch.float32
    """
    own = next((each.dtype for each in _tensors(model) if each.dtype in (torch.float32, torch.float64)), torch.float32)
    numbers = isinstance(bounds, Sequence) and not any(isinstance(end, Tensor) for end in bounds)
    scaled = numbers and tuple(bounds) == (0, 1)
    if isinstance(x, Tensor):
        return x.to(own) if x.dtype == torch.uint8 and not scaled else x
    values = as_array(x, "inputs")
    if values.dtype == np.uint8 and values.ndim > 2 and scaled:
        raise TypeError("inputs have dtype uint8; for 8-bit images use x.astype('float32') / 255")
    if values.dtype.kind not in "fiub":
        raise TypeError(f"inputs have dtype {values.dtype}; give numbers")
    return torch.as_tensor(values, device="cpu").to(own)


def as_array(value: object, name: str) -> NDArray[Any]:
    """Return an array, a list of numbers or a list of tensors as one NumPy array that owns its numbers."""
    if not (hasattr(value, "__array__") or isinstance(value, list | tuple)):
        raise TypeError(
            f"{name} are a {type(value).__name__}; give a tensor, a NumPy array or a list, "
            "or the whole data set to sz.evaluate"
        )
    try:
        return np.array(value)
    except ValueError:
        raise ValueError(f"{name} are a list of rows that differ in length; give each row as many numbers") from None


def follow(x: Tensor, model: object) -> Tensor:
    """Return inputs on the model's device; unmoved if the model has no device or several."""
    devices = {each.device for each in _tensors(model)}
    movable = len(devices) == 1 and not x.is_meta and next(iter(devices)).type != "meta"
    return x.to(devices.pop()) if movable else x


def _tensors(model: object) -> Iterable[Tensor]:
    """Return the tensors that a model holds."""
    return (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()


def make_problem(
    x: Tensor,
    y: Array,
    *,
    targeted: bool = False,
    bounds: Bounds = (0.0, 1.0),
    unit: Unit = "feature",
    mask: Array | None = None,
    space: "Space | None" = None,
    budget: int | None = None,
    seed: int = 0,
    ids: Array | None = None,
    start: Array | None = None,
    pool: Array | None = None,
    margin: float = 0.0,
) -> Problem:
    """Check everything that can be checked without the model, and make the problem."""
    if not whole(seed):
        raise ValueError(f"seed={seed!r} must be a whole number")
    if budget is not None and not (whole(budget) and budget >= 0):
        raise ValueError(f"budget={budget!r} must be a whole number of changes, 0 or more; leave it out for no budget")
    check_inputs(x, getattr(space, "names", None))
    y = y if isinstance(y, Tensor) else torch.as_tensor(as_array(y, "labels"), device="cpu")
    check_labels(x, y)
    _check_unit(x, unit)
    check_margin(margin)
    # A clone: the caller's tensor is never written to, and one made in inference mode cannot carry gradients. Its order
    # in memory is always the same, since sums round by that order.
    x = x.detach().clone(memory_format=torch.contiguous_format)
    goal = ReachClass if targeted else LeaveClass
    return Problem(
        goal=goal(y.detach().to(device=x.device, dtype=torch.int64).clone(), float(margin)),
        domain=_domain(x, bounds, unit, mask, space),
        ids=_ids(ids, x),
        budget=None if budget is None else int(budget),
        seed=int(seed),
        start=None if start is None else _like(start, "start", x, x.shape),
        pool=x if pool is None else _like(pool, "pool", x, (len(pool), *x.shape[1:])),
        pool_given=pool is not None,
    )


def _domain(x: Tensor, bounds: Bounds, unit: Unit, mask: Array | None, space: "Space | None") -> Domain:
    """Make the domain of a box or a space; anything with a method `domain` is a space."""
    free = None if mask is None else _one_or_all(torch.as_tensor(_plain(mask), device=x.device), "mask", x)
    if free is not None and free.dtype != torch.bool:
        raise TypeError(f"mask has dtype {free.dtype}; give booleans, True where a feature may change")
    if space is None:
        lower, upper = _ends(bounds, x)
        lower, upper, free, per_sample = enclosed(x, lower, upper, free)
        return make_box(x, lower, upper, free, unit, per_sample)
    if not callable(getattr(space, "domain", None)):
        raise TypeError(f"space is a {type(space).__name__}; make one with sigmazero.Space(...)")
    if isinstance(bounds, tuple) and all(isinstance(b, Real) for b in bounds) and bounds == (0.0, 1.0):
        return space.domain(x, unit, free)
    raise ValueError("bounds and space are both given; say the bounds in the space: Space(lower=..., upper=...)")


def _check_unit(x: Tensor, unit: Unit) -> None:
    """Refuse to count pixels where there are none, and warn if channels seem to come last."""
    if unit not in get_args(Unit):
        raise ValueError(f"unit={unit!r} is not one of {', '.join(map(repr, get_args(Unit)))}")
    if unit == "pixel" and x.ndim < 3:
        raise ValueError(f"unit='pixel' is for images; inputs of shape {tuple(x.shape)} have features: unit='feature'")
    if unit == "pixel" and looks_last(tuple(x.shape)):
        warn_caller(
            f"inputs of shape {tuple(x.shape)} look like images with the channels last, and pixels are counted with "
            "channels in dimension 1; give x.permute(0, 3, 1, 2) and sz.wrap(model, channels='last')"
        )


def check_margin(margin: object) -> None:
    """Refuse a margin that no success can reach."""
    if isinstance(margin, bool) or not isinstance(margin, Real) or not 0 <= float(margin) < math.inf:
        raise ValueError(f"margin={margin!r} must be a finite number, 0 or more: the least lead in the logits")


def check_inputs(x: Tensor, names: Sequence[str] | None = None) -> None:
    """Refuse inputs that no attack can change and count; errors use `names` for their features."""
    if not isinstance(x, Tensor):
        raise TypeError(f"inputs are a {type(x).__name__}, not a torch tensor; use torch.as_tensor(...)")
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
    """Return the ends of the box, broadcastable over x; refuse inputs outside it."""
    try:
        least, most = bounds
    except (TypeError, ValueError):
        raise ValueError(f"bounds={bounds!r} must be a pair (lower, upper), for example (0, 1)") from None
    lower, upper = _bound(least, "lower", x), _bound(most, "upper", x)
    if (wrong := lower > upper).any():
        low, high = (float(each.expand_as(wrong)[wrong][0]) for each in (lower, upper))
        raise ValueError(f"the lower bound lies above the upper bound: {low:g} above {high:g}; swap them")
    outside = ((x < lower) | (x > upper)).flatten(1).any(1)
    if outside.any():
        row = int(outside.nonzero()[0])
        span = f"[{float(x[row].min()):g}, {float(x[row].max()):g}]"
        raise ValueError(
            f"input row {row} spans {span}, outside the bounds [{float(lower.min()):g}, {float(upper.max()):g}]; "
            f"{_suspected(x, lower, upper)}"
        )
    return lower, upper


def _bound(value: Bound, name: str, x: Tensor) -> Tensor:
    bound = torch.as_tensor(_plain(value), dtype=x.dtype, device=x.device)
    if bound.isnan().any():
        raise ValueError(f"the {name} bound holds NaN")
    # A scalar stays a scalar in memory: one element that broadcasts.
    return bound.reshape([1] * x.ndim) if bound.ndim == 0 else _one_or_all(bound, f"the {name} bound", x)


def _plain(value: Any) -> Any:
    """Return lists as arrays; torch would convert a list of arrays number by number."""
    return np.asarray(value) if isinstance(value, list | tuple) else value


def _one_or_all(value: Tensor, name: str, x: Tensor) -> Tensor:
    """Give a tensor the rank of x, with one row for all samples or one each."""
    shape = tuple(value.shape)
    try:
        return value.expand(x.shape) if value.ndim == x.ndim else value.expand(x.shape[1:])[None]
    except RuntimeError:
        raise ValueError(
            f"{name} of shape {shape} fits neither one sample {tuple(x.shape[1:])} nor all {tuple(x.shape)}"
        ) from None


def _like(given: Array, name: str, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    value = torch.as_tensor(_plain(given), device=x.device)
    if tuple(value.shape) != tuple(shape):
        raise ValueError(f"{name} has shape {tuple(value.shape)}, expected {tuple(shape)}")
    finite = value.isfinite().flatten(1).all(1)
    if not finite.all():
        raise ValueError(f"{name} row {int((~finite).nonzero()[0])} holds NaN or Inf")
    return value.detach().to(x).clone(memory_format=torch.contiguous_format)


def _suspected(x: Tensor, lower: Tensor, upper: Tensor) -> str:
    """Return advice about inputs outside the box: they may be 8-bit pictures, or already normalised."""
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


def _ids(ids: Array | None, x: Tensor) -> Tensor:
    if ids is None:
        return torch.arange(len(x), device=x.device)
    array = torch.as_tensor(_plain(ids), device=x.device)
    if array.shape != x.shape[:1] or array.dtype.is_floating_point:
        raise ValueError(f"ids have shape {tuple(array.shape)} and dtype {array.dtype}; give {len(x)} integers")
    return array.to(torch.int64)


def hint(word: str, known: Iterable[str]) -> str:
    """Return advice about a wrong name: the nearest allowed one, and all of them.

    >>> hint("bugdets", ["budgets", "unit"]), hint("x", ["budgets", "unit"])
    ("did you mean 'budgets'? allowed: budgets, unit", 'allowed: budgets, unit')
    """
    names = list(known)
    near = difflib.get_close_matches(word, names, 1)
    return (f"did you mean {near[0]!r}? " if near else "") + f"allowed: {', '.join(names) or 'none'}"
