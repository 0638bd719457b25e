r"""SparseFool (Modas et al., CVPR 2019, https://arxiv.org/abs/1811.02248).

DeepFool finds a nearby point of another class; there the boundary is taken for a plane, pushed further by a factor
λ, and single features are moved, steepest first, until the plane is crossed inside the box. Repeated until fooled.

    a     current point, inside the box          n     unit normal of the plane
    r     DeepFool's perturbation of a           b     a point of the plane

`variant="published"` is the authors' code: the walk goes on from a and the plane passes through a + λ r.
`variant="torchattacks"` (`sparsefool-paper`, what the σ-zero paper measured) starts every walk at the clean input,
with a plane through the clean input plus λ times the whole perturbation; it is often out of reach inside the box, and
then every feature changes. There is no version for pixels: features are moved one by one, positions are counted.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[1., 1., 1., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., .9]))
>>> result = sz.get("sparsefool", pull=1.0).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0])
3
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor

from sigmazero.core import ops
from sigmazero.core.attack import Attack
from sigmazero.core.goal import GoalName
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, NotNegative, Positive, Range


def _nearest(z: Tensor, slopes: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """Return the step to the nearest linearised boundary, and which; logits (N, K), slopes (N, K, ...), own first."""
    f, w = (z[:, 1:] - z[:, :1]).abs(), slopes[:, 1:] - slopes[:, :1]
    length = w.flatten(2).norm(dim=2)
    # A class whose gradient does not differ is never nearest; where none differs the point stays.
    distance = torch.where(length > 0, f / length.clamp(min=1e-30), torch.inf)
    aim = distance.argmin(1)
    every = torch.arange(len(z), device=z.device)
    far, w, length = distance[every, aim], w[every, aim], length[every, aim]
    scale = torch.where(far.isfinite(), far.clamp(min=least) / length.clamp(min=1e-30), 0.0)
    return ops.per_row(scale, w) * w, aim


def walk_to_plane(start: Tensor, normal: Tensor, through: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Move coordinates by decreasing |normal| until the plane is crossed, all (N, d): SparseFool's linear solver.

    Each goes 0.001 beyond the plane or as far as the box lets it, so all but the last one end at the box, and the
    sequence is a cumulative sum. Where the start lies beyond the plane already, the method pushes every coordinate,
    each by the distance at its turn.
    """
    steepness, order = normal.abs().sort(dim=1, descending=True, stable=True)
    room = torch.where(normal > 0, upper - start, start - lower).gather(1, order)
    usable = steepness > 0
    room = torch.where(usable, room, 0.0)
    gain = torch.where(usable, steepness * room, 0.0)
    height = (normal * (start - through)).sum(1, keepdim=True)
    gained = gain
    # Below the plane the first round is final. Above it, a round settles one more coordinate that the box does not
    # stop; such coordinates double the height, so they are few.
    for _ in range(40):
        before = height + gained.cumsum(1) - gained
        wanted = before.abs() + 0.001
        step = torch.where(height > 0, torch.minimum(gain, wanted), gain)
        if torch.equal(step, gained):
            break
        gained = step
    walking = usable & ((height > 0) | (before < 0))
    amount = torch.where(walking, torch.minimum(room, wanted / steepness.clamp(min=1e-30)), 0.0)
    signed = torch.zeros_like(start).scatter(1, order, amount) * normal.sign()
    return torch.minimum(torch.maximum(start + signed, lower), upper)


@dataclass
class State:
    """One row per sample; `logits` are those of `own`, the point last tested."""

    a: Tensor
    own: Tensor
    logits: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class SparseFool(Attack):
    """Take the boundary for flat near the input and walk to it along single coordinates. It needs few steps, each of
    them a whole DeepFool run, a walk and a test.

    Each DeepFool step costs two forwards and a backward for each class that it looks at; the torchattacks code shares a
    forward between the test and the next step. Unlike it, the last point is tested too.
    """

    name: str = "sparsefool"
    steps: Count = 20
    pull: Annotated[Positive, "how fast it walks towards the boundary, the paper's λ"] = 3.0
    overshoot: Annotated[NotNegative, "how far beyond the boundary a step aims"] = 0.02
    inner_steps: Annotated[Count, "steps of the DeepFool inside at most"] = 50
    classes: Annotated[Annotated[int, Range(least=2)] | None, "how many classes DeepFool looks at; None for all"] = 10
    variant: Annotated[Literal["published", "torchattacks"], "whose code it follows"] = "published"

    spaces: ClassVar[bool] = False
    asks: ClassVar[str] = "a DeepFool run a step: dozens of queries"
    paper: ClassVar[str] = "https://arxiv.org/abs/1811.02248"
    goals: ClassVar[tuple[GoalName, ...]] = ("untargeted",)
    capturable: ClassVar[bool] = False
    keeps_own: ClassVar[bool] = True

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point; its logits rank the classes."""
        x = oracle.domain.x
        return State(x.clone(), x.clone(), oracle.logits(x), torch.zeros_like(oracle.incumbents.alive))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """Run DeepFool, take the normal, walk and test, for the rows that still search."""
        rows = (oracle.incumbents.alive & ~s.done).nonzero().squeeze(1)
        if not len(rows):
            return s
        # Deviation: classes are ranked at the point last tested, which lies 2 % beyond a, and not asked for again.
        y = oracle.goal.y[rows, None]
        others = s.logits[rows].scatter(1, y, -torch.inf).argsort(1, descending=True)[:, :-1]
        classes = torch.cat([y, others[:, : None if self.classes is None else self.classes - 1]], 1)
        near, reached = self.deepfool(oracle, rows, s.a[rows], classes)
        part = oracle.part(rows)
        d = part.domain
        if self.variant == "published":
            begin, b = s.a[rows], s.a[rows] + self.pull * (near - s.a[rows])
            n = self._normal(part, near, reached, fixed=True)
        else:
            begin, b = d.x, d.x + self.pull * (near - d.x)
            n = self._normal(part, b, reached, fixed=False)
        flat = (v.expand_as(d.x).flatten(1) for v in (begin, n, b, d.lower, d.upper))
        walked = walk_to_plane(*flat).view_as(d.x)
        # Exactly clean where the walk did not go: x + 1.02 (a − x) would only be so up to rounding.
        point = torch.where(walked == d.x, d.x, d.clip(d.x + (1 + self.overshoot) * (walked - d.x)))
        logits = part.logits(point)
        oracle.absorb(part, rows)
        return State(
            s.a.index_copy(0, rows, walked if self.variant == "published" else point),
            s.own.index_copy(0, rows, point),
            s.logits.index_copy(0, rows, logits),
            s.done.index_copy(0, rows, part.goal.fooled(logits)),
        )

    def deepfool(self, oracle: Oracle, rows: Tensor, start: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return a nearby point of another class for some of the rows, and the class reached or else last aimed at.

        As published, steps may leave the box and are at least 1e-4 long, and the point tested lies `overshoot` further
        away than the point returned. In torchattacks each step is longer by `overshoot` and ends inside the box.
        """
        published = self.variant == "published"
        points, reached = start.clone(), classes[:, 1].clone()
        active = torch.arange(len(rows), device=rows.device)
        for _ in range(self.inner_steps):
            part = oracle.part(rows[active])
            logits, slopes = part.jacobian(points[active], classes[active])
            move, aim = _nearest(logits.gather(1, classes[active]), slopes, 1e-4 if published else 0.0)
            if published:
                moved = points[active] + move
                test = start[active] + (1 + self.overshoot) * (moved - start[active])
            else:
                test = moved = part.domain.clip(points[active] + (1 + self.overshoot) * move)
            points[active] = moved
            answer = part.logits(test)
            oracle.absorb(part, rows[active])
            fooled = part.goal.fooled(answer)
            aimed = classes[active].gather(1, aim[:, None] + 1).squeeze(1)
            reached[active] = torch.where(fooled, answer.argmax(1), aimed)
            active = active[~fooled]
            if not len(active):
                break
        return points, reached

    def _normal(self, part: Oracle, at: Tensor, reached: Tensor, *, fixed: bool) -> Tensor:
        """Return the unit gradient of another class's logit minus that of the own one; zero where there is none."""
        y = part.goal.y[:, None]

        def lead(logits: Tensor) -> Tensor:
            best = logits.argmax(1)
            other = reached if fixed else torch.where(best == y.squeeze(1), reached, best)
            return (logits.gather(1, other[:, None]) - logits.gather(1, y)).squeeze(1)

        gradient = part.value_and_grad(at, lead).grad
        return gradient / ops.per_row(gradient.flatten(1).norm(dim=1).clamp(min=1e-30), gradient)
