"""Random spaces as plain lists, and whether points are legal in them, by code that shares nothing with `sz.Space`."""

import itertools
import math
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

if TYPE_CHECKING:
    import sigmazero as sz

Rows = NDArray[np.float64]


@dataclass
class Plain:
    """A space in plain lists: per feature its legal values (None for a real one), ends, direction and cost."""

    legal: list[list[float] | None]
    ends: list[tuple[float, float]]
    kind: list[str]
    grid: list[float]
    direction: list[list[str]]  # one row for all samples, or one each
    cost: list[float]
    around: list[float]
    one_hot: list[list[int]] = field(default_factory=list)
    tied: list[list[int]] = field(default_factory=list)
    rules: list[tuple[dict[int, float], str, float]] = field(default_factory=list)
    derived: dict[int, tuple[dict[int, float], float]] = field(default_factory=dict)
    ratio: tuple[int, int, int] | None = None  # a feature that is another one over one more than the size of a third

    def __len__(self) -> int:
        return len(self.kind)

    def space(self, **more: Any) -> "sz.Space":
        """The same as sigmazero takes it."""
        import sigmazero as sz  # here, since the process of the judge reads this file and must not know it

        follows: dict[int, Any] = {k: sz.Formula(terms, constant) for k, (terms, constant) in self.derived.items()}
        if self.ratio is not None:
            to, over, under = self.ratio
            follows[to] = lambda points: points[:, over] / (1 + points[:, under].abs())
        sets = {k: legal for k, legal in enumerate(self.legal) if self.kind[k] == "values" and legal is not None}
        return sz.Space(
            kind=self.kind,
            values=sets,
            lower={k: low for k, (low, _) in enumerate(self.ends) if k not in follows},
            upper={k: high for k, (_, high) in enumerate(self.ends) if k not in follows},
            grid=self.grid,
            direction=self.direction[0] if len(self.direction) == 1 else self.direction,
            cost=self.cost,
            around=self.around,
            one_hot={f"hot {k}": group for k, group in enumerate(self.one_hot)},
            tied=self.tied,
            rules=[sz.Rule(*rule) for rule in self.rules],
            derived=follows,
            **more,
        )

    @property
    def following(self) -> set[int]:
        """The features that follow from others."""
        return {*self.derived, *([] if self.ratio is None else [self.ratio[0]])}

    def sites(self) -> list[list[int]]:
        """What counts once."""
        grouped = [*self.one_hot, *self.tied, *([k] for k in self.following)]
        alone = [[k] for k in range(len(self)) if not any(k in group for group in grouped)]
        return [*self.one_hot, *self.tied, *alone]

    def follow(self, points: Rows) -> Rows:
        """Points with what follows from other features, in the order of declaration."""
        points = points.copy()
        for k, (terms, constant) in self.derived.items():
            points[:, k] = constant + sum(factor * points[:, one] for one, factor in terms.items())
        if self.ratio is not None:
            to, over, under = self.ratio
            points[:, to] = points[:, over] / (1 + np.abs(points[:, under]))
        return points

    def ruled(self, point: Rows, tiny: float) -> list[str]:
        """The rules that a point breaks, and what does not follow."""
        found = []
        for terms, sense, bound in self.rules:
            total = sum(factor * point[k] for k, factor in terms.items())
            good = {"<=": total <= bound + tiny, ">=": total >= bound - tiny, "=": abs(total - bound) <= tiny}[sense]
            found += [] if good else [f"{terms} is {total}, not {sense} {bound}"]
        follows = self.follow(point[None])[0]
        return found + [
            f"feature {k} is {point[k]}, not {follows[k]}" for k in self.following if abs(point[k] - follows[k]) > tiny
        ]

    def may_be(self, row: int, k: int, clean: float, value: float) -> bool:
        """Whether a feature of a row may go from one value to another, groups aside."""
        way = self.direction[row if len(self.direction) > 1 else 0][k]
        if value == clean:
            return True
        tiny = 1e-9 * max(1.0, abs(value))
        inside = self.ends[k][0] - tiny <= value <= self.ends[k][1] + tiny
        near = abs(value - clean) <= self.around[k] + tiny
        allowed = {"both": True, "up": value > clean, "down": value < clean, "none": False}[way]
        legal = self.legal[k]
        return inside and near and allowed and (legal is None or min(abs(value - one) for one in legal) <= tiny)

    def complaints(self, x: Rows, x_adv: Rows, tiny: float = 1e-12, rows: Any = None) -> list[str]:
        """What is illegal about points of the rows; sums may be off by a tiny number."""
        found = []
        for row, clean, point in zip(range(len(x)) if rows is None else rows, x, x_adv, strict=True):
            found += [
                f"row {row}: feature {k} ({self.kind[k]}) from {clean[k]} to {point[k]}"
                for k in range(len(self))
                if k not in self.following and not self.may_be(row, k, clean[k], point[k])
            ]
            found += [f"row {row}: {words}" for words in self.ruled(point, tiny)]
            found += [
                f"row {row}: {group} is {point[group]}" for group in self.one_hot if sorted(point[group])[-2:] != [0, 1]
            ]
        return found

    def count(self, x: Rows, x_adv: Rows) -> tuple[list[int], list[float]]:
        """Changed sites of each row, and what they cost."""
        changed = [[any(a[k] != b[k] for k in site) for site in self.sites()] for a, b in zip(x, x_adv, strict=True)]
        costs = [self.cost[site[0]] for site in self.sites()]
        return [sum(row) for row in changed], [sum(itertools.compress(costs, row)) for row in changed]

    def every(self, row: int, clean: Rows) -> Rows:
        """All points of a finite space around an input."""
        options: list[list[float]] = []
        for k in range(len(self)):
            if k in self.following:
                options.append([0.0])
                continue
            legal = self.legal[k]
            assert legal is not None
            options.append(sorted({float(clean[k]), *(v for v in legal if self.may_be(row, k, clean[k], v))}))
        points = np.array(list(itertools.product(*options)))
        for group in self.one_hot:
            points = points[points[:, group].sum(1) == 1]
        points = self.follow(points)
        for terms, sense, bound in self.rules:
            over = sum(factor * points[:, k] for k, factor in terms.items()) - bound
            good = {"<=": over <= 1e-9, ">=": over >= -1e-9, "=": np.abs(over) <= 1e-9}[sense]
            points = points[good]
        return points


def draw(random: Random, finite: bool = False, rows: int = 3, priced: bool | None = None) -> Plain:
    """A random space of three to seven features, without rules; see `bind`."""
    plain = Plain([], [], [], [], [], [], [])
    for _ in range(random.randint(1, 4) if finite else random.randint(2, 5)):
        _feature(plain, random, finite)
    if random.random() < 0.6:
        n = random.randint(2, 3)
        plain.one_hot.append([_binary(plain) for _ in range(n)])
    if random.random() < 0.4 and not finite:
        plain.tied.append(random.sample(range(len(plain) - sum(map(len, plain.one_hot))), 2))
    priced = random.random() < 0.5 if priced is None else priced
    plain.cost = [random.choice([1.0, 2.0, 0.5, 3.0]) if priced else 1.0 for _ in range(len(plain))]
    for site in plain.sites():
        for k in site:
            plain.cost[k] = plain.cost[site[0]]
    words = ["both", "both", "both", "up", "down", "none"]
    plain.direction = [[random.choice(words) for _ in range(len(plain))] for _ in range(random.choice([1, rows]))]
    for way, group in itertools.product(plain.direction, plain.one_hot):
        both = random.choice(["both", "both", "none"])
        for k in group:
            way[k] = both
    return plain


def bind(plain: Plain, x: Tensor, random: Random) -> Tensor:
    """Give a space one to three rules that hold for all inputs, and mostly features that follow; return inputs again.

    A rule is a sum of two to four features. One that says "=" is made of features in which the inputs agree.
    """
    n = len(plain)
    for _ in range(random.randint(0, 2)):
        terms = {k: random.choice([1.0, -1.0, 2.0]) for k in random.sample(range(n), min(n, random.randint(2, 3)))}
        plain.derived[len(plain)] = terms, random.choice([0.0, 1.0, -2.0])
        _following(plain)
    if n > 1 and random.random() < 0.3:
        over, under = random.sample(range(n), 2)
        plain.ratio = len(plain), over, under
        _following(plain)
    x = torch.cat([x, torch.zeros(len(x), len(plain) - n, dtype=x.dtype)], 1)
    x = torch.from_numpy(plain.follow(x.double().numpy())).to(x)
    for _ in range(random.randint(1, 3)):
        some = random.sample(range(len(plain)), min(len(plain), random.randint(2, 4)))
        terms = {k: random.choice([1.0, 1.0, -1.0, 2.0, 0.5]) for k in some}
        totals = sum(factor * x[:, k].double() for k, factor in terms.items())
        assert isinstance(totals, Tensor)
        sense = random.choice(["<=", ">=", "="])
        if sense == "=" and float(totals.max() - totals.min()) > 0:
            sense = "<="
        room = 0.0 if sense == "=" else random.choice([0.0, 0.0, 0.5, 1.0])
        bound = float(totals.max()) + room if sense == "<=" else float(totals.min()) - room
        plain.rules.append((terms, sense, bound))
    return x


def _following(plain: Plain) -> None:
    plain.legal.append(None)
    plain.ends.append((-math.inf, math.inf))
    plain.kind.append("real")
    plain.grid.append(0.0)
    plain.around.append(math.inf)
    plain.cost.append(1.0)
    for way in plain.direction:
        way.append("both")


def _feature(plain: Plain, random: Random, finite: bool) -> None:
    kind = random.choice(["integer", "binary", "values", "grid", *([] if finite else ["real", "real"])])
    if kind == "binary":
        _binary(plain)
        return
    low = float(random.randint(-3, 1))
    high = low + random.randint(1, 3)
    step = random.choice([0.5, 0.25, 0.1])
    legal: dict[str, list[float] | None] = {
        "integer": [low + n for n in range(int(high - low) + 1)],
        "values": sorted({low, high, round(random.uniform(low, high), 2)}),
        "grid": [k * step for k in range(round(low / step), round(high / step) + 1)],
        "real": None,
    }
    plain.legal.append(legal[kind])
    plain.ends.append((low, high))
    plain.kind.append("real" if kind == "grid" else kind)
    plain.grid.append(step if kind == "grid" else 0.0)
    plain.around.append(random.choice([math.inf, math.inf, 1.5]))


def _binary(plain: Plain) -> int:
    plain.legal.append([0.0, 1.0])
    plain.ends.append((0.0, 1.0))
    plain.kind.append("binary")
    plain.grid.append(0.0)
    plain.around.append(math.inf)
    return len(plain) - 1


def inputs(plain: Plain, random: Random, rows: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    """Legal inputs."""
    x = torch.zeros(rows, len(plain), dtype=dtype)
    for row in range(rows):
        for k, legal in enumerate(plain.legal):
            x[row, k] = random.uniform(*plain.ends[k]) if legal is None else random.choice(legal)
        for group in plain.one_hot:
            x[row, group] = 0.0
            x[row, random.choice(group)] = 1.0
    return x


def network(features: int, seed: int, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """A small network that a few changes fool."""
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(features, 12), nn.Tanh(), nn.Linear(12, 3)).to(dtype).requires_grad_(False)
    for parameter in net.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64).to(dtype))
    return net


def fewest(plain: Plain, net: nn.Module, x: Tensor, y: Tensor) -> list[tuple[float, float, float]]:
    """By trying every point: the fewest changes, the least cost, and the least cost of a single change."""
    found = []
    for row in range(len(x)):
        points = plain.every(row, x[row].numpy())
        fooled = (net(torch.from_numpy(points)).argmax(1) != y[row]).numpy()
        l0, cost = (
            np.array(v, dtype=float)[fooled]
            for v in plain.count(np.repeat(x[row : row + 1].numpy(), len(points), 0), points)
        )
        found.append((l0.min(initial=np.inf), cost.min(initial=np.inf), cost[l0 == 1].min(initial=np.inf)))
    return found


@dataclass(frozen=True)
class SpaceCase:
    """A question to an attack in a random space; every field is a plain value, as in `Case`."""

    attack: str = "sigma-zero"
    seed: int = 0
    finite: bool = False
    rules: bool = False
    priced: bool = False
    budget: int | None = None
    targeted: bool = False
    steps: int = 12
    unit: str = "feature"


def numbered(plain: Plain, x: Tensor) -> Tensor:
    """Add the row's number as a last feature that may not change: so it is known whose points a model is shown."""
    _following(plain)
    plain.legal[-1], plain.ends[-1], plain.kind[-1] = [float(row) for row in range(len(x))], (0.0, len(x)), "integer"
    for way in plain.direction:
        way[-1] = "none"
    return torch.cat([x, torch.arange(len(x), dtype=x.dtype)[:, None]], 1)


def make_space(case: SpaceCase) -> tuple[Plain, Tensor, Tensor, nn.Module]:
    """The space of a case, its inputs and goals, and the network: any process makes the same.

    The second row has its goal already. The network does not look at the last feature, see `numbered`. In some cases
    the inputs are equal but for it, so that a rule may say "=".
    """
    random, n = Random(case.seed), 3
    plain = draw(random, case.finite, rows=n, priced=case.priced)
    x = inputs(plain, random, rows=n)
    if case.rules:
        x = x[:1].repeat(n, 1) if len(plain.direction) == 1 and random.random() < 0.5 else x
        x = bind(plain, x, random)
    x = numbered(plain, x)
    net = network(len(plain), case.seed % 1000)
    net.get_parameter("0.weight")[:, -1] = 0
    top = net(x).argmax(1)
    y = (top + 1) % 3 if case.targeted else top.clone()
    y[1] = top[1] if case.targeted else (top[1] + 1) % 3
    return plain, x, y, net
