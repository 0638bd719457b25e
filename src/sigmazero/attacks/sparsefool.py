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

from sigmazero.attacks._deepfool import deepfool, rank_classes, walk_to_plane
from sigmazero.core import ops
from sigmazero.core.attack import Attack
from sigmazero.core.goal import GoalName
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count, NotNegative, Positive, Range


@dataclass
class State:
    """One row per sample; `logits` are those of `own`, the point last tested."""

    a: Tensor
    own: Tensor
    logits: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class SparseFool(Attack):
    """SparseFool; `pull` is λ. A step is a whole DeepFool run, a walk and a test.

    Counting: each DeepFool step costs two forwards and a backward per class looked at; the torchattacks code shares
    a forward between the test and the next step. Unlike it, the last point is tested too.
    """

    name: str = "sparsefool"
    steps: Count = 20
    pull: Positive = 3.0
    overshoot: NotNegative = 0.02
    inner_steps: Count = 50
    classes: Annotated[int, Range(least=2)] | None = 10
    variant: Literal["published", "torchattacks"] = "published"

    spaces: ClassVar[bool] = False
    paper: ClassVar[str] = "https://arxiv.org/abs/1811.02248"
    goals: ClassVar[tuple[GoalName, ...]] = ("untargeted",)
    capturable: ClassVar[bool] = False
    keeps_own: ClassVar[bool] = True

    def init(self, oracle: Oracle) -> State:
        """Start at the clean point; its logits rank the classes."""
        x = oracle.domain.x
        return State(x.clone(), x.clone(), oracle.logits(x), torch.zeros_like(oracle.incumbents.alive))

    def step(self, i: Tensor, s: State, oracle: Oracle) -> State:
        """DeepFool, normal, walk and test, for the rows that still search."""
        rows = (oracle.incumbents.alive & ~s.done).nonzero().squeeze(1)
        if not len(rows):
            return s
        # Deviation: classes are ranked at the point last tested, which lies 2 % beyond a, and not asked for again.
        classes = rank_classes(s.logits[rows], oracle.goal.y[rows], self.classes)
        near, reached = deepfool(
            oracle,
            rows,
            s.a[rows],
            classes,
            steps=self.inner_steps,
            overshoot=self.overshoot,
            clipped=self.variant == "torchattacks",
        )
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

    def _normal(self, part: Oracle, at: Tensor, reached: Tensor, *, fixed: bool) -> Tensor:
        """Unit gradient of the logit of another class minus that of the own one; zero where there is none."""
        y = part.goal.y[:, None]

        def lead(logits: Tensor) -> Tensor:
            best = logits.argmax(1)
            other = reached if fixed else torch.where(best == y.squeeze(1), reached, best)
            return (logits.gather(1, other[:, None]) - logits.gather(1, y)).squeeze(1)

        gradient = part.value_and_grad(at, lead).grad
        return gradient / ops.per_row(gradient.flatten(1).norm(dim=1).clamp(min=1e-30), gradient)
