"""Torch's operations, as they come out of a trace, read as layers."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from sigmazero.certifier.layers import Add, Conv, Input, Layer, MaxPool, Relu, Reshape, Scale

ROWS = 3  # of the input that is traced: a size that few networks have otherwise
EDGE = (0, 0, 0, 0)


class UnknownOperation(ValueError):
    """A network does something that no bounds are known for."""


@dataclass(frozen=True, eq=False)
class Traced:
    """A layer's output, and what torch computed for the traced input."""

    place: int
    sample: Tensor


@dataclass(eq=False)
class Layers:
    """The layers that were read so far."""

    like: Tensor
    found: list[Layer] = field(default_factory=list)

    def add(self, layer: Layer) -> int:
        """Take a layer in, and say where it is."""
        self.found.append(layer)
        return len(self.found) - 1

    def scale(self, sample: Tensor, place: int, factor: Any, shift: Any = 0.0) -> int:
        """Take in a product with a number, or one number for each value, and a sum with another."""
        like = self.like.new_ones(1, dtype=torch.float64)
        numbers = like * factor, like * shift
        return self.add(Scale(shape_of(sample), (place,), numbers[0], numbers[1], numbers[1].abs()))


def image(x: Tensor) -> Tensor:
    """Inputs of torch's shape (rows, channels, height, width), or vectors, as (rows, height, width, channels)."""
    return x[:, None, None] if x.ndim == 2 else x[:, :, None].movedim(1, -1) if x.ndim == 3 else x.movedim(1, -1)


def shape_of(sample: Tensor) -> tuple[int, int, int]:
    """Height, width and channels of one row."""
    if sample.ndim not in (2, 3, 4) or len(sample) != ROWS:
        raise UnknownOperation(f"values of shape {tuple(sample.shape)} occur; vectors and images can be certified")
    _, h, w, c = image(sample).shape
    return h, w, c


OPERATIONS: dict[str, Callable[..., int]] = {}


def operation(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Say which operations of torch a function reads."""

    def note(function: Callable[..., int]) -> Callable[..., int]:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return note


@operation("linear")
def _linear(layers: Layers, found: Tensor, x: Traced, weight: Tensor, bias: Tensor | None = None) -> int:
    if not isinstance(x, Traced) or isinstance(weight, Traced) or x.sample.ndim != 2:
        raise UnknownOperation("a linear layer is certified for one vector of each input alone")
    before, source = layers.found[x.place], x.place
    h, w, c = before.shape
    if isinstance(before, Reshape):  # a linear layer of an image: a window that is all of it
        source, (h, w, c) = before.sources[0], before.before
    inner = weight.double().reshape(-1, c, h, w).permute(0, 2, 3, 1)[None].contiguous()
    return layers.add(Conv(shape_of(found), (source,), inner, _bias(bias, weight)))


@operation("addmm")
def _addmm(layers: Layers, found: Tensor, bias: Tensor, x: Traced, weight: Tensor, **more: Any) -> int:
    if more or isinstance(bias, Traced):
        raise UnknownOperation("a product of matrices with factors of its own is not known here")
    return _linear(layers, found, x, weight.T, bias.expand(weight.shape[1]))


@operation("matmul", "mm")
def _matmul(layers: Layers, found: Tensor, x: Traced, weight: Tensor) -> int:
    if not isinstance(x, Traced) or isinstance(weight, Traced) or weight.ndim != 2:
        raise UnknownOperation("a product of two computed matrices is not known here")
    return _linear(layers, found, x, weight.T)


@operation("conv2d")
def _conv(
    layers: Layers,
    found: Tensor,
    x: Traced,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> int:
    _images(x)
    if isinstance(weight, Traced):
        raise UnknownOperation("a convolution with computed weights is not known here")
    own = weight.double().reshape(groups, -1, *weight.shape[1:]).permute(0, 1, 3, 4, 2).contiguous()
    edge = _named(padding, weight, _pair(dilation)) if isinstance(padding, str) else _around(padding)
    how = _pair(stride), edge, _pair(dilation)
    return layers.add(Conv(shape_of(found), (x.place,), own, _bias(bias, weight), *how))


def _named(padding: str, weight: Tensor, dilation: tuple[int, int]) -> tuple[int, int, int, int]:
    """The edge that "same" or "valid" means; where it is uneven, torch adds the one more below and at the right."""
    if padding == "valid":
        return EDGE
    if padding != "same":
        raise UnknownOperation(f"a convolution with padding={padding!r} is not known here; 'same' and 'valid' are")
    high, wide = (step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True))
    return high // 2, high - high // 2, wide // 2, wide - wide // 2


@operation("constant_pad_nd", "pad")
def _zeros_around(layers: Layers, found: Tensor, x: Traced, pad: Any, *how: Any, **more: Any) -> int:
    """Zeros around an image: windows of one value each, with an edge."""
    _images(x)
    left, right, top, bottom, *others = [*pad, 0, 0][: max(4, len(pad))]
    mode = [each for each in (*how, *more.values()) if each not in (0, None, "constant")]
    if mode or any(others) or min(left, right, top, bottom) < 0:
        raise UnknownOperation("padding with other values than 0, of channels or by less than 0 is not known here")
    return _mean(layers, found, x, (1, 1), (1, 1), (top, bottom, left, right))


def _images(x: Traced) -> None:
    """Refuse values without channels: torch would take the rows for those."""
    if x.sample.ndim != 4:
        shape = tuple(x.sample.shape[1:])
        raise UnknownOperation(f"windows of values of shape {shape} are not known here; (channels, height, width) are")


def _bias(bias: Tensor | None, weight: Tensor) -> Tensor:
    return torch.zeros(len(weight), dtype=torch.float64, device=weight.device) if bias is None else bias.double()


def _pair(value: Any) -> tuple[int, int]:
    given = list(value) if isinstance(value, list | tuple) else [value]
    return given[0], given[-1]


def _around(padding: Any) -> tuple[int, int, int, int]:
    high, wide = _pair(padding)
    return high, high, wide, wide


@operation("relu")
def _relu(layers: Layers, found: Tensor, x: Traced) -> int:
    return layers.add(Relu(shape_of(found), (x.place,)))


@operation("leaky_relu")
def _leaky(layers: Layers, found: Tensor, x: Traced, slope: float = 0.01) -> int:
    if not 0 <= slope <= 1:
        raise UnknownOperation(f"a LeakyReLU of slope {slope} is not known here; one between 0 and 1 is")
    return layers.add(Relu(shape_of(found), (x.place,), float(slope)))


@operation("batch_norm")
def _norm(
    layers: Layers,
    found: Tensor,
    x: Traced,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *rest: Any,
) -> int:
    if training or mean is None or variance is None:
        raise ValueError("a batch norm is in training mode: its answer depends on the batch; call model.eval() first")
    factor = (1.0 if weight is None else weight.double()) / (variance.double() + eps).sqrt()
    least = torch.zeros_like(factor) if bias is None else bias.double()
    size = least.abs() + (mean.double() * factor).abs()
    return layers.add(Scale(shape_of(found), (x.place,), factor, least - mean.double() * factor, size))


@operation("add", "sub")
def _sum(layers: Layers, found: Tensor, x: Any, other: Any, *, alpha: float = 1, sign: int = 1) -> int:
    factor = float(alpha) * sign
    if isinstance(x, Traced) and isinstance(other, Traced):
        if x.sample.shape != other.sample.shape:
            raise UnknownOperation("a sum of two computed values of unlike shapes is not known here")
        second = other.place if factor == 1 else layers.scale(found, other.place, factor)
        return layers.add(Add(shape_of(found), (x.place, second)))
    if isinstance(x, Traced):
        return layers.scale(found, _whole(x, found), 1.0, _constant(other, found) * factor)
    return layers.scale(found, _whole(other, found), factor, _constant(x, found))


@operation("sub")
def _difference(layers: Layers, found: Tensor, x: Any, other: Any, *, alpha: float = 1) -> int:
    return _sum(layers, found, x, other, alpha=alpha, sign=-1)


@operation("mul", "div")
def _product(layers: Layers, found: Tensor, x: Any, other: Any) -> int:
    if isinstance(x, Traced) and isinstance(other, Traced):
        raise UnknownOperation("a product of two computed values is not known here")
    value, number = (x, other) if isinstance(x, Traced) else (other, x)
    return layers.scale(found, _whole(value, found), _constant(number, found))


@operation("div")
def _quotient(layers: Layers, found: Tensor, x: Any, other: Any, **more: Any) -> int:
    if not isinstance(x, Traced) or isinstance(other, Traced) or more:
        raise UnknownOperation("a division by a computed value, or a rounded one, is not known here")
    return layers.scale(found, _whole(x, found), 1 / _constant(other, found))


@operation("neg")
def _negative(layers: Layers, found: Tensor, x: Traced) -> int:
    return layers.scale(found, x.place, -1.0)


def _whole(value: Traced, found: Tensor) -> int:
    if value.sample.shape != found.shape:
        raise UnknownOperation("a computed value is spread over a larger shape, which is not known here")
    return value.place


def _constant(number: Any, found: Tensor) -> Tensor:
    """A constant in the layout of our values, as if for one row."""
    tensor = torch.as_tensor(number, dtype=torch.float64, device=found.device)
    return image(tensor.expand(found.shape)[:1].contiguous())[0]


@operation("dropout", "feature_dropout", "alpha_dropout")
def _dropout(layers: Layers, found: Tensor, x: Traced, share: float, training: bool) -> int:
    if training and share > 0:
        raise ValueError("dropout is active, so the model answers otherwise each time; call model.eval() first")
    return x.place


@operation("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "to", "_to_copy")
def _same(layers: Layers, found: Tensor, x: Traced, *rest: Any, **more: Any) -> int:
    return x.place


@operation("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "_unsafe_view")
def _reshape(layers: Layers, found: Tensor, x: Traced, *rest: Any, **more: Any) -> int:
    before, after = layers.found[x.place].shape, shape_of(found)
    return x.place if before == after else layers.add(Reshape(after, (x.place,), before))


@operation("avg_pool2d")
def _average(
    layers: Layers,
    found: Tensor,
    x: Traced,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> int:
    _images(x)
    edge = _around(padding)
    if ceil_mode or divisor_override or (not count_include_pad and any(edge)):
        raise UnknownOperation("an average pool with ceil_mode, a divisor of its own or uncounted padding is not known")
    return _mean(layers, found, x, _pair(kernel), _pair(stride or kernel), edge)


@operation("adaptive_avg_pool2d")
def _adaptive(layers: Layers, found: Tensor, x: Traced, size: Any) -> int:
    _images(x)
    h, w, _ = layers.found[x.place].shape
    if h % found.shape[2] or w % found.shape[3]:
        raise UnknownOperation(f"an adaptive pool from {h} x {w} to {tuple(found.shape[2:])} has uneven windows")
    kernel = h // found.shape[2], w // found.shape[3]
    return _mean(layers, found, x, kernel, kernel, EDGE)


@operation("mean")
def _means(layers: Layers, found: Tensor, x: Traced, dims: Any = None, keepdim: bool = False, **more: Any) -> int:
    if x.sample.ndim != 4 or sorted(d % 4 for d in dims or ()) != [2, 3]:
        raise UnknownOperation(f"a mean over the dimensions {dims} is not known here; over height and width it is")
    h, w, _ = layers.found[x.place].shape
    return _mean(layers, found, x, (h, w), (1, 1), EDGE)


def _mean(layers: Layers, found: Tensor, x: Traced, kernel: Any, stride: Any, edge: Any) -> int:
    channels = layers.found[x.place].shape[2]
    like = torch.zeros(channels, dtype=torch.float64, device=found.device)
    weight = torch.full((channels, 1, *kernel, 1), 1 / math.prod(kernel), dtype=torch.float64, device=found.device)
    return layers.add(Conv(shape_of(found), (x.place,), weight, like, stride, edge))


@operation("max_pool2d")
def _largest(
    layers: Layers,
    found: Tensor,
    x: Traced,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> int:
    _images(x)
    if ceil_mode:
        raise UnknownOperation("a max pool with ceil_mode is not known here")
    how = _pair(kernel), _pair(stride or kernel), _around(padding), _pair(dilation)
    return layers.add(MaxPool(shape_of(found), (x.place,), *how))


def start(sample: Tensor) -> Layers:
    """Layers that begin with an input."""
    return Layers(sample, [Input(shape_of(sample))])
