"""ONNX files as networks of torch, with gradients. Reading one runs no code.

The package `onnx` parses and checks the file, and its reference implementation computes a random input as well: a
network whose logits differ is refused. Each operator is a function whose keyword arguments are ONNX's own attributes,
so an attribute that is not converted is refused by name. A file that was made for a fixed number of rows takes any.
"""

import hashlib
import inspect
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sigmazero.core.extras import require
from sigmazero.core.messages import one_line, shown
from sigmazero.models.wrapping.base import in_fixed_batches
from sigmazero.models.wrapping.identity import KnownModel

log = logging.getLogger(__name__)

Operator = Callable[..., Any]  # of tensors, with ONNX's attributes as keyword arguments
Function = Callable[..., Tensor]
Ints = Sequence[int] | None
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 1e-1}  # of the largest logit, by the file's number format
SINGLE = 1e-3  # for the other formats
SOUND = 15  # older operators, such as batch norms, are computed wrongly by the reference, and are converted for it
OPEN_SIZE = 64  # of an image whose size the file leaves open, for the comparison
INSTEAD = 'sz.wrap(path, kind="onnxruntime") asks it through ONNX Runtime, without gradients'


@dataclass(frozen=True)
class Node:
    """One operator of a network: its name, the names of inputs ("" for one left out) and outputs, its attributes."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]

    def compute(self, values: dict[str, Any]) -> None:
        """Add the outputs to the values that are there."""
        made = OPERATORS[self.kind](*(values[name] for name in self.inputs), **self.attributes)
        values.update(zip(self.outputs, made if isinstance(made, tuple) else (made,), strict=False))


class OnnxNetwork(KnownModel):
    """Compute the nodes of an ONNX file one after the other.

    Floating-point constants are parameters, so that they move and change format with the network. Whole numbers, which
    say shapes and places, stay on the processor. `rows` is the number of rows that the file insists on, if it does.
    """

    def __init__(self, nodes: list[Node], constants: dict[str, Tensor], given: str, result: str) -> None:
        super().__init__()
        self.nodes, self.given, self.result = nodes, given, result
        self.rows: int | None = None
        self.digest = self.title = ""
        self.integers = {name: value for name, value in constants.items() if not value.is_floating_point()}
        self.places: dict[str, str] = {}
        for place, (name, value) in enumerate(constants.items()):
            if value.is_floating_point():
                self.places[name] = f"constant{place}"
                single = value.float() if value.dtype.itemsize < 4 else value
                self.register_parameter(f"constant{place}", nn.Parameter(single, requires_grad=False))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        if self.rows is None:
            return self._run(x)
        if self.rows == 1:
            logits: Tensor = torch.vmap(lambda row: self._run(row[None])[0])(x)
            return logits
        return in_fixed_batches(self._run, x, self.rows)

    def _run(self, x: Tensor) -> Tensor:
        values = self.start(x)
        for node in self.nodes:
            node.compute(values)
        answer: Tensor = values[self.result]
        return answer

    def start(self, x: Tensor) -> dict[str, Any]:
        """Return the values that are there before the first node."""
        weights = {name: getattr(self, place) for name, place in self.places.items()}
        return {"": None, **self.integers, **weights, self.given: x}

    def content(self) -> str:
        """Return the hash of the file."""
        return self.digest

    def extra_repr(self) -> str:
        """Name the file."""
        return f"{self.title}, {len(self.nodes)} steps"


def load_onnx(path: Path) -> nn.Module:
    """Return the network in an ONNX file, in evaluation mode."""
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    library = require("onnx", "onnx", f"the ONNX file {path.name}")
    try:
        model = library.load(path)
        library.checker.check_model(str(path))
        if model.functions:
            model = require("onnx.inliner", "onnx", "functions in a file").inline_local_functions(model)
        network = _network(model, library).eval()
        digest = hashlib.sha256(path.read_bytes())
        for value in network.integers.values():  # which may lie in another file; weights are known by their values
            digest.update(value.numpy().tobytes())
        network.title, network.digest = path.name, digest.hexdigest()
        _compare(network, model, library)
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise ValueError(f"{path} is no ONNX network that can be converted ({one_line(error)}); {INSTEAD}") from error
    return network


def _version(model: Any) -> int:
    return max([each.version for each in model.opset_import if each.domain in ("", "ai.onnx")], default=0)


def _network(model: Any, library: Any) -> OnnxNetwork:
    graph, version = model.graph, _version(model)
    if version < 7:
        raise ValueError(f"its operators are of version {version}; 7 and later are read")
    if graph.sparse_initializer:
        raise ValueError("it has sparse constants, which are not read")
    constants = {each.name: _tensor(each, library) for each in graph.initializer}
    given = [each.name for each in graph.input if each.name not in constants]
    if len(given) != 1:
        raise ValueError(f"it has {len(given)} inputs besides its constants; one is expected")
    nodes = []
    for node in (_node(each, version, library) for each in graph.node):
        known = [constants.get(name) for name in node.inputs]
        if all(value is not None and not value.is_floating_point() for value in known):
            node.compute(constants)  # a constant, or a shape that is made of constants
        else:
            nodes.append(node)
    outputs = [each.name for each in graph.output]
    result = next((name for name in outputs if name.lower() == "logits"), outputs[0])
    return OnnxNetwork(nodes, constants, given[0], result)


def _node(proto: Any, version: int, library: Any) -> Node:
    kind = proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}"
    kind = f"{kind} before 13" if version < 13 and f"{kind} before 13" in OPERATORS else kind
    if kind not in OPERATORS:
        raise ValueError(f"the network uses {shown(kind)}, which is not converted here")
    attributes = {}
    for each in proto.attribute:
        value = library.helper.get_attribute_value(each)
        if isinstance(value, library.TensorProto):
            value = _tensor(value, library)
        attributes[each.name] = value.decode() if isinstance(value, bytes) else value
    if kind == "Split":
        attributes["outputs"] = len(proto.output)
    try:
        known = {
            each.name
            for each in inspect.signature(OPERATORS[kind]).parameters.values()
            if each.kind is each.KEYWORD_ONLY
        }
    except ValueError:  # a function of torch, which shows none
        known = set()
    if unknown := sorted(attributes.keys() - known):
        value = shown(attributes[unknown[0]])
        raise ValueError(f"{kind} has {unknown[0]}={value}, which is not converted here")
    return Node(kind, tuple(proto.input), tuple(proto.output), attributes)


def _tensor(proto: Any, library: Any) -> Tensor:
    values = library.numpy_helper.to_array(proto)
    if values.dtype.name == "bfloat16":
        return torch.from_numpy(values.astype(np.float32)).bfloat16()
    return torch.from_numpy(np.array(values))


# The comparison with the reference


def _compare(network: OnnxNetwork, model: Any, library: Any) -> None:
    """Compare a network with ONNX's reference implementation, and find out how it takes any number of rows."""
    kind = next(each for each in model.graph.input if each.name == network.given).type.tensor_type
    sizes = [each.dim_value if each.HasField("dim_value") else None for each in kind.shape.dim]
    if not sizes:
        raise ValueError("its input has no rows")
    inner = [OPEN_SIZE if size is None else size for size in sizes[1:]]
    form = torch.from_numpy(np.empty(0, library.helper.tensor_dtype_to_np_dtype(kind.elem_type))).dtype
    # A file may leave the number of rows open and take one all the same.
    for rows in [sizes[0]] if sizes[0] else [2, 1]:
        x = torch.rand(rows + 1, *inner, generator=torch.Generator().manual_seed(0))
        x = x.double() if form == torch.float64 else x
        try:
            answer, wanted = network(x[:rows]), _reference(network, model, x[:rows].to(form))
        except Exception as error:
            failure = error
            continue
        if not _close(answer, wanted, tolerance := TOLERANCE.get(form, SINGLE)):
            apart = float((answer.double() - wanted).abs().max()) if answer.shape == wanted.shape else math.inf
            raise ValueError(f"its logits are {apart:.2g} away from those of ONNX's reference implementation")
        if rows == 1 or sizes[0]:
            network.rows = None if _takes_more(network, x, answer, tolerance) else rows
        return
    if None not in sizes[1:]:
        raise failure
    log.warning("%s leaves sizes open, and was not compared (%s)", network.title, one_line(failure))


def _reference(network: OnnxNetwork, model: Any, x: Tensor) -> Tensor:
    if _version(model) < SOUND:
        model = require("onnx.version_converter", "onnx", "an older file").convert_version(model, SOUND)
    evaluator = require("onnx.reference", "onnx", "the comparison").ReferenceEvaluator(model)
    (answer,) = evaluator.run([network.result], {network.given: x.numpy()})
    return torch.from_numpy(np.asarray(answer, np.float64))


def _close(one: Tensor, other: Tensor, tolerance: float) -> bool:
    if one.shape != other.shape:
        return False
    return bool(((one.double() - other.double()).abs() <= tolerance * other.double().abs().max() + 1e-6).all())


def _takes_more(network: OnnxNetwork, x: Tensor, answer: Tensor, tolerance: float) -> bool:
    """Let constant shapes leave their first size open; tell whether a network then takes one row more."""
    rows, nodes, integers = len(answer), network.nodes, dict(network.integers)
    try:
        values, network.nodes = network.start(x[:rows]), []
        for node in nodes:
            node.compute(values)
            if node.kind == "Reshape" and node.inputs[1] in network.integers:
                name = f"shape of {node.outputs[0]}"
                size = values[node.outputs[0]].shape
                network.integers[name] = torch.tensor([-1, *size[1:]], device="cpu")
                node = replace(node, inputs=(node.inputs[0], name))
            network.nodes.append(node)
        more = network(x)
        if _close(more[:rows], answer, tolerance) and _close(more[1:], network(x[1:]), tolerance):
            return True
    except (RuntimeError, ValueError, IndexError) as error:
        log.info("%s takes %d rows at a time (%s)", network.title, rows, one_line(error))
    network.nodes, network.integers = nodes, integers
    return False


# Operators


def numbers(given: Tensor | Ints) -> list[int]:
    """Return whole numbers that an operator takes as an attribute or as an input."""
    if given is None:
        return []
    return [int(n) for n in (given.reshape(-1).tolist() if isinstance(given, Tensor) else given)]


class Window(NamedTuple):
    """How a window moves over an image, and how much is added before and after it in each direction."""

    strides: list[int]
    dilations: list[int]
    before: list[int]
    after: list[int]

    @property
    def edges(self) -> list[int]:
        """Return what is added, as `F.pad` takes it; nothing where all of it is 0."""
        pairs = zip(reversed(self.before), reversed(self.after), strict=True)
        return [n for pair in pairs for n in pair] if any((*self.before, *self.after)) else []


def _window(x: Tensor, kernel: Sequence[int], strides: Ints, dilations: Ints, pads: Ints, auto_pad: str) -> Window:
    n = len(kernel)
    steps, apart, edges = list(strides or [1] * n), list(dilations or [1] * n), list(pads or [0] * 2 * n)
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        sizes = zip(x.shape[2:], steps, kernel, apart, strict=True)
        wanted = [max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size) for size, s, k, d in sizes]
        first = [total // 2 if auto_pad == "SAME_UPPER" else -(-total // 2) for total in wanted]
        edges = [*first, *(total - half for total, half in zip(wanted, first, strict=True))]
    elif auto_pad == "VALID":
        edges = [0] * 2 * n
    if len(edges) != 2 * n:
        raise ValueError(f"{len(edges)} pads for {n} directions; {2 * n} are expected")
    return Window(steps, apart, edges[:n], edges[n:])


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    strides: Ints = None,
    dilations: Ints = None,
    pads: Ints = None,
    auto_pad: str = "NOTSET",
    kernel_shape: Ints = None,
    group: int = 1,
) -> Tensor:
    function: Function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[weight.ndim - 2]
    window = _window(x, weight.shape[2:], strides, dilations, pads, auto_pad)
    edge = window.before
    if window.before != window.after:
        x, edge = F.pad(x, window.edges), [0] * len(edge)
    return function(x, weight, bias, window.strides, edge, window.dilations, group)


def _pool(name: str, edge: float) -> Operator:
    """Return an operator that takes the maximum or the mean of windows; `edge` is what is added around an image."""

    def pooled(
        x: Tensor,
        *,
        kernel_shape: Sequence[int],
        strides: Ints = None,
        dilations: Ints = None,
        pads: Ints = None,
        auto_pad: str = "NOTSET",
        ceil_mode: int = 0,
        storage_order: int = 0,
        count_include_pad: int = 0,
    ) -> Tensor:
        function: Function = getattr(F, f"{name}_pool{len(kernel_shape)}d")
        window = _window(x, kernel_shape, strides, dilations, pads, auto_pad)
        how: dict[str, Any] = {"stride": window.strides, "ceil_mode": bool(ceil_mode)}
        if name == "max":
            how["dilation"] = window.dilations
        elif any(each != 1 for each in window.dilations):
            raise ValueError(f"AveragePool has dilations={window.dilations}, which is not converted here")
        around = F.pad(x, window.edges, value=edge) if window.edges else x
        found = function(around, list(kernel_shape), **how)
        if name == "max" or count_include_pad or not window.edges:
            return found
        # the mean of what lies inside the image alone
        return found / function(F.pad(torch.ones_like(x[:1, :1]), window.edges), list(kernel_shape), **how)

    return pooled


def _gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1,
    beta: float = 1,
    transA: int = 0,
    transB: int = 0,
) -> Tensor:
    a = a.T if transA else a
    if transB and alpha == beta == 1 and (c is None or c.ndim == 1):
        return F.linear(a, b, c)
    product = (a @ (b.T if transB else b)) * float(alpha)
    return product if c is None else product + c * float(beta)


def _batch_norm(
    x: Tensor,
    *statistics: Tensor,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    training_mode: int = 0,
) -> Tensor:
    if training_mode or not spatial:
        raise ValueError("a BatchNormalization is in training mode; export the network in evaluation mode")
    scale, bias, mean, variance = statistics
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, epsilon)


def _clip(
    x: Tensor, low: Tensor | None = None, high: Tensor | None = None, *, min: Any = None, max: Any = None
) -> Tensor:
    least, most = min if low is None else low, max if high is None else high
    x = x if least is None else x.clamp_min(least)
    return x if most is None else x.clamp_max(most)


def _constant(
    *,
    value: Tensor | None = None,
    value_float: Any = None,
    value_floats: Any = None,
    value_int: Any = None,
    value_ints: Any = None,
) -> Tensor:
    values = (value, value_float, value_floats, value_int, value_ints)
    found = next(each for each in values if each is not None)
    return found if isinstance(found, Tensor) else torch.tensor(found, device="cpu")


def _softmax_of_all(x: Tensor, *, axis: int = 1) -> Tensor:
    """Take everything from an axis on together, as files before version 13 mean it."""
    return x.flatten(axis % x.ndim).softmax(axis % x.ndim).view_as(x)


def _reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    wanted = numbers(shape)
    if not allowzero:
        wanted = [x.shape[place] if size == 0 else size for place, size in enumerate(wanted)]
    return x.reshape(wanted)


def _flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


def _concatenate(*parts: Tensor, axis: int) -> Tensor:
    device = next((part.device for part in parts if part.is_floating_point()), parts[0].device)
    return torch.cat([part.to(device) for part in parts], axis)


def _split(
    x: Tensor, sizes: Tensor | None = None, *, axis: int = 0, split: Ints = None, num_outputs: int = 0, outputs: int = 1
) -> tuple[Tensor, ...]:
    parts = numbers(split if sizes is None else sizes)
    return torch.split(x, parts or -(-x.shape[axis] // (num_outputs or outputs)), axis)


def _squeeze(x: Tensor, places: Tensor | None = None, *, axes: Ints = None) -> Tensor:
    chosen = numbers(axes if places is None else places)
    return x.squeeze(tuple(chosen)) if chosen else x.squeeze()


def _unsqueeze(x: Tensor, places: Tensor | None = None, *, axes: Ints = None) -> Tensor:
    chosen = numbers(axes if places is None else places)
    for axis in sorted(axis + x.ndim + len(chosen) if axis < 0 else axis for axis in chosen):
        x = x.unsqueeze(axis)
    return x


def _gather(x: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    axis, index = axis % x.ndim, index.to(x.device)
    index = torch.where(index < 0, index + x.shape[axis], index)
    chosen = x.index_select(axis, index.reshape(-1))
    return chosen.reshape([*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]])


def _slice(x: Tensor, *inputs: Tensor | None, starts: Ints = None, ends: Ints = None, axes: Ints = None) -> Tensor:
    given = (*inputs, None, None)[:4] if inputs else (starts, ends, axes, None)  # attributes before version 10
    first, last, along, by = (numbers(each) for each in given)
    along, by = along or list(range(len(first))), by or [1] * len(first)
    for start, end, axis, step in zip(first, last, along, by, strict=True):
        places = range(x.shape[axis])[start:end:step]
        if step == 1:
            x = x.narrow(axis, places.start, len(places))
        else:
            x = x.index_select(axis, torch.tensor(list(places), dtype=torch.int64, device=x.device))
    return x


def _pad(
    x: Tensor,
    amounts: Tensor | None = None,
    filled: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    pads: Ints = None,
    value: float = 0.0,
    mode: str = "constant",
) -> Tensor:
    every = numbers(pads if amounts is None else amounts)
    chosen = [axis % x.ndim for axis in numbers(axes)] or list(range(x.ndim))
    half = len(chosen)
    before, after = dict(zip(chosen, every[:half], strict=True)), dict(zip(chosen, every[half:], strict=True))
    sides = [side.get(axis, 0) for axis in reversed(range(x.ndim)) for side in (before, after)]
    if mode == "constant":
        return F.pad(x, sides, value=float(value if filled is None else filled))
    while sides and not any(sides[-2:]):  # torch mirrors the last dimensions alone
        sides = sides[:-2]
    return F.pad(x, sides, mode={"reflect": "reflect", "edge": "replicate", "wrap": "circular"}[mode])


_FORMS = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool, 10: torch.float16, 11: torch.float64}


def _cast(x: Tensor, *, to: int, saturate: int = 1) -> Tensor:
    if to not in _FORMS:
        raise ValueError(f"a Cast goes to type {to}, which is not converted here")
    # Between floating-point numbers the network's own format stays.
    return x if _FORMS[to].is_floating_point and x.is_floating_point() else x.to(_FORMS[to])


def _reduction(function: Function) -> Operator:
    def reduced(
        x: Tensor, places: Tensor | None = None, *, axes: Ints = None, keepdims: int = 1, noop_with_empty_axes: int = 0
    ) -> Tensor:
        chosen = tuple(numbers(axes if places is None else places))
        if not chosen and noop_with_empty_axes:
            return x
        return function(x, dim=chosen or tuple(range(x.ndim)), keepdim=bool(keepdims))

    return reduced


# Operators that torch has under the same names.
SAME = ["Abs", "Add", "Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "MatMul", "Mul", "Neg", "Pow", "Reciprocal", "Round"]
SAME += ["Sigmoid", "Sign", "Sin", "Sqrt", "Sub", "Tanh"]
SAME_OF_LAYERS = ["HardSwish", "Mish", "Relu", "Softplus", "Softsign"]
# The keyword arguments of each are the attributes that it knows; those of torch's own functions have none.
OPERATORS: dict[str, Operator] = {
    **{name: getattr(torch, name.lower()) for name in SAME},
    **{name: getattr(F, name.lower()) for name in SAME_OF_LAYERS},
    "And": torch.logical_and,
    "AveragePool": _pool("avg", 0.0),
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Celu": lambda x, *, alpha=1.0: F.celu(x, alpha),
    "Clip": _clip,
    "Concat": _concatenate,
    "Constant": _constant,
    "ConstantOfShape": lambda shape, *, value=None: (torch.zeros(1) if value is None else value).expand(numbers(shape)),
    "Conv": _convolution,
    "Div": lambda a, b: a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc"),
    "Dropout": lambda x, *_, ratio=0.5, seed=0: x,  # a network that is asked is not trained
    "Einsum": lambda *inputs, equation: torch.einsum(equation, *inputs),
    "Elu": lambda x, *, alpha=1.0: F.elu(x, alpha),
    "Equal": torch.eq,
    "Expand": lambda x, shape: x.expand(np.broadcast_shapes(x.shape, tuple(numbers(shape)))),
    "Flatten": _flatten,
    "Gather": _gather,
    "Gelu": lambda x, *, approximate="none": F.gelu(x, approximate=approximate),
    "Gemm": _gemm,
    "GlobalAveragePool": lambda x: x.mean(tuple(range(2, x.ndim)), keepdim=True),
    "GlobalMaxPool": lambda x: x.amax(tuple(range(2, x.ndim)), keepdim=True),
    "Greater": torch.gt,
    "GreaterOrEqual": torch.ge,
    "HardSigmoid": lambda x, *, alpha=0.2, beta=0.5: (x * float(alpha) + float(beta)).clamp(0, 1),
    "Identity": lambda x: x,
    "InstanceNormalization": lambda x, scale, bias, *, epsilon=1e-5: F.instance_norm(
        x, weight=scale, bias=bias, eps=epsilon
    ),
    "LRN": lambda x, *, size, alpha=1e-4, beta=0.75, bias=1.0: F.local_response_norm(x, size, alpha, beta, bias),
    "LayerNormalization": lambda x, scale, bias=None, *, axis=-1, epsilon=1e-5, stash_type=1: F.layer_norm(
        x, x.shape[axis % x.ndim :], scale, bias, epsilon
    ),
    "LeakyRelu": lambda x, *, alpha=0.01: F.leaky_relu(x, alpha),
    "Less": torch.lt,
    "LessOrEqual": torch.le,
    "LogSoftmax": lambda x, *, axis=-1: F.log_softmax(x, axis),
    "LogSoftmax before 13": lambda x, *, axis=1: _softmax_of_all(x, axis=axis).log(),
    "Max": lambda *x: reduce(torch.maximum, x),
    "MaxPool": _pool("max", -math.inf),
    "Min": lambda *x: reduce(torch.minimum, x),
    "Mod": lambda a, b, *, fmod=0: torch.fmod(a, b) if fmod else torch.remainder(a, b),
    "Not": torch.logical_not,
    "Or": torch.logical_or,
    "PRelu": lambda x, slope: torch.where(x < 0, x * slope, x),
    "Pad": _pad,
    "Range": lambda start, end, by: torch.arange(start.item(), end.item(), by.item(), dtype=start.dtype),
    "ReduceL2": _reduction(torch.linalg.vector_norm),
    "ReduceMax": _reduction(torch.amax),
    "ReduceMean": _reduction(torch.mean),
    "ReduceMin": _reduction(torch.amin),
    "ReduceSum": _reduction(torch.sum),
    "Reshape": _reshape,
    "Selu": lambda x, *, alpha=1.6732632423543772, gamma=1.0507009873554805: F.elu(x, alpha) * float(gamma),
    "Shape": lambda x, *, start=0, end=None: torch.tensor(x.shape[start:end], dtype=torch.int64, device="cpu"),
    "Slice": _slice,
    "Softmax": lambda x, *, axis=-1: F.softmax(x, axis),
    "Softmax before 13": _softmax_of_all,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": lambda *x: sum(x[1:], x[0]),
    "Tile": lambda x, repeats: x.repeat(numbers(repeats)),
    "Transpose": lambda x, *, perm=None: x.permute(perm or list(reversed(range(x.ndim)))),
    "Unsqueeze": _unsqueeze,
    "Where": lambda chosen, x, y: torch.where(chosen.to(x.device), x, y),
}
