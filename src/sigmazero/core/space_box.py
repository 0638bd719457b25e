"""The box of a space around given inputs; an input outside its own space is named here, with its feature."""

import math

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.form import Form
from sigmazero.core.space import SLACK, WHOLE, Columns, Floats, Space


def within(space: Space, x: Tensor, pixels: bool, mask: Tensor | None) -> tuple[Tensor, Tensor, Form | None]:
    """The ends of every feature around the inputs, in their dtype, and what of the space a box cannot hold."""
    if not isinstance(space, Space):
        raise TypeError(f"space is a {type(space).__name__}; make one with sigmazero.Space(...)")
    shape = tuple(x.shape[1:])
    columns = space.columns(shape)
    channels = shape[0] if pixels and len(shape) > 1 else 1
    if columns.groups and channels > 1:
        raise ValueError("space: unit='pixel' and groups are both given; make pixels groups with Space.pixels(shape)")
    lower, upper = legal_ends(columns)
    values = x.flatten(1).double().cpu().numpy()
    _check_inputs(values, lower, upper, columns, 4 * torch.finfo(x.dtype).eps)
    _check_mask(columns, mask, x)
    if len(columns.rise) not in (1, len(x)):
        raise ValueError(f"space: directions of {len(columns.rise)} samples for {len(x)} inputs; give one row for each")
    low, high = np.broadcast_to(lower, (1, len(lower))), np.broadcast_to(upper, (1, len(upper)))
    if np.isfinite(columns.around).any():
        centre = _on_steps(columns, values)
        near = legal_ends(columns, centre - columns.around, centre + columns.around)
        low, high = np.maximum(low, near[0]), np.minimum(high, near[1])
    if not columns.rise.all():
        high = np.where(columns.rise, high, values)
    if not columns.fall.all():
        low = np.where(columns.fall, low, values)
    # In the dtype of the inputs, and never so rounded that an input is outside.
    ends = [torch.tensor(v).to(x).view(len(v), *shape) for v in (low, high)]
    if len(x):
        ends[0] = torch.minimum(ends[0], x if len(low) > 1 else x.amin(0, keepdim=True))
        ends[1] = torch.maximum(ends[1], x if len(high) > 1 else x.amax(0, keepdim=True))
    return ends[0], ends[1], Form.make(space, columns, shape, channels, x)


def _on_steps(columns: Columns, values: Floats) -> Floats:
    """Values without the rounding of their format, where legal ones are whole steps: 8 steps around are 8, not 7."""
    per = np.maximum(columns.per, 1)
    return np.where(columns.per > 0, np.round(values * per / columns.times) * columns.times / per, values)


def legal_ends(columns: Columns, lower: Floats | None = None, upper: Floats | None = None) -> tuple[Floats, Floats]:
    """The outermost legal values between ends, those of the space unless told otherwise: (features,) or (N, ...)."""
    own = lower is None or upper is None
    low = columns.lower if lower is None else lower
    high = columns.upper if upper is None else upper
    stepped, per = columns.per > 0, np.maximum(columns.per, 1)
    with np.errstate(invalid="ignore"):
        up = np.ceil(low * per / columns.times - SLACK) * columns.times / per
        down = np.floor(high * per / columns.times + SLACK) * columns.times / per
    low, high = np.where(stepped, up + 0.0, low), np.where(stepped, down + 0.0, high)  # no minus zero
    for k, table in columns.tables.items():
        inside = [np.where(table >= v, table, np.inf).min() for v in np.atleast_1d(low[..., k])]
        low[..., k] = np.reshape(inside, low[..., k].shape)
        inside = [np.where(table <= v, table, -np.inf).max() for v in np.atleast_1d(high[..., k])]
        high[..., k] = np.reshape(inside, high[..., k].shape)
    if own and (low > high).any():
        k = int(np.flatnonzero(low > high)[0])
        ends = f"{columns.lower[k]:g} and {columns.upper[k]:g}"
        raise ValueError(f"space: feature {columns.labels[k]} has no legal value between {ends}; widen the ends")
    return low, high


def _check_inputs(values: Floats, lower: Floats, upper: Floats, columns: Columns, eps: float) -> None:
    """Refuse inputs that are not in the space themselves."""
    slack = eps * np.maximum(1, np.abs(values))
    outside = (values < lower - slack) | (values > upper + slack)
    if outside.any():
        row, k = (int(v) for v in np.argwhere(outside)[0])
        ends = f"between {lower[k]:g} and {upper[k]:g}"
        _refuse(values, row, k, columns, f"is not {ends}", "widen the ends or correct the input")
    per = np.maximum(columns.per, 1)
    steps = values * per / columns.times
    whole = (columns.per == 1) & (columns.times == np.round(columns.times))
    slack = np.where(whole, np.minimum(slack, WHOLE), slack)
    off = (columns.per > 0) & (np.abs(np.round(steps) * columns.times / per - values) > slack)
    if off.any():
        row, k = (int(v) for v in np.argwhere(off)[0])
        step = columns.times[k] / per[k]
        near = round(values[row, k] / step) * step
        alike = f"{near:g}" == f"{values[row, k]:g}"
        more = f" (it is {abs(near - values[row, k]):.2g} off)" if alike else ""
        words = f"is no multiple of {step:g}{more}"
        _refuse(values, row, k, columns, words, "round the inputs or change the feature's kind or grid")
    for k, table in columns.tables.items():
        far = np.abs(values[:, k, None] - table).min(1) > slack[:, k]
        if far.any():
            _refuse(values, int(np.argmax(far)), k, columns, "is none of its values", "add it to values=")
    for group in columns.groups:
        if group.one_hot:
            wrong = values[:, list(group.members)].sum(1) != 1
            if wrong.any():
                row = int(np.argmax(wrong))
                total = values[row, list(group.members)].sum()
                raise ValueError(
                    f"space: in input row {row} the one-hot group {group.name!r} (with feature "
                    f"{columns.labels[group.members[0]]}) sums to {total:g}; exactly one of its features must be 1"
                )


def _refuse(values: Floats, row: int, k: int, columns: Columns, words: str, fix: str) -> None:
    value = f"feature {columns.labels[k]} of input row {row} is {values[row, k]:g}"
    raise ValueError(f"space: {value}, which {words}; {fix}")


def _check_mask(columns: Columns, mask: Tensor | None, x: Tensor) -> None:
    """Refuse a mask that frees a part of a one-hot group."""
    if mask is None:
        return
    flat = mask.cpu().expand(x.shape).reshape(len(x), math.prod(x.shape[1:])).numpy()
    for group in columns.groups:
        some = flat[:, list(group.members)]
        if group.one_hot and (some != some[:, :1]).any():
            raise ValueError(f"space: the mask frees a part of one-hot group {group.name!r}; free all of it or none")
