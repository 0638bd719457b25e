r"""Voting Folded Gaussian Attack (Hajri et al., 2022, https://arxiv.org/abs/2011.12423).

Greedy: each step changes one more feature. The gradient of the probability of the true class names the feature that
promises most when raised and the one that promises most when lowered; each is tried with random amounts, the
absolute value of a normal number times the room to the box, and the best of these points is kept.

    a     current point                       G     direction in which the probability falls (rises, for a target)
    j⁺    feature to raise, j⁻ to lower       S     amounts tried for each

A feature is changed once and never given back. There is no version for pixels: in that unit the attack still changes
features one by one, and positions are counted.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[1., 1., 1., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., .9]))
>>> result = sz.get("vfga", samples=50).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0])
3
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from sigmazero.core import losses, noise, ops
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Domain
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count


@dataclass
class State:
    """One row per sample."""

    a: Tensor
    own: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class VFGA(Attack):
    """Change one more feature in every step, by a random amount that is the best of several. A sample ends when it is
    fooled or has no feature left.

    The reference changes one feature of an input that is already wrong; here such inputs never reach the attack.
    """

    name: str = "vfga"
    steps: Count = 1000
    samples: Annotated[Count, "random amounts tried for each of the two features"] = 10

    asks: ClassVar[str] = "2 × `samples` + 2 queries a step"
    paper: ClassVar[str] = "https://arxiv.org/abs/2011.12423"
    version: ClassVar[int] = 3
    aliases: ClassVar[dict[str, str]] = {"n_samples": "samples"}
    keeps_own: ClassVar[bool] = True
    finite_box: ClassVar[bool] = True

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point."""
        x = oracle.domain.x
        return State(x, x, torch.zeros_like(oracle.incumbents.alive))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Choose two features, try amounts, keep the best point."""
        d = oracle.domain
        answer = oracle.value_and_grad(s.a, losses.get("probability", oracle.goal))
        up, down = self._features(s.a, -answer.grad, d)
        room_up, room_down = (d.upper - s.a).flatten(1).gather(1, up), (s.a - d.lower).flatten(1).gather(1, down)
        p = oracle.problem
        drawn = noise.normal(p.seed, p.ids, i, (2, self.samples), dtype=d.x.dtype).abs()  # to raise, to lower
        amounts = torch.cat([drawn[:, 0] * room_up, -drawn[:, 1] * room_down], 1)
        where = torch.cat([up.expand(-1, self.samples), down.expand(-1, self.samples)], 1)
        points = s.a[:, None].repeat(1, 2 * self.samples, *[1] * (s.a.ndim - 1))
        points.flatten(2).scatter_add_(2, where[:, :, None], amounts[:, :, None])
        points = torch.stack([d.clip(point) for point in points.unbind(1)], 1)
        a, fooled = self._best(points, oracle)
        # Neither feature has room: the next step would be this one again (the reference repeats it to the end).
        stuck = ((room_up <= 0) & (room_down <= 0)).squeeze(1)
        used_up = ~self._unused(a, d).flatten(1).any(1)
        return State(a, torch.where(ops.per_row(fooled, a), a, d.x), fooled | stuck | used_up)

    def _unused(self, a: Tensor, d: Domain) -> Tensor:
        """Return which features have their clean value and may change."""
        return (a == d.x) & (d.upper > d.lower)

    def _features(self, a: Tensor, G: Tensor, d: Domain) -> tuple[Tensor, Tensor]:
        """Return the index of the unused feature to raise, and of the one to lower, (N, 1) each."""
        unused = self._unused(a, d)
        up = torch.where(unused, (d.upper - a) * G, -torch.inf)
        down = torch.where(unused, (a - d.lower) * G, torch.inf)
        return up.flatten(1).argmax(1, keepdim=True), down.flatten(1).argmin(1, keepdim=True)

    def _best(self, points: Tensor, oracle: Oracle) -> tuple[Tensor, Tensor]:
        """Return the point of lowest loss, adversarial ones before all others, and whether it is adversarial."""
        goal = oracle.goal
        answers = oracle.logits(points, copies=points.shape[1]).unbind(1)
        fooled = torch.stack([goal.fooled(logits) for logits in answers], 1)
        loss = torch.stack([losses.probability(logits, goal) for logits in answers], 1)
        best = (loss - fooled.to(loss.dtype)).argmin(1)
        every = torch.arange(len(best), device=best.device)
        return points[every, best], fooled[every, best]
