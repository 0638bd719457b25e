"""The question: which inputs, which goal, inside which box, counted in which unit.

`margin` points downhill for either goal: negative means reached, positive means not yet. At an exact tie it is 0
and `fooled` decides by argmax, which takes the lowest index; so no attack and no loss ever asks "if targeted".
"""

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Literal

import torch
from torch import Tensor

Unit = Literal["feature", "pixel"]


@dataclass(frozen=True)
class Problem:
    """One batch and one question about it.

    `lower` and `upper` have the rank of `x` and one row or, with `own_box`, one per sample; so has `free`. A feature
    that may not change has its clean value as both bounds: box and mask are one rule, and `clip` keeps both. `start`
    holds a starting point per sample, `pool` inputs to look for one in: all of the run's inputs, so that it does not
    depend on the batch.
    """

    x: Tensor
    y: Tensor
    ids: Tensor
    lower: Tensor
    upper: Tensor
    free: Tensor | None = None
    targeted: bool = False
    unit: Unit = "feature"
    budget: int | None = None
    seed: int = 0
    start: Tensor | None = None
    pool: Tensor | None = None
    own_box: bool = False

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.x)

    @property
    def features(self) -> int:
        """Number of scalars in one sample."""
        return math.prod(self.x.shape[1:])

    @property
    def grouped(self) -> bool:
        """Whether several features (the channels of a position) count as one."""
        return self.unit == "pixel" and self.x.ndim > 2 and self.x.shape[1] > 1

    @property
    def sites(self) -> int:
        """Number of things that can be changed, in the unit of the question."""
        return self.features // self.x.shape[1] if self.grouped else self.features

    def take(self, rows: Tensor) -> "Problem":
        """The same question about some of the rows."""

        def pick(t: Tensor) -> Tensor:
            return t[rows] if self.own_box else t

        return replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            ids=self.ids[rows],
            lower=pick(self.lower),
            upper=pick(self.upper),
            free=None if self.free is None else pick(self.free),
            start=None if self.start is None else self.start[rows],
        )

    @property
    def narrow(self) -> bool:
        """Whether one class alone is the goal, rather than all but one: that takes more changes."""
        return self.targeted

    def downhill(self, score: Tensor) -> Tensor:
        """How well class y scores, as a number that falls towards the goal: y is to be left, or as a target reached."""
        return -score if self.targeted else score

    def margin(self, logits: Tensor) -> Tensor:
        """Own logit minus the best other one, or the reverse for a target: below 0 the goal is reached."""
        y = self.y[:, None]
        own = logits.gather(1, y).squeeze(1)
        return self.downhill(own - logits.scatter(1, y, -torch.inf).amax(1))

    def fooled(self, logits: Tensor) -> Tensor:
        """Whether the goal is reached, by argmax; the only place that decides it."""
        top = logits.argmax(1)
        return top == self.y if self.targeted else top != self.y

    def clip(self, x: Tensor) -> Tensor:
        """Nearest point inside the box; features outside the mask get their clean value back."""
        return torch.clamp(x, self.lower, self.upper)

    def feasible(self, x: Tensor) -> Tensor:
        """Whether a point lies inside the box and changes only what may be changed (NaN does not)."""
        return (self.clip(x) == x).flatten(1).all(1)

    def changed(self, x: Tensor) -> Tensor:
        """Which sites differ from the clean input, exactly: channels of a position joined if they count once."""
        different = x != self.x
        return different.any(1, keepdim=True) if self.grouped else different

    def l0(self, x: Tensor) -> Tensor:
        """Exact number of changed sites, in the unit of the question."""
        return self.changed(x).flatten(1).sum(1)

    def join(self, magnitude: Tensor) -> Tensor:
        """Largest magnitude within each site, kept broadcastable over the input."""
        return magnitude.amax(1, keepdim=True) if self.grouped else magnitude


def count_features(x_adv: Tensor, x: Tensor) -> Tensor:
    """Number of scalars that differ, per sample."""
    return (x_adv != x).flatten(1).sum(1)


def count_pixels(x_adv: Tensor, x: Tensor) -> Tensor:
    """Number of positions that differ, channels (dimension 1) joined; plain features for (N, D) inputs."""
    different = x_adv != x
    return (different.any(1) if x.ndim > 2 else different).flatten(1).sum(1)


def whole(number: object) -> bool:
    """Whether it is a whole number, whatever its type; True and False are none.

    >>> whole(3), whole(3.0), whole(2.5), whole(float("nan")), whole("3"), whole(True)
    (True, True, False, False, False, False)
    """
    return not isinstance(number, bool) and isinstance(number, Real) and float(number).is_integer()


def integer(number: object) -> bool:
    """Whether it is a whole number that can count steps: 3.0 cannot."""
    return not isinstance(number, bool) and isinstance(number, Integral)
