"""What each operator of ONNX does, in torch: it gets its settings, and its inputs (None for what is left out)."""

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

Settings = dict[str, Any]
Operator = Callable[..., Tensor]
OPERATORS: dict[str, Operator] = {}


def operator(*names: str) -> Callable[[Operator], Operator]:
    """Say which operators a function computes."""

    def note(function: Operator) -> Operator:
        OPERATORS.update(dict.fromkeys(names, function))
        return function

    return note


def _plain(function: Any) -> Operator:
    return lambda settings, *inputs: function(*inputs)


OPERATORS |= {
    name: _plain(function)
    for name, function in {
        "Relu": F.relu,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "Softplus": F.softplus,
        "Softsign": F.softsign,
        "HardSwish": F.hardswish,
        "Mish": F.mish,
        "Erf": torch.erf,
        "Exp": torch.exp,
        "Log": torch.log,
        "Sqrt": torch.sqrt,
        "Abs": torch.abs,
        "Neg": torch.neg,
        "Reciprocal": torch.reciprocal,
        "Add": torch.add,
        "Sub": torch.sub,
        "Mul": torch.mul,
        "Pow": torch.pow,
        "MatMul": torch.matmul,
        "Identity": lambda x: x,
        "Dropout": lambda x, *_: x,  # a network that is asked is not trained
        "Sum": lambda *x: sum(x[1:], x[0]),
        "Max": lambda *x: reduce(torch.maximum, x),
        "Min": lambda *x: reduce(torch.minimum, x),
        "Where": torch.where,
        "GlobalAveragePool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
        "GlobalMaxPool": lambda x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
        "Shape": lambda x: torch.tensor(x.shape, device="cpu"),
    }.items()
}


def numbers(given: Tensor | Sequence[int] | None) -> list[int]:
    """Whole numbers that an operator is set to, by a setting or by an input."""
    if given is None:
        return []
    return [int(n) for n in (given.reshape(-1).tolist() if isinstance(given, Tensor) else given)]


@operator("Div")
def divide(settings: Settings, a: Tensor, b: Tensor) -> Tensor:
    """A quotient; of whole numbers its whole part."""
    del settings
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@operator("Constant")
def constant(settings: Settings) -> Tensor:
    """A value that stands in the file."""
    for name, value in settings.items():
        if name == "value" and isinstance(value, Tensor):
            return value
        if name.startswith("value_") and not isinstance(value, str) and value is not None:
            return torch.tensor(value, device="cpu")
    raise ValueError("a Constant has no value that is read here")


@operator("LeakyRelu")
def leaky_relu(settings: Settings, x: Tensor) -> Tensor:
    """x, or a share of it below 0."""
    return F.leaky_relu(x, settings.get("alpha", 0.01))


@operator("Elu")
def elu(settings: Settings, x: Tensor) -> Tensor:
    """x, or alpha (exp x - 1) below 0."""
    return F.elu(x, settings.get("alpha", 1.0))


@operator("Selu")
def selu(settings: Settings, x: Tensor) -> Tensor:
    """An Elu of a certain scale."""
    alpha, gamma = settings.get("alpha", 1.6732632423543772), settings.get("gamma", 1.0507009873554805)
    return F.elu(x, alpha) * float(gamma)


@operator("PRelu")
def prelu(settings: Settings, x: Tensor, slope: Tensor) -> Tensor:
    """x, or a learned share of it below 0."""
    del settings
    return torch.where(x < 0, x * slope, x)


@operator("Gelu")
def gelu(settings: Settings, x: Tensor) -> Tensor:
    """x times the chance that a normal number lies below it."""
    return F.gelu(x, approximate=settings.get("approximate", "none"))


@operator("HardSigmoid")
def hard_sigmoid(settings: Settings, x: Tensor) -> Tensor:
    """A straight line, cut off at 0 and 1."""
    return (x * float(settings.get("alpha", 0.2)) + float(settings.get("beta", 0.5))).clamp(0, 1)


@operator("Clip")
def clip(settings: Settings, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Cut off at two ends, which are settings before version 11 and inputs since."""
    least, most = (settings.get(name) if end is None else end for name, end in (("min", low), ("max", high)))
    x = x if least is None else x.clamp_min(least)
    return x if most is None else x.clamp_max(most)


@operator("Softmax", "LogSoftmax")
def softmax(settings: Settings, x: Tensor) -> Tensor:
    """Shares; before version 13 over everything from an axis on."""
    function = F.log_softmax if settings["kind"] == "LogSoftmax" else F.softmax
    if settings["version"] >= 13:
        return function(x, settings.get("axis", -1))
    axis = settings.get("axis", 1) % x.ndim
    return function(x.flatten(axis), axis).view_as(x)


@operator("Gemm")
def gemm(settings: Settings, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    """alpha A B + beta C."""
    a = a.T if settings.get("transA") else a
    alpha, beta = float(settings.get("alpha", 1.0)), float(settings.get("beta", 1.0))
    if settings.get("transB") and alpha == beta == 1 and (c is None or c.ndim == 1):
        return F.linear(a, b, c)
    product = (a @ (b.T if settings.get("transB") else b)) * alpha
    return product if c is None else product + c * beta


@operator("BatchNormalization")
def batch_norm(settings: Settings, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Normalised with the statistics of training."""
    if settings.get("training_mode"):
        raise ValueError("a BatchNormalization is in training mode; export the network in evaluation mode")
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, settings.get("epsilon", 1e-5))


def padding(settings: Settings, x: Tensor, kernel: Sequence[int]) -> tuple[list[int], list[int]]:
    """How much is added before and after each direction of an image."""
    n = len(kernel)
    way = settings.get("auto_pad", "NOTSET") or "NOTSET"
    strides, dilations = (settings.get(name) or [1] * n for name in ("strides", "dilations"))
    if way in ("SAME_UPPER", "SAME_LOWER"):
        sizes = zip(x.shape[2:], strides, kernel, dilations, strict=True)
        wanted = [max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size) for size, s, k, d in sizes]
        halves = [total // 2 if way == "SAME_UPPER" else -(-total // 2) for total in wanted]
        return halves, [total - half for total, half in zip(wanted, halves, strict=True)]
    pads = settings.get("pads") or [0] * 2 * n
    pads = [0] * 2 * n if way == "VALID" else pads
    if len(pads) != 2 * n:
        raise ValueError(f"{len(pads)} pads for {n} directions; {2 * n} are expected")
    return pads[:n], pads[n:]


def padded(x: Tensor, before: Sequence[int], after: Sequence[int], value: float) -> Tensor:
    """An image with an edge around it."""
    if not any((*before, *after)):
        return x
    return F.pad(x, [n for pair in zip(reversed(before), reversed(after), strict=True) for n in pair], value=value)


@operator("Conv")
def convolution(settings: Settings, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A convolution in one, two or three directions."""
    n = weight.ndim - 2
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[n]
    before, after = padding(settings, x, weight.shape[2:])
    strides, dilations = (settings.get(name) or [1] * n for name in ("strides", "dilations"))
    if before != after:
        x, before = padded(x, before, after, 0.0), [0] * n
    return function(x, weight, bias, strides, before, dilations, settings.get("group", 1))


@operator("MaxPool")
def max_pool(settings: Settings, x: Tensor) -> Tensor:
    """The largest value in each window."""
    kernel = settings["kernel_shape"]
    n = len(kernel)
    function: Operator = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}[n]
    strides, dilations = (settings.get(name) or [1] * n for name in ("strides", "dilations"))
    x = padded(x, *padding(settings, x, kernel), -math.inf)
    return function(x, kernel, strides, 0, dilations, ceil_mode=bool(settings.get("ceil_mode")))


@operator("AveragePool")
def average_pool(settings: Settings, x: Tensor) -> Tensor:
    """The mean of each window; of what lies inside the image alone, unless the edge is to count."""
    kernel = settings["kernel_shape"]
    n = len(kernel)
    function: Operator = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[n]
    strides, ceil = settings.get("strides") or [1] * n, bool(settings.get("ceil_mode"))
    before, after = padding(settings, x, kernel)
    found = function(padded(x, before, after, 0.0), kernel, strides, ceil_mode=ceil)
    if settings.get("count_include_pad") or not any((*before, *after)):
        return found
    inside = function(padded(torch.ones_like(x[:1, :1]), before, after, 0.0), kernel, strides, ceil_mode=ceil)
    return found / inside
