"""Read a torch network as a list of the layers that bounds are known for.

torch.fx traces the model once while it computes, so its Python does not matter. What is computed from constants alone
is a constant. Unknown operations are refused by name, and so is what a trace cannot see: writes into memory that
another tensor reads, and values that leave torch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from sigmazero.certifier.layers import UNIT, Add, Conv, Input, Layer, MaxPool, Relu, Reshape, Scale, Value
from sigmazero.core.messages import one_line

ROWS = 3  # rows of the traced input: a size that few networks have elsewhere
EDGE = (0, 0, 0, 0)
KNOWN = (
    "Conv2d, Linear, ReLU, LeakyReLU, BatchNorm in eval mode, average and max pooling, zero padding, flatten, sums, "
    "numbers added or multiplied, and a softmax at the end"
)
# How far the model's own arithmetic may be off: per operation, and as a share of the largest logit. A GPU may use TF32.
ROUNDED: dict[str, tuple[float, float]] = {"cpu": (2.0**-18, 1e-4)}
COARSE = (2.0**-9, 4e-3)
UNITS = {torch.float32: 2.0**-24, torch.float64: UNIT}
SOFTMAX = ("softmax", "log_softmax")
# Ways to a tensor's values that torch.fx does not see.
LEAVING = ("data", "numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "storage", "untyped_storage", "set_")


class UnknownOperation(ValueError):
    """The network has an operation that no bounds are known for."""


@dataclass(frozen=True)
class Network:
    """Layers in the order of computation, from the input to the logits.

    softmax   the function of the logits that the model returns: "softmax", "log_softmax", or "" for the logits
    unit      the largest relative error of one operation in the model's own numbers
    """

    layers: tuple[Layer, ...]
    softmax: str = ""
    unit: float = UNITS[torch.float32]

    def values(self, x: Tensor, tick: Callable[[], None] = lambda: None) -> list[Value]:
        """Return every layer's values for inputs (rows, height, width, channels).

        tick   called before every layer
        """
        found = [Value(x, torch.zeros_like(x))]
        with torch.inference_mode():
            for layer in self.layers[1:]:
                assert not isinstance(layer, Input)
                tick()
                given = [found[source] for source in layer.sources]
                forward: Any = layer.forward
                value = forward(*(each.value for each in given))
                parts = [part for each in given for part in (each.value.abs(), each.error)]
                found.append(Value(value, layer.error(value.abs(), UNIT, *parts)))
        return found

    def expected(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output at points in torch's layout, and how far the model may be from it."""
        logits = self.values(image(points.double()))[-1]
        ours, rounding = logits.value[:, 0, 0], logits.error[:, 0, 0] / UNIT
        each, share = ROUNDED.get(points.device.type, COARSE)
        allowed = torch.minimum(each * rounding, share * ours.abs().max())
        if self.softmax:
            function = torch.log_softmax if self.softmax == "log_softmax" else torch.softmax
            ours, allowed = function(ours, 1), (2 * allowed.amax(1, keepdim=True) + share / 50).expand_as(ours)
        return ours, allowed

    def compare(self, logits: Tensor, points: Tensor) -> None:
        """Refuse a model whose output at these points differs from that of the layers."""
        check_output(logits, *self.expected(points))


def check_output(output: Tensor, expected: Tensor, allowed: Tensor) -> None:
    """Refuse a model whose output differs from the expected one."""
    if not bool(((output.double() - expected).abs() <= allowed).all()):
        raise UnknownOperation(
            "the traced layers do not reproduce the model's output at a point of the box; "
            "does its control flow depend on data, on the batch or on earlier calls?"
        )


def trace(model: nn.Module, x: Tensor) -> Network:
    """Return the layers of a model for inputs like these, in float64 and on their device."""
    if x.ndim not in (2, 3, 4):
        raise ValueError(f"inputs have shape {tuple(x.shape)}; vectors and images can be certified")
    sample = x[:1].expand(ROWS, *x.shape[1:]).clone()
    with torch.no_grad():
        before = _state(model)
        watch = _Watch(sample.clone())
        try:
            with _Unseen(watch), watch:
                answer = model(watch.given)
            for tensor in tree_leaves(answer):
                if isinstance(tensor, Tensor):
                    watch._read(tensor, "the model's answer")
            program = make_fx(model, pre_dispatch=True)(sample)
        except UnknownOperation:
            raise
        except Exception as error:  # a model may raise anything when its values are traced
            if watch.unseen:  # TorchScript replaced our error by its own
                raise UnknownOperation(watch.unseen) from error
            kinds = {p.dtype for p in model.parameters()} - {x.dtype}
            hint = f"; its weights are {kinds.pop()} and the inputs {x.dtype}, bring one to the other" if kinds else ""
            raise UnknownOperation(f"the model cannot be traced by torch.fx ({one_line(error)}){hint}") from error
        network = _read(program, sample)
        _check_steady(model, network, x)
        after = _state(model)
        same = {name for name in before.keys() & after.keys() if torch.equal(before[name], after[name])}
        if changed := [name for name in before | after if name not in same]:
            raise ValueError(f"the model changes {changed[0]} while it computes; a certificate needs one that does not")
    return network


def _state(model: nn.Module) -> dict[str, Tensor]:
    named = (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))
    return {name: tensor.detach().clone() for name, tensor in named}


def _check_steady(model: nn.Module, network: Network, x: Tensor) -> None:
    """Refuse a model whose answers differ from those of its layers, or from call to call."""
    noise = torch.rand(ROWS, *x.shape[1:], generator=torch.Generator().manual_seed(0), device="cpu").to(x)
    for points in (x[:ROWS], noise):
        given = points.clone()
        first, again = model(given), model(points.clone())
        if not torch.equal(given, points):
            raise ValueError("the model writes into its input; use operations that are not in place there")
        if not bool(first.isfinite().all()):
            raise ValueError("the model's answer holds NaN or Inf; nothing can be proved about it")
        if not torch.equal(first, again):
            raise ValueError("the model's answers differ from call to call; a certificate needs a deterministic model")
        network.compare(first, points)


def _read(program: Any, sample: Tensor) -> Network:
    """Return the layers of a traced program."""
    layers = Layers(sample, [Input(shape_of(sample))])
    known: dict[Any, Any] = {}
    casts: list[torch.autocast] = []  # entered by the program and not left
    try:
        for node in program.graph.nodes:
            if node.op == "placeholder":
                known[node] = Traced(0, sample.clone())
            elif node.op == "get_attr":
                known[node] = getattr(program, node.target)
            elif node.op == "call_function":
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda each: known[each])
                known[node] = _called(layers, node.target, args, kwargs)
                casts = [cast for cast in casts if not any(cast is given for given in args)]
                casts += [known[node]] if isinstance(known[node], torch.autocast) else []
    finally:
        for cast in reversed(casts):  # where the program is refused halfway
            cast.__exit__(None, None, None)
    (answer,) = next(node for node in program.graph.nodes if node.op == "output").args
    found = known[answer] if isinstance(answer, torch.fx.Node) else None
    if not isinstance(found, Traced) or found.sample.ndim != 2:
        raise UnknownOperation("the model's output is not a row of logits for each input")
    if found.place != len(layers.found) - 1:  # other values were computed after the logits
        layers.scale(found.sample, found.place, 1.0)
    return Network(tuple(layers.found), found.ending, layers.unit)


def _called(layers: "Layers", target: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of a call: a constant, or a value that depends on the input."""
    given: list[Traced] = []
    torch.fx.node.map_aggregate((args, kwargs), lambda a: given.append(a) if isinstance(a, Traced) else None)
    plain: Any = torch.fx.node.map_aggregate((args, kwargs), lambda a: a.sample if isinstance(a, Traced) else a)
    if not given:
        return target(*plain[0], **plain[1])
    name = str(target).removeprefix("aten.").rpartition(".")[0].lstrip("_")
    make = OPERATIONS.get(name) or OPERATIONS.get(name.rstrip("_"))
    softmax = next((each.ending for each in given if each.ending), "")
    if make is None or (softmax and make is not _same):
        where = f"after {softmax}, " if softmax else ""
        raise UnknownOperation(f"{where}the operation {target} is not known here; what can be certified: {KNOWN}")
    found = target(*plain[0], **plain[1])  # shapes are torch's own
    if found.dtype not in UNITS:
        raise UnknownOperation(f"values become {found.dtype}, which rounds them; float32 and float64 can be certified")
    layers.unit = max(layers.unit, UNITS[found.dtype])
    try:
        place = make(layers, found, *args, **kwargs)
    except TypeError as error:
        raise UnknownOperation(f"the operation {target} with these settings is not known here") from error
    return Traced(place, found, name if name in SOFTMAX else softmax)


@dataclass(frozen=True, eq=False)
class Traced:
    """A layer's output, its value for the traced input, and the softmax after it, if any."""

    place: int
    sample: Tensor
    ending: str = ""


@dataclass(eq=False)
class Layers:
    """The layers read so far, and the largest unit of rounding among their values."""

    like: Tensor
    found: list[Layer] = field(default_factory=list)
    unit: float = UNIT

    def add(self, layer: Layer) -> int:
        """Add a layer and return its place."""
        self.found.append(layer)
        return len(self.found) - 1

    def scale(self, sample: Tensor, place: int, factor: Any, shift: Any = 0.0) -> int:
        """Add a product with a factor and a sum with a shift: a number, or one for each value."""
        like = self.like.new_ones(1, dtype=torch.float64)
        numbers = like * factor, like * shift
        return self.add(Scale(shape_of(sample), (place,), numbers[0], numbers[1], numbers[1].abs()))


def image(x: Tensor) -> Tensor:
    """Return inputs (rows, channels, height, width), or vectors, as (rows, height, width, channels)."""
    return x[:, None, None] if x.ndim == 2 else x[:, :, None].movedim(1, -1) if x.ndim == 3 else x.movedim(1, -1)


def shape_of(sample: Tensor) -> tuple[int, int, int]:
    """Return height, width and channels of one row."""
    if sample.ndim not in (2, 3, 4) or len(sample) != ROWS:
        raise UnknownOperation(f"values of shape {tuple(sample.shape)} occur; vectors and images can be certified")
    _, h, w, c = image(sample).shape
    return h, w, c


OPERATIONS: dict[str, Callable[..., int]] = {}


def operation(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register a function that reads these operations of torch."""

    def note(function: Callable[..., int]) -> Callable[..., int]:
        OPERATIONS.update(dict.fromkeys(names, function))
        return function

    return note


@operation("linear")
def _linear(layers: Layers, found: Tensor, x: Traced, weight: Tensor, bias: Tensor | None = None) -> int:
    if not isinstance(x, Traced) or isinstance(weight, Traced) or x.sample.ndim != 2:
        raise UnknownOperation("a linear layer is known here for one vector per input only")
    before, source = layers.found[x.place], x.place
    h, w, c = before.shape
    if isinstance(before, Reshape):  # a linear layer of an image: its window is the whole image
        source, (h, w, c) = before.sources[0], before.before
    inner = weight.double().reshape(-1, c, h, w).permute(0, 2, 3, 1)[None].contiguous()
    return layers.add(Conv(shape_of(found), (source,), inner, _bias(bias, weight)))


@operation("addmm")
def _addmm(layers: Layers, found: Tensor, bias: Tensor, x: Traced, weight: Tensor, **more: Any) -> int:
    if more or isinstance(bias, Traced):
        raise UnknownOperation("a matrix product with own factors is not known here")
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
    """Return the edge of "same" or "valid"; torch adds an odd zero below and at the right."""
    if padding == "valid":
        return EDGE
    if padding != "same":
        raise UnknownOperation(f"a convolution with padding={padding!r} is not known here; 'same' and 'valid' are")
    high, wide = (step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True))
    return high // 2, high - high // 2, wide // 2, wide - wide // 2


@operation("constant_pad_nd", "pad")
def _zeros_around(layers: Layers, found: Tensor, x: Traced, pad: Any, *how: Any, **more: Any) -> int:
    """Read zero padding as windows of one value, with an edge."""
    _images(x)
    left, right, top, bottom, *others = [*pad, 0, 0][: max(4, len(pad))]
    mode = [each for each in (*how, *more.values()) if each not in (0, None, "constant")]
    if mode or any(others) or min(left, right, top, bottom) < 0:
        raise UnknownOperation("padding other than of height and width with zeros is not known here")
    return _mean(layers, found, x, (1, 1), (1, 1), (top, bottom, left, right))


def _images(x: Traced) -> None:
    """Refuse values without channels: torch would take the rows for channels."""
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
        raise ValueError("a batch norm is in training mode: its output depends on the batch; call model.eval() first")
    factor = (1.0 if weight is None else weight.double()) / (variance.double() + eps).sqrt()
    least = torch.zeros_like(factor) if bias is None else bias.double()
    size = least.abs() + (mean.double() * factor).abs()
    return layers.add(Scale(shape_of(found), (x.place,), factor, least - mean.double() * factor, size))


@operation("add")
def _sum(layers: Layers, found: Tensor, x: Any, other: Any, *, alpha: float = 1) -> int:
    factor = float(alpha)
    if isinstance(x, Traced) and isinstance(other, Traced):
        if x.sample.shape != other.sample.shape:
            raise UnknownOperation("a sum of two computed values with different shapes is not known here")
        second = other.place if factor == 1 else layers.scale(found, other.place, factor)
        return layers.add(Add(shape_of(found), (x.place, second)))
    if isinstance(x, Traced):
        return layers.scale(found, _whole(x, found), 1.0, _constant(other, found) * factor)
    return layers.scale(found, _whole(other, found), factor, _constant(x, found))


@operation("sub")
def _difference(layers: Layers, found: Tensor, x: Any, other: Any, *, alpha: float = 1) -> int:
    return _sum(layers, found, x, other, alpha=-alpha)


@operation("mul")
def _product(layers: Layers, found: Tensor, x: Any, other: Any) -> int:
    if isinstance(x, Traced) and isinstance(other, Traced):
        raise UnknownOperation("a product of two computed values is not known here")
    value, number = (x, other) if isinstance(x, Traced) else (other, x)
    return layers.scale(found, _whole(value, found), _constant(number, found))


@operation("div")
def _quotient(layers: Layers, found: Tensor, x: Any, other: Any, **more: Any) -> int:
    if not isinstance(x, Traced) or isinstance(other, Traced) or more:
        raise UnknownOperation("a division by a computed value, or with rounding, is not known here")
    return layers.scale(found, _whole(x, found), 1 / _constant(other, found))


@operation("neg")
def _negative(layers: Layers, found: Tensor, x: Traced) -> int:
    return layers.scale(found, x.place, -1.0)


def _whole(value: Traced, found: Tensor) -> int:
    if value.sample.shape != found.shape:
        raise UnknownOperation("broadcasting a computed value to a larger shape is not known here")
    return value.place


def _constant(number: Any, found: Tensor) -> Tensor:
    """Return a constant in the layout of our values, without rows."""
    tensor = torch.as_tensor(number, dtype=torch.float64, device=found.device)
    return image(tensor.expand(found.shape)[:1].contiguous())[0]


@operation("dropout", "feature_dropout", "alpha_dropout")
def _dropout(layers: Layers, found: Tensor, x: Traced, share: float, training: bool) -> int:
    if training and share > 0:
        raise ValueError("dropout is active, so the model's answers are random; call model.eval() first")
    return x.place


@operation("clone", "contiguous", "detach", "alias", "lift_fresh_copy", "to", "to_copy")
def _same(layers: Layers, found: Tensor, x: Traced, *rest: Any, **more: Any) -> int:
    return x.place if found.dtype == x.sample.dtype else layers.scale(found, x.place, 1.0)  # a cast rounds


@operation(*SOFTMAX)
def _softmax(layers: Layers, found: Tensor, x: Traced, dim: int, *rest: Any) -> int:
    """Leave out a softmax over the classes: the largest logit stays the largest. It must come last."""
    if x.sample.ndim != 2 or dim % 2 != 1:
        raise UnknownOperation("a softmax is known here only over the classes, at the end")
    return x.place


@operation("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "unsafe_view")
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


class _Watch(TorchFunctionMode):
    """Follow every call of torch, and refuse what a trace would miss.

    A trace reads an operation that writes into a tensor as one that returns a new tensor. Other tensors in the same
    memory keep the old value in the trace but have the new one in the model, so they must not be read any more.
    """

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.given = given
        self.alive: list[Tensor] = []  # so that no new tensor gets the id of an old one
        self.computed: set[int] = set()  # memory with values computed from the input
        self.writers: dict[int, str] = {}  # memory that was written into, and by which operation
        self.current: dict[int, set[int]] = {}  # the tensors that may still be read there
        self.depth = 0  # of followed calls
        self.unseen = ""  # the error of `_Unseen`
        self.versions: dict[int, int] = {}  # of each tensor when it was last read
        self._note(given, computed=True)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Check the tensors that are read, call the function, and note what it wrote."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        name = str(getattr(func, "__name__", func))
        name = str(func.__self__.__name__) if name in ("__get__", "__set__") else name  # of a property
        computed = any([self._read(tensor, name) for tensor in tensors])
        if any(tensor.is_inference() for tensor in tensors):  # it has no version
            raise UnknownOperation(f"{name} runs in inference mode, where writing in place goes unseen; use no_grad")
        versions = [tensor._version for tensor in tensors]
        self.depth += 1
        try:
            found = func(*args, **(kwargs or {}))
        finally:
            self.depth -= 1
        untouched, written = set(), dict[int, set[int]]()
        for tensor, version in zip(tensors, versions, strict=True):
            if tensor._version == version:
                untouched.add(id(tensor))
            else:
                written.setdefault(_memory(tensor), set()).add(id(tensor))
                self._note(tensor, computed)
                self.versions[id(tensor)] = tensor._version
        for place, names in written.items():
            self.writers[place] = name
            self.current[place] = names if len(names) == 1 else set()  # of several names only the returned one

        def result(tensor: Tensor) -> Tensor:
            # Some functions return their argument where the trace has a new tensor: Dropout in eval mode.
            tensor = tensor.detach() if id(tensor) in untouched else tensor
            self._note(tensor, computed)
            if not tensor.is_inference():
                self.versions[id(tensor)] = tensor._version
            return tensor

        return tree_map_only(Tensor, result, found)

    def _note(self, tensor: Tensor, computed: bool) -> None:
        place = _memory(tensor)
        self.alive.append(tensor)
        self.current.setdefault(place, set()).add(id(tensor))
        if computed:
            self.computed.add(place)

    def _read(self, tensor: Tensor, name: str) -> bool:
        """Return whether a tensor was computed from the input; refuse one with another value in the trace."""
        place = _memory(tensor)
        if place in self.writers and id(tensor) not in self.current[place]:
            writer = self.writers[place]
            raise UnknownOperation(
                f"{writer} writes in place into memory that another tensor shares (a view, reshape or detach), and "
                f"{name} reads that tensor afterwards; use the form of {writer} that is not in place, or x = x.clone()"
            )
        if place in self.computed and name in LEAVING:
            raise UnknownOperation(
                f"the model takes computed values out of torch by .{name}, which cannot be traced; "
                "compute with tensors alone, with .detach().clone() for a copy without gradients"
            )
        if place in self.computed and id(tensor) not in self.current[place]:
            raise UnknownOperation(
                f"{name} reads computed values through a tensor that torch did not make (DLPack, a shared array); "
                "compute with tensors alone, with x.clone() for a copy"
            )
        if not tensor.is_inference() and tensor._version != self.versions.setdefault(id(tensor), tensor._version):
            raise UnknownOperation(
                f"a tensor that {name} reads was changed by another thread or an autograd.Function, which is not traced"
            )
        self._note(tensor, computed=False)
        return place in self.computed


class _Unseen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuse writes that `_Watch` does not see: in TorchScript, or where torch functions are disabled."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse a write outside of followed calls, and call the function."""
        if not self.watch.depth and func._schema.is_mutable:
            self.watch.unseen = (
                f"{func} writes in place inside TorchScript, or where torch functions are disabled, and is not traced; "
                "use the form that is not in place, and eager modules"
            )
            raise UnknownOperation(self.watch.unseen)
        return func(*args, **(kwargs or {}))


def _memory(tensor: Tensor) -> int:
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        return int(storage.data_ptr() or storage._cdata)  # two storages may share an array, or memory by DLPack
