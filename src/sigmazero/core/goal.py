"""The goal of an attack: the only code that knows the meaning of a model's outputs.

`margin` falls towards the goal: negative means reached, positive means not yet. At an exact tie it is 0, and `fooled`
decides by argmax, which takes the lowest index. So no attack and no loss needs to know whether it is targeted.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

GoalName = Literal["untargeted", "targeted"]


@dataclass(frozen=True, eq=False)
class Goal(ABC):
    """A goal of a batch. Outputs are (N, classes); `margin` and `aim` also take several per sample, (N, K, classes).

    y      one class per sample
    least  the margin that a success must have: one number, or one per sample
    """

    y: Tensor
    least: Tensor | float = 0.0

    name: ClassVar[GoalName]
    narrow: ClassVar[bool]  # one class alone is the goal, which takes more changes

    @abstractmethod
    def downhill(self, score: Tensor) -> Tensor:
        """Turn a score of class y into a number that falls towards the goal."""

    @abstractmethod
    def fooled(self, outputs: Tensor) -> Tensor:
        """Return where the goal is reached, by argmax; the only place that decides it."""

    def margin(self, outputs: Tensor) -> Tensor:
        """Return the lead of class y over the best other class, or the reverse for a target."""
        y = self._by_class(self.y, outputs)
        own = outputs.gather(-1, y).squeeze(-1)
        return self.downhill(own - outputs.scatter(-1, y, -torch.inf).amax(-1))

    def reached(self, outputs: Tensor, by: Tensor | float = 0.0) -> Tensor:
        """Return where the goal is reached by at least `least` and `by` more."""
        return self.fooled(outputs) & (self.margin(outputs) <= -(self.least + by))

    def aim(self, outputs: Tensor) -> Tensor:
        """Shift the logit of class y so that `fooled` is true only where the margin is reached by `least`."""
        if not isinstance(self.least, Tensor) and self.least == 0:
            return outputs
        lead = self.downhill(torch.zeros_like(self.y, dtype=outputs.dtype) + self.least)
        places, leads = self._by_class(self.y, outputs), self._by_class(lead, outputs)
        return outputs.scatter_add(-1, places, leads.to(outputs.dtype))

    def take(self, rows: Tensor) -> Self:
        """Return the same goal for some of the samples."""
        least = self.least[rows] if isinstance(self.least, Tensor) else self.least
        return replace(self, y=self.y[rows], least=least)

    @staticmethod
    def _by_class(values: Tensor, outputs: Tensor) -> Tensor:
        """Shape one number per sample to index the classes of its outputs."""
        return values.view(-1, *[1] * (outputs.ndim - 1)).expand(*outputs.shape[:-1], 1)


class LeaveClass(Goal):
    """Any class but y."""

    name = "untargeted"
    narrow = False

    def downhill(self, score: Tensor) -> Tensor:
        """Return the score itself."""
        return score

    def fooled(self, outputs: Tensor) -> Tensor:
        """Return where another class wins."""
        return outputs.argmax(1) != self.y


class ReachClass(Goal):
    """Class y."""

    name = "targeted"
    narrow = True

    def downhill(self, score: Tensor) -> Tensor:
        """Return minus the score."""
        return -score

    def fooled(self, outputs: Tensor) -> Tensor:
        """Return where class y wins."""
        return outputs.argmax(1) == self.y
