"""A network as a list of the few operations that bounds are known for.

The model is traced once by torch.fx while it computes, so that its Python does not matter. Whatever is computed from
constants alone is a constant. An operation that is not known is named and refused.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

from sigmazero.certifier.aliases import refuse_aliases
from sigmazero.certifier.layers import Input, Layer
from sigmazero.certifier.operations import OPERATIONS, ROWS, Traced, UnknownOperation, image, start
from sigmazero.certifier.rounding import UNIT
from sigmazero.core.messages import one_line

__all__ = ["Layered", "UnknownOperation", "image", "trace"]

KNOWN = (
    "Conv2d, Linear, ReLU, LeakyReLU, BatchNorm in eval mode, average and max pooling, zero padding, flatten, sums, "
    "and numbers added or multiplied"
)
# What a model's own arithmetic may be off: of each operation, and of the largest logit. On a GPU it may be TF32.
ROUNDED: dict[str, tuple[float, float]] = {"cpu": (2.0**-18, 1e-4)}
COARSE = (2.0**-9, 4e-3)
WIDE = (torch.float32, torch.float64)


@dataclass(frozen=True)
class Layered:
    """Layers in the order in which they are computed; the first is the input, the last the logits."""

    layers: tuple[Layer, ...]

    @property
    def readers(self) -> list[list[int]]:
        """Which layers read each layer."""
        found: list[list[int]] = [[] for _ in self.layers]
        for place, layer in enumerate(self.layers):
            for source in layer.sources:
                found[source].append(place)
        return found

    def values(self, x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Every layer's values for inputs (rows, height, width, channels), and by how much each may be off."""
        values, errors = [x], [torch.zeros_like(x)]
        for layer in self.layers[1:]:
            assert not isinstance(layer, Input)
            given: Any = [part for source in layer.sources for part in (values[source], errors[source])]
            value, error = layer.forward(*given)
            values.append(value)
            errors.append(error)
        return values, errors


def trace(model: nn.Module, x: Tensor) -> Layered:
    """The network that a model is for inputs like these, in float64 and on their device."""
    if x.ndim not in (2, 3, 4):
        raise ValueError(f"inputs have shape {tuple(x.shape)}; vectors and images can be certified")
    sample = x[:1].expand(ROWS, *x.shape[1:]).clone()
    with torch.no_grad():
        try:
            refuse_aliases(model, sample.clone())
            program = make_fx(model, pre_dispatch=True)(sample)
        except UnknownOperation:
            raise
        except Exception as error:  # whatever a model may raise when its values are looked at
            kinds = {p.dtype for p in model.parameters()} - {x.dtype}
            hint = f"; its weights are {kinds.pop()} and the inputs {x.dtype}, bring one to the other" if kinds else ""
            raise UnknownOperation(f"the model cannot be traced by torch.fx ({one_line(error)}){hint}") from error
        network = _read(program, sample)
        _same(model, network, x)
    return network


def _same(model: nn.Module, network: Layered, x: Tensor) -> None:
    """Refuse a model that answers otherwise than its operations, or otherwise each time."""
    noise = torch.rand(ROWS, *x.shape[1:], generator=torch.Generator().manual_seed(0), device="cpu").to(x)
    for points in (x[:ROWS], noise):
        given = points.clone()
        first, again = model(given), model(points.clone())
        if not torch.equal(given, points):
            raise ValueError("the model writes into its input; let it compute without in-place operations there")
        if not bool(first.isfinite().all()):
            raise ValueError("the model's answer holds NaN or Inf; nothing can be proved about it")
        if not torch.equal(first, again):
            raise ValueError("the model answers otherwise each time; a certificate needs one without chance in it")
        values, errors = network.values(image(points.double()))
        ours, rounding = values[-1][:, 0, 0], errors[-1][:, 0, 0] / UNIT
        each, share = ROUNDED.get(x.device.type, COARSE)
        allowed = torch.minimum(each * rounding, share * ours.abs().max())
        if not bool(((first.double() - ours).abs() <= allowed).all()):
            raise UnknownOperation("the model answers otherwise than its traced operations; its course depends on data")


def _read(program: Any, sample: Tensor) -> Layered:
    """The layers of a traced program."""
    layers = start(sample)
    known: dict[Any, Any] = {}
    casts: list[torch.autocast] = []  # that the program has entered and not left

    def value(node: Any) -> Any:
        return known[node]

    try:
        for node in program.graph.nodes:
            if node.op == "placeholder":
                known[node] = Traced(0, sample.clone())
            elif node.op == "get_attr":
                known[node] = getattr(program, node.target)
            elif node.op == "call_function":
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), value)
                known[node] = _called(layers, node.target, args, kwargs)
                casts = [cast for cast in casts if not any(cast is given for given in args)]
                casts += [known[node]] if isinstance(known[node], torch.autocast) else []
    finally:
        for cast in reversed(casts):  # a program that is refused halfway
            cast.__exit__(None, None, None)
    (answer,) = next(node for node in program.graph.nodes if node.op == "output").args
    found = known[answer] if isinstance(answer, torch.fx.Node) else None
    if not isinstance(found, Traced) or found.sample.ndim != 2:
        raise UnknownOperation("the model's answer is no row of logits for each input")
    if found.place != len(layers.found) - 1:  # something else was computed after it
        layers.scale(found.sample, found.place, 1.0)
    return Layered(tuple(layers.found))


def _called(layers: Any, target: Any, args: Any, kwargs: Any) -> Any:
    """What a call gives: a constant, or a value that depends on the input."""
    given: list[Any] = []
    torch.fx.node.map_aggregate((args, kwargs), lambda a: given.append(a) if isinstance(a, Traced) else None)
    plain: Any = torch.fx.node.map_aggregate((args, kwargs), lambda a: a.sample if isinstance(a, Traced) else a)
    if not given:
        return target(*plain[0], **plain[1])
    name = str(target).removeprefix("aten.").rpartition(".")[0]
    make = OPERATIONS.get(name) or OPERATIONS.get(name.rstrip("_"))
    if make is None:
        raise UnknownOperation(f"the operation {target} is not known here; what can be certified: {KNOWN}")
    found = target(*plain[0], **plain[1])  # shapes are torch's own
    if found.dtype not in WIDE:
        raise UnknownOperation(f"values become {found.dtype}, which rounds them; float32 and float64 can be certified")
    try:
        return Traced(make(layers, found, *args, **kwargs), found)
    except TypeError as error:
        raise UnknownOperation(f"the operation {target} with these settings is not known here") from error
