"""Hard questions by description: any process makes the same model and inputs of a `Case`. Nothing here is ours."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

Model = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Case:
    """A question to an attack; every field is a plain value, so that a failure can be copied from a terminal."""

    attack: str = "sigma-zero"
    model: str = "plain"
    classes: int = 4
    shape: tuple[int, ...] = (12,)
    rows: int = 3
    dtype: str = "float32"
    layout: str = "plain"
    values: str = "inside"
    box: str = "unit"
    mask: str = "none"
    unit: str = "feature"
    budget: int | None = None
    targeted: bool = False
    steps: int = 3
    batch_size: int | None = None
    seed: int = 0


@dataclass
class Question:
    """What a user would hand in, and what stands behind the inputs in memory."""

    model: Model
    x: Tensor
    y: Tensor
    bounds: tuple[Any, Any]
    mask: Tensor | None
    base: Tensor

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """The bounds of every feature of every row."""
        lower, upper = (torch.as_tensor(bound, dtype=self.x.dtype).expand_as(self.x) for bound in self.bounds)
        return lower, upper


class Net(nn.Module):
    """Linear, or with a hidden layer. Products and sums instead of matrix products: these round alike in any batch."""

    seen: Tensor

    def __init__(self, case: Case) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(case.seed)
        self.wall = {"bytes": 150.0, "wide": 150.0, "shifted": 1.4}.get(case.box, 0.6)
        self.kind, self.calls, self.kept, self.buffer = case.model, 0, dict[Any, Tensor](), torch.empty(0)
        features, hidden = prod(case.shape), 8 if case.model == "relu" else 0

        def draw(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(*shape, generator=g, dtype=torch.float64).to(getattr(torch, case.dtype)))

        self.first = draw(hidden, features) if hidden else None
        outputs = 2 * case.classes if case.model == "sliced" else case.classes
        self.weight, self.bias = draw(outputs, hidden or features), draw(outputs)
        if case.model == "tied":
            self.weight.data[1], self.bias.data[1] = self.weight[0], self.bias[0]
        self.drop = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(features, dtype=self.weight.dtype) if case.model == "batchnorm" else None
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        """The logits."""
        if self.kind == "inplace":
            x.sub_(0.5)
        elif self.kind == "inplace-view":
            x[:].mul_(0.5)
        elif self.kind == "inplace-same":
            x.clamp_(min=-torch.inf)
        h = self.before(x).flatten(1)
        h = self.drop(h) if self.norm is None else self.norm(h)
        if self.first is not None:
            h = (h[:, None] * self.first).sum(2).relu()
        return self.after(x, (h[:, None] * self.weight).sum(2) + self.bias)

    def before(self, x: Tensor) -> Tensor:
        """What a model does to its input first."""
        changes: dict[str, Callable[[], Tensor]] = {
            "shifted": lambda: x - 0.5,
            "halved": lambda: x * 0.5,
            "signs": lambda: (x - 0.5).sign(),
            "no-gradient": x.detach,
            "wide": lambda: x / 256,
        }
        return changes.get(self.kind, lambda: x)()

    def after(self, x: Tensor, logits: Tensor) -> Tensor:
        """What a model does to its output last."""
        high = x.flatten(1)[:, :1] > 0.6
        first = torch.arange(logits.shape[1]) == 0
        changes: dict[str, Callable[[], Tensor]] = {
            "constant": lambda: logits * 0,
            "nan": lambda: torch.where(high, torch.nan, logits),
            "infinite": lambda: torch.where(high & first, torch.inf, logits),
            "all nan": lambda: logits * torch.nan,
            "strided": lambda: logits.t().contiguous().t(),
            "sliced": lambda: logits[:, ::2],
            "double": logits.double,
            "half": logits.half,
            "counting": lambda: self.count(logits),
            "caching": lambda: self.cached(x, logits),
            "buffered": lambda: self.buffered(logits),
            "hooked": lambda: logits / 2,
            # Where the first feature is high the other features cannot make up for it.
            "guarded": lambda: logits + 1e4 * ((x.flatten(1)[:, :1] > self.wall) & first),
        }
        return changes.get(self.kind, lambda: logits)()

    def count(self, logits: Tensor) -> Tensor:
        """Remember the calls, in Python and in a buffer."""
        self.calls, self.seen = self.calls + 1, self.seen + len(logits)
        return logits

    def cached(self, x: Tensor, logits: Tensor) -> Tensor:
        """Give the very tensor that was given for these inputs before, where no gradient is asked for."""
        if logits.requires_grad:
            return logits
        return self.kept.setdefault(x.detach().contiguous().numpy().tobytes(), logits)

    def buffered(self, logits: Tensor) -> Tensor:
        """Give the same memory each time, where no gradient is asked for."""
        if logits.requires_grad:
            return logits
        if self.buffer.shape != logits.shape:
            self.buffer = torch.empty_like(logits)
        return self.buffer.copy_(logits)


class Parallel:
    """What nn.DataParallel does, without devices: no module, and the batch in two halves."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: Tensor) -> Tensor:
        """The logits."""
        return torch.cat([self.module(part) for part in x.tensor_split(2) if len(part)] or [self.module(x)])


# Models that compute what another one computes: all that is found must be the same, bit for bit.
SAME_AS = {
    **dict.fromkeys(("dropout", "counting", "caching", "buffered", "hooked", "strided"), "plain"),
    **dict.fromkeys(("frozen", "with grads", "lambda", "method", "partial", "parallel"), "plain"),
    **{"inplace": "shifted", "inplace-view": "halved", "inplace-same": "plain"},
}
MODELS = (
    *SAME_AS,
    *("plain", "relu", "batchnorm", "tied", "constant", "nan", "infinite", "all nan", "sliced", "double", "half"),
    *("shifted", "halved", "signs", "no-gradient", "guarded"),
)


def make_model(case: Case) -> Model:
    """The model of a case, as its user would hand it in."""
    net = Net(case)
    if case.model == "hooked":
        net.register_forward_hook(lambda _, __, logits: 2 * logits)
    if case.model == "frozen":
        net.requires_grad_(False)
    if case.model == "with grads":
        for parameter in net.parameters():
            parameter.grad = torch.full_like(parameter, 7.0)
    if case.model in ("dropout", "batchnorm"):
        return net.train()
    net.eval()
    wrapped: dict[str, Callable[[], Model]] = {
        "lambda": lambda: lambda x: net(x),
        "method": lambda: net.forward,
        "partial": lambda: partial(Net.forward, net),
        "parallel": lambda: Parallel(net),
    }
    return wrapped.get(case.model, lambda: net)()


def fresh(case: Case) -> Model:
    """The same model for a check: in eval mode."""
    model = make_model(case)
    return model.eval() if isinstance(model, nn.Module) else model


def laid_out(x: Tensor, layout: str) -> tuple[Tensor, Tensor]:
    """The same numbers in another order of memory, and the memory itself."""
    if layout == "transposed":
        base = x.transpose(0, -1).contiguous()
        return base.transpose(0, -1), base
    if layout == "channels-last" and x.ndim == 4:
        base = x.contiguous(memory_format=torch.channels_last)
        return base, base
    if layout == "sliced":
        base = torch.full((2 * len(x) + 1, *x.shape[1:]), 0.5, dtype=x.dtype)
        base[1::2] = x
        return base[1::2], base
    if layout == "expanded" and len(x):
        base = x[:1].clone()
        return base.expand_as(x), base
    base = x.clone()
    return base, base


LAYOUTS = ("plain", "transposed", "channels-last", "sliced", "expanded")
VALUES = ("inside", "ends", "grid", "lower", "upper")
BOXES = ("unit", "tensors", "shifted", "sample", "own", "narrow", "signed", "bytes", "point", "infinite", "half open")
MASKS = ("none", "all", "nothing", "sample", "own", "some rows", "walls")


def make_box(box: str, u: Tensor, g: torch.Generator) -> tuple[Any, Any]:
    """The bounds of a case, as its user would hand them in."""
    one = u[0] if len(u) else torch.zeros(u.shape[1:], dtype=u.dtype)

    def wide(shape: torch.Size) -> Tensor:
        return torch.rand(shape, generator=g, dtype=u.dtype).mul(1.5).sub(0.25).clamp(0, 1)

    kinds: dict[str, Callable[[], tuple[Any, Any]]] = {
        "unit": lambda: (0.0, 1.0),
        "tensors": lambda: (torch.zeros((), dtype=u.dtype), torch.ones(u.shape[1:], dtype=u.dtype)),
        "shifted": lambda: (torch.full_like(one, -1), torch.full_like(one, 3)),
        "sample": lambda: (-wide(one.shape), wide(one.shape)),
        "own": lambda: (u - wide(u.shape), u + wide(u.shape)),
        "narrow": lambda: (0.25, 0.5),
        "signed": lambda: (-1, 1),
        "bytes": lambda: (0, 255),
        "wide": lambda: (0, 256),
        "point": lambda: (u, u.clone()),
        "infinite": lambda: (-torch.inf, torch.inf),
        "half open": lambda: (0.0, torch.inf),
    }
    return kinds[box]()


def make_mask(mask: str, x: Tensor, g: torch.Generator) -> Tensor | None:
    """The mask of a case, as its user would hand it in."""
    drawn, every = torch.rand(x.shape, generator=g) < 0.6, torch.arange(len(x)).view(-1, *[1] * (x.ndim - 1))
    kinds: dict[str, Callable[[], Tensor | None]] = {
        "none": lambda: None,
        "all": lambda: torch.ones(x.shape[1:], dtype=torch.bool),
        "nothing": lambda: torch.zeros_like(x, dtype=torch.bool),
        "sample": lambda: torch.rand(x.shape[1:], generator=g) < 0.6,
        "own": lambda: drawn,
        "walls": lambda: (torch.arange(prod(x.shape[1:])) > 0).view(x.shape[1:]) & (every != 2),
        "some rows": lambda: drawn & (every % 2 == 0),
    }
    return kinds[mask]()


def make(case: Case) -> Question:
    """The question of a case; the second of several rows has its goal already."""
    g = torch.Generator().manual_seed(1000 + case.seed)
    dtype = getattr(torch, case.dtype)
    u = torch.rand(case.rows, *case.shape, generator=g, dtype=torch.float64).to(dtype)
    if case.layout == "expanded":
        u = u[:1].expand_as(u).clone()
    u = {"ends": u.round(), "grid": (4 * u).round() / 4, "lower": u * 0, "upper": u * 0 + 1}.get(case.values, u)
    bounds = make_box(case.box, u, g)
    lower, upper = (torch.as_tensor(bound, dtype=dtype).expand_as(u) for bound in bounds)
    inside = {"infinite": 2 * u - 1, "half open": u, "own": u, "point": u}
    x, base = laid_out(inside.get(case.box, torch.clamp(lower + u * (upper - lower), lower, upper)), case.layout)
    with torch.no_grad():
        logits = fresh(case)(x.clone()) if len(x) else torch.zeros(0, case.classes)
    top = logits.argmax(1)
    y = (top + 1) % case.classes if case.targeted else top.clone()
    if len(y) > 2:
        y[1] = top[1] if case.targeted else (top[1] + 1) % case.classes
    return Question(make_model(case), x, y, bounds, make_mask(case.mask, x, g), base)


def alike(case: Case) -> Case | None:
    """A case whose answer is the same, bit for bit; None if it is itself the plainest of its kind."""
    plain = replace(case, model=SAME_AS.get(case.model, case.model), layout="plain", batch_size=None)
    return replace(plain, layout="expanded" if case.layout == "expanded" else "plain") if plain != case else None
