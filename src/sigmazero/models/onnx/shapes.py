"""The operators of ONNX that move values about and compute none. Loading this module makes them known."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from sigmazero.models.onnx.operators import Settings, numbers, operator

_TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64}


@operator("Flatten")
def flatten(settings: Settings, x: Tensor) -> Tensor:
    """Two dimensions: all before an axis, and all from it on."""
    axis = settings.get("axis", 1)
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(x.shape[:axis].numel(), -1) if x.numel() else x.reshape(x.shape[:axis].numel(), 0)


@operator("Reshape")
def reshape(settings: Settings, x: Tensor, shape: Tensor) -> Tensor:
    """Another shape: 0 for a size that stays, -1 for whatever is left.

    A file made for one number of rows may name it here; any other number is meant as well.
    """
    wanted = numbers(shape)
    if not settings.get("allowzero"):
        wanted = [x.shape[place] if size == 0 else size for place, size in enumerate(wanted)]
    rows, fixed = settings["rows"], settings["fixed"]
    if wanted and fixed is not None and wanted[0] == fixed and len(x) == rows:
        wanted[0] = rows
    return x.reshape(wanted)


@operator("Transpose")
def transpose(settings: Settings, x: Tensor) -> Tensor:
    """The dimensions in another order; in reverse where none is named."""
    return x.permute(settings.get("perm") or list(reversed(range(x.ndim))))


@operator("Concat")
def concatenate(settings: Settings, *parts: Tensor) -> Tensor:
    """One after the other."""
    return torch.cat(parts, settings["axis"])


@operator("Squeeze")
def squeeze(settings: Settings, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Without dimensions of size 1."""
    chosen = numbers(settings.get("axes") if axes is None else axes)
    return x.squeeze(tuple(chosen)) if chosen else x.squeeze()


@operator("Unsqueeze")
def unsqueeze(settings: Settings, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """With more dimensions of size 1."""
    chosen = numbers(settings.get("axes") if axes is None else axes)
    for axis in sorted(axis + x.ndim + len(chosen) if axis < 0 else axis for axis in chosen):
        x = x.unsqueeze(axis)
    return x


@operator("Gather")
def gather(settings: Settings, x: Tensor, index: Tensor) -> Tensor:
    """Some of the entries along an axis."""
    axis = settings.get("axis", 0) % x.ndim
    index = index.to(x.device)
    index = torch.where(index < 0, index + x.shape[axis], index)
    chosen = x.index_select(axis, index.reshape(-1))
    return chosen.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


@operator("Slice")
def cut(settings: Settings, x: Tensor, *given: Tensor | None) -> Tensor:
    """A part along some axes; where it begins and ends are settings before version 10 and inputs since."""
    names = ("starts", "ends", "axes", "steps")
    starts, ends, axes, steps = (
        numbers(given[place] if place < len(given) else settings.get(name)) for place, name in enumerate(names)
    )
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1:
            raise ValueError("a Slice goes backwards, which is not converted")
        places = range(x.shape[axis])[start:end:step]
        x = x.narrow(axis, places.start, max(0, places.stop - places.start))[(slice(None),) * (axis % x.ndim)]
        x = x if step == 1 else x.index_select(axis, torch.arange(0, x.shape[axis], step, device=x.device))
    return x


@operator("Pad")
def pad(
    settings: Settings,
    x: Tensor,
    pads: Tensor | None = None,
    value: Tensor | None = None,
    axes: Tensor | None = None,
) -> Tensor:
    """An edge around it: of one value, mirrored, or repeated."""
    amounts = numbers(settings.get("pads") if pads is None else pads)
    chosen = [axis % x.ndim for axis in numbers(axes)] or list(range(x.ndim))
    half = len(chosen)
    before, after = dict(zip(chosen, amounts[:half], strict=True)), dict(zip(chosen, amounts[half:], strict=True))
    sides = [side.get(axis, 0) for axis in reversed(range(x.ndim)) for side in (before, after)]
    mode = settings.get("mode", "constant") or "constant"
    if mode == "constant":
        return F.pad(x, sides, value=float(settings.get("value", 0.0) if value is None else value))
    while sides and not any(sides[-2:]):  # torch mirrors the last dimensions alone
        sides = sides[:-2]
    return F.pad(x, sides, mode={"reflect": "reflect", "edge": "replicate"}[mode])


@operator("Cast")
def cast(settings: Settings, x: Tensor) -> Tensor:
    """Another number format; between floating-point numbers the network's own stays."""
    kind = _TYPES.get(settings["to"])
    if kind is None:
        raise ValueError(f"a Cast goes to type {settings['to']}, which is not converted")
    return x if kind.is_floating_point and x.is_floating_point() else x.to(kind)


def _reduced(settings: Settings, x: Tensor, axes: Tensor | None) -> dict[str, Any]:
    chosen = numbers(settings.get("axes") if axes is None else axes)
    return {"dim": tuple(chosen) or tuple(range(x.ndim)), "keepdim": bool(settings.get("keepdims", 1))}


@operator("ReduceMean")
def mean(settings: Settings, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Means along some axes."""
    return x.mean(**_reduced(settings, x, axes))


@operator("ReduceSum")
def total(settings: Settings, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Sums along some axes."""
    return x.sum(**_reduced(settings, x, axes))


@operator("ReduceMax")
def largest(settings: Settings, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Maxima along some axes."""
    return x.amax(**_reduced(settings, x, axes))
