"""Read a torch network as a list of the layers that bounds are known for.

torch.fx traces the model once while it computes, so its Python does not matter. What is computed from constants alone
is a constant. Unknown operations are refused by name, and so is what a trace cannot see: writes into memory that
another tensor reads, and values that leave torch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from sigmazero.certifier.layers import UNIT, Add, Conv, Input, Layer, MaxPool, Pair, Relu, Reshape, Scale, Value
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


def require(known: bool, refusal: str) -> None:
    """Refuse a network unless something about it is known."""
    if not known:
        raise UnknownOperation(refusal)


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
    require(
        bool(((output.double() - expected).abs() <= allowed).all()),
        "the traced layers do not reproduce the model's output at a point of the box; "
        "does its control flow depend on data, on the batch or on earlier calls?",
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


def _read(program: torch.fx.GraphModule, sample: Tensor) -> Network:
    """Return the layers of a traced program."""
    reader = _Reader(program, sample)
    try:
        found = reader.run(Traced(0, sample.clone()))
    finally:
        for cast in reversed(reader.casts):  # where the program is refused halfway
            cast.__exit__(None, None, None)
    logits = isinstance(found, Traced) and found.sample.ndim == 2
    require(logits, "the model's output is not a row of logits for each input")
    if found.place != len(reader.layers) - 1:  # other values were computed after the logits
        Call(reader.layers, found.sample).scale(found, 1.0)
    return Network(tuple(reader.layers), found.ending, reader.unit)


class _Reader(torch.fx.Interpreter):
    """Run a program with places of layers where it has values computed from the input."""

    def __init__(self, program: torch.fx.GraphModule, sample: Tensor) -> None:
        super().__init__(program)
        self.extra_traceback = False
        self.layers: list[Layer] = [Input(shape_of(sample))]
        self.unit = UNIT  # the largest of the computed values
        self.casts: list[torch.autocast] = []  # entered by the program and not left

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of a call: a constant, or a value that depends on the input."""
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Traced)]
        if given:
            return self._computed(target, args, kwargs, next((each.ending for each in given if each.ending), ""))
        found = target(*args, **kwargs)
        self.casts = [cast for cast in self.casts if not any(cast is each for each in args)]
        self.casts += [found] if isinstance(found, torch.autocast) else []
        return found

    def _computed(self, target: Any, args: Any, kwargs: Any, softmax: str) -> "Traced":
        """Return the result of a call with values that depend on the input, perhaps after a softmax."""
        name = str(target).removeprefix("aten.").rpartition(".")[0].lstrip("_")
        called = f"{name} (the operation {target})" if str(target).startswith("aten.") else f"the operation {target}"
        read: Any = getattr(Call, f"_read_{name}", None) or getattr(Call, f"_read_{name.rstrip('_')}", None)
        if read is None or (softmax and read is not Call._read_clone):
            where = f"after {softmax}, " if softmax else ""
            raise UnknownOperation(f"{where}{called} is not known here; what can be certified: {KNOWN}")
        plain, named = tree_map_only(Traced, lambda each: each.sample, (args, kwargs))
        found = target(*plain, **named)  # shapes are torch's own
        kept = found.dtype in UNITS
        require(kept, f"values become {found.dtype}, which rounds them; float32 and float64 can be certified")
        self.unit = max(self.unit, UNITS[found.dtype])
        try:
            place = read(Call(self.layers, found), *args, **kwargs)
        except TypeError as error:
            raise UnknownOperation(f"{called} with these settings is not known here") from error
        return Traced(place, found, name if name in SOFTMAX else softmax)


@dataclass(frozen=True, eq=False)
class Traced:
    """A layer's output, its value for the traced input, and the softmax after it, if any."""

    place: int
    sample: Tensor
    ending: str = ""


@dataclass(frozen=True, eq=False)
class Call:
    """A call in the program: the layers read before it, and what it returns for the traced input.

    `_read_NAME` reads the operation of this name; all others are not known.
    """

    layers: list[Layer]
    found: Tensor

    @property
    def shape(self) -> tuple[int, int, int]:
        """Return height, width and channels of one row of the result."""
        return shape_of(self.found)

    def add(self, layer: Layer) -> int:
        """Add a layer and return its place."""
        self.layers.append(layer)
        return len(self.layers) - 1

    def scale(self, x: Traced, factor: Any, shift: Any = 0.0) -> int:
        """Add a product with a factor and a sum with a shift: a number, or one for each value."""
        same = x.sample.shape == self.found.shape
        require(same, "broadcasting a computed value to a larger shape is not known here")
        factor, shift = (self.found.new_ones(1, dtype=torch.float64) * each for each in (factor, shift))
        return self.add(Scale(self.shape, (x.place,), factor, shift, shift.abs()))

    def mean(self, x: Traced, kernel: Pair, stride: Pair, edge: tuple[int, int, int, int] = EDGE) -> int:
        """Add means of windows."""
        require_image(x)
        channels, like = self.layers[x.place].shape[2], self.found.new_empty(0, dtype=torch.float64)
        weight = like.new_full((channels, 1, *kernel, 1), 1 / math.prod(kernel))
        return self.add(Conv(self.shape, (x.place,), weight, like.new_zeros(channels), stride, edge))

    def constant(self, number: Any) -> Tensor:
        """Return a constant in the layout of our values, without rows."""
        tensor = torch.as_tensor(number, dtype=torch.float64, device=self.found.device)
        return image(tensor.expand(self.found.shape)[:1].contiguous())[0]

    def _read_linear(self, x: Traced, weight: Tensor, bias: Tensor | None = None) -> int:
        known = isinstance(x, Traced) and not isinstance(weight, Traced) and x.sample.ndim == 2
        require(known, "a linear layer is known here for one vector per input only")
        before, source = self.layers[x.place], x.place
        h, w, c = before.shape
        if isinstance(before, Reshape):  # a linear layer of an image: its window is the whole image
            source, (h, w, c) = before.sources[0], before.before
        inner = weight.double().reshape(-1, c, h, w).permute(0, 2, 3, 1)[None].contiguous()
        return self.add(Conv(self.shape, (source,), inner, _bias(bias, weight)))

    def _read_addmm(self, bias: Tensor, x: Traced, weight: Tensor, **more: Any) -> int:
        require(not more and not isinstance(bias, Traced), "a matrix product with own factors is not known here")
        return self._read_linear(x, weight.T, bias.expand(weight.shape[1]))

    def _read_matmul(self, x: Traced, weight: Tensor) -> int:
        require(
            not isinstance(weight, Traced) and weight.ndim == 2, "a product of two computed matrices is not known here"
        )
        return self._read_linear(x, weight.T)

    _read_mm = _read_matmul

    def _read_conv2d(
        self, x: Traced, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, *how: Any
    ) -> int:
        require_image(x)
        require(not isinstance(weight, Traced), "a convolution with computed weights is not known here")
        dilation, groups = _settings(how, 1, 1)
        own = weight.double().reshape(groups, -1, *weight.shape[1:]).permute(0, 1, 3, 4, 2).contiguous()
        edge = _named(padding, weight, _pair(dilation)) if isinstance(padding, str) else _around(padding)
        return self.add(Conv(self.shape, (x.place,), own, _bias(bias, weight), _pair(stride), edge, _pair(dilation)))

    def _read_constant_pad_nd(self, x: Traced, pad: Any, *how: Any, **more: Any) -> int:
        """Read zero padding as windows of one value, with an edge."""
        left, right, top, bottom, *others = [*pad, 0, 0][: max(4, len(pad))]
        zeros = all(each in (0, None, "constant") for each in (*how, *more.values()))
        known = zeros and not any(others) and min(left, right, top, bottom) >= 0
        require(known, "padding other than of height and width with zeros is not known here")
        return self.mean(x, (1, 1), (1, 1), (top, bottom, left, right))

    _read_pad = _read_constant_pad_nd

    def _read_relu(self, x: Traced) -> int:
        return self.add(Relu(self.shape, (x.place,)))

    def _read_leaky_relu(self, x: Traced, slope: float = 0.01) -> int:
        require(0 <= slope <= 1, f"a LeakyReLU of slope {slope} is not known here; one between 0 and 1 is")
        return self.add(Relu(self.shape, (x.place,), float(slope)))

    def _read_batch_norm(self, x: Traced, *given: Any) -> int:
        weight, bias, mean, variance, training, _momentum, eps, *_ = given
        if training or mean is None or variance is None:
            raise ValueError(
                "a batch norm is in training mode: its output depends on the batch; call model.eval() first"
            )
        factor = (1.0 if weight is None else weight.double()) / (variance.double() + eps).sqrt()
        least = torch.zeros_like(factor) if bias is None else bias.double()
        size = least.abs() + (mean.double() * factor).abs()
        return self.add(Scale(self.shape, (x.place,), factor, least - mean.double() * factor, size))

    def _read_add(self, x: Any, other: Any, *, alpha: float = 1) -> int:
        factor = float(alpha)
        if isinstance(x, Traced) and isinstance(other, Traced):
            same = x.sample.shape == other.sample.shape
            require(same, "a sum of two computed values with different shapes is not known here")
            second = other.place if factor == 1 else self.scale(other, factor)
            return self.add(Add(self.shape, (x.place, second)))
        if isinstance(x, Traced):
            return self.scale(x, 1.0, self.constant(other) * factor)
        return self.scale(other, factor, self.constant(x))

    def _read_sub(self, x: Any, other: Any, *, alpha: float = 1) -> int:
        return self._read_add(x, other, alpha=-alpha)

    def _read_mul(self, x: Any, other: Any) -> int:
        both = isinstance(x, Traced) and isinstance(other, Traced)
        require(not both, "a product of two computed values is not known here")
        value, number = (x, other) if isinstance(x, Traced) else (other, x)
        return self.scale(value, self.constant(number))

    def _read_div(self, x: Any, other: Any, **more: Any) -> int:
        known = isinstance(x, Traced) and not isinstance(other, Traced) and not more
        require(known, "a division by a computed value, or with rounding, is not known here")
        return self.scale(x, 1 / self.constant(other))

    def _read_neg(self, x: Traced) -> int:
        return self.scale(x, -1.0)

    def _read_dropout(self, x: Traced, share: float, training: bool) -> int:
        if training and share > 0:
            raise ValueError("dropout is active, so the model's answers are random; call model.eval() first")
        return x.place

    _read_feature_dropout = _read_alpha_dropout = _read_dropout

    def _read_clone(self, x: Traced, *rest: Any, **more: Any) -> int:
        return x.place if self.found.dtype == x.sample.dtype else self.scale(x, 1.0)  # a cast rounds

    _read_contiguous = _read_detach = _read_alias = _read_lift_fresh_copy = _read_to = _read_to_copy = _read_clone

    def _read_softmax(self, x: Traced, dim: int, *rest: Any) -> int:
        """Leave out a softmax over the classes: the largest logit stays the largest. It must come last."""
        require(x.sample.ndim == 2 and dim % 2 == 1, "a softmax is known here only over the classes, at the end")
        return x.place

    _read_log_softmax = _read_softmax

    def _read_view(self, x: Traced, *rest: Any, **more: Any) -> int:
        before = self.layers[x.place].shape
        return x.place if before == self.shape else self.add(Reshape(self.shape, (x.place,), before))

    _read_reshape = _read_flatten = _read_unflatten = _read_squeeze = _read_unsqueeze = _read_unsafe_view = _read_view

    def _read_avg_pool2d(self, x: Traced, kernel: Any, stride: Any = (), padding: Any = 0, *how: Any) -> int:
        edge = _around(padding)
        ceil_mode, counts_edge, divisor = _settings(how, False, True, None)
        known = not ceil_mode and not divisor and (counts_edge or not any(edge))
        require(known, "an average pool with ceil_mode, a divisor of its own or uncounted padding is not known here")
        return self.mean(x, _pair(kernel), _pair(stride or kernel), edge)

    def _read_adaptive_avg_pool2d(self, x: Traced, size: Any) -> int:
        require_image(x)
        (h, w, _), (rows, columns, _) = self.layers[x.place].shape, self.shape
        known = h % rows == w % columns == 0
        require(known, f"an adaptive pool from {h} x {w} to {rows} x {columns} has uneven windows")
        return self.mean(x, (h // rows, w // columns), (h // rows, w // columns))

    def _read_mean(self, x: Traced, dims: Any = None, keepdim: bool = False, **more: Any) -> int:
        known = x.sample.ndim == 4 and sorted(d % 4 for d in dims or ()) == [2, 3]
        require(known, f"a mean over the dimensions {dims} is not known here; over height and width it is")
        return self.mean(x, self.layers[x.place].shape[:2], (1, 1))

    def _read_max_pool2d(self, x: Traced, kernel: Any, stride: Any = (), padding: Any = 0, *how: Any) -> int:
        require_image(x)
        dilation, ceil_mode = _settings(how, 1, False)
        require(not ceil_mode, "a max pool with ceil_mode is not known here")
        sizes = _pair(kernel), _pair(stride or kernel), _around(padding), _pair(dilation)
        return self.add(MaxPool(self.shape, (x.place,), *sizes))


def image(x: Tensor) -> Tensor:
    """Return inputs (rows, channels, height, width), or vectors, as (rows, height, width, channels)."""
    return x[:, None, None] if x.ndim == 2 else x[:, :, None].movedim(1, -1) if x.ndim == 3 else x.movedim(1, -1)


def shape_of(sample: Tensor) -> tuple[int, int, int]:
    """Return height, width and channels of one row."""
    known = sample.ndim in (2, 3, 4) and len(sample) == ROWS
    require(known, f"values of shape {tuple(sample.shape)} occur; vectors and images can be certified")
    _, h, w, c = image(sample).shape
    return h, w, c


def require_image(x: Traced) -> None:
    """Refuse windows of values without channels: torch would take the rows for channels."""
    shape = tuple(x.sample.shape[1:])
    require(len(shape) == 3, f"windows of values of shape {shape} are not known here; (channels, height, width) are")


def _named(padding: str, weight: Tensor, dilation: Pair) -> tuple[int, int, int, int]:
    """Return the edge of "same" or "valid"; torch adds an odd zero below and at the right."""
    if padding == "valid":
        return EDGE
    high, wide = (step * (size - 1) for step, size in zip(dilation, weight.shape[2:], strict=True))
    return high // 2, high - high // 2, wide // 2, wide - wide // 2


def _bias(bias: Tensor | None, weight: Tensor) -> Tensor:
    return torch.zeros(len(weight), dtype=torch.float64, device=weight.device) if bias is None else bias.double()


def _settings(given: tuple[Any, ...], *usual: Any) -> list[Any]:
    """Return settings, with the usual ones where the program ends before them."""
    return [*given, *usual[len(given) :]]


def _pair(value: Any) -> Pair:
    given = list(value) if isinstance(value, list | tuple) else [value]
    return given[0], given[-1]


def _around(padding: Any) -> tuple[int, int, int, int]:
    high, wide = _pair(padding)
    return high, high, wide, wide


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
