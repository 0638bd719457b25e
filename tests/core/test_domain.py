"""A domain that nobody planned for runs through every attack: integers in a permuted order."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import sigmazero as sz
from sigmazero.core.domain import Counts, Domain, Draw, Moves
from tests.helpers.attacks import short
from tests.helpers.networks import Linear

LEVELS = 4  # values are 0, 1, ..., 4
ORDER = torch.randperm(10, generator=torch.Generator().manual_seed(3))


@dataclass(frozen=True, eq=False)
class Grid(Domain):
    """Whole numbers up to LEVELS; search coordinate j is feature ORDER[j], divided by LEVELS."""

    @property
    def bounded(self) -> bool:
        return True

    def snap(self, a: Tensor) -> Tensor:
        return (a * LEVELS).round().clamp(0, LEVELS) / LEVELS

    def allowed(self, a: Tensor) -> Tensor:
        return self.snap(a)

    def best_values(self, g: Tensor) -> Tensor:
        return torch.where(g <= 0, 1.0, 0.0).to(self.x)

    def draw(self, u: Tensor) -> Tensor:
        return self.snap(u)

    def sample(self, u: Draw, ends: Tensor) -> Tensor:
        return self.by_site(self.draw(u()))

    @property
    def single_changes(self) -> int:
        return self.sites * (LEVELS + 1)

    def moves(self) -> Moves:
        site = torch.arange(self.sites).repeat_interleave(LEVELS + 1)
        value = (torch.arange(LEVELS + 1).repeat(self.sites) / LEVELS).to(self.x).expand(len(self), 1, -1)
        return Moves(site, value, torch.zeros_like(site))

    def partners(self, partner: Tensor) -> Tensor:
        raise AssertionError("there are no rules")

    def to_user(self, a: Tensor) -> Tensor:
        return (self.snap(a) * LEVELS).round()[..., ORDER.argsort()]

    def from_user(self, points: Tensor) -> Tensor:
        return points[..., ORDER] / LEVELS

    def pull(self, grad: Tensor) -> Tensor:
        return grad[..., ORDER] * LEVELS

    def within(self, points: Tensor) -> Tensor:
        return ((points >= 0) & (points <= LEVELS)).all(1)

    def legal(self, points: Tensor) -> Tensor:
        return self.within(points) & (points == points.round()).all(1)

    def count(self, points: Tensor) -> Counts:
        changes = (points != self.user_x).sum(1)
        return Counts(changes, changes, changes, changes)


@dataclass(frozen=True, eq=False)
class Explored(Grid):
    """The same, which says that walks miss values between the ends."""

    needs_exploring = True


class Declared:
    """What users pass as `space`."""

    names = None

    def __init__(self, kind: type[Grid]) -> None:
        self.kind = kind

    def domain(self, x: Tensor, unit: str, mask: Tensor | None) -> Domain:
        inner, ends = x[:, ORDER] / LEVELS, (torch.zeros_like(x[:1]), torch.ones_like(x[:1]))
        return self.kind(x, ends[0], LEVELS * ends[1], inner, *ends, None, "feature", False, False)


@pytest.mark.parametrize("kind", [Grid, Explored])
@pytest.mark.parametrize("name", sorted(sz.ATTACKS))
def test_a_third_domain_runs_through_every_attack(name, kind):
    attack, linear = short(name, 60), Linear((10,), seed=5)

    def model(points: Tensor) -> Tensor:
        logits: Tensor = linear(points / LEVELS - 0.5)
        return logits

    x = torch.randint(0, LEVELS + 1, (6, 10), generator=torch.Generator().manual_seed(1)).double()
    y = model(x).argmax(1)
    options: Any = {"space": Declared(kind), "budget": 6 if attack.kind == "budget" else None}
    if not attack.spaces and kind.needs_exploring:
        with pytest.raises(ValueError, match=name):
            attack.run(model, x, y, **options)
        return
    result = attack.run(model, x, y, **options)
    assert result.found.any()
    assert torch.equal(result.x_adv, result.x_adv.round().clamp(0, LEVELS))
    assert (model(result.x_adv).argmax(1) != y)[result.found].all()
    assert torch.equal((result.x_adv != x).sum(1)[result.found], result.l0[result.found].long())
