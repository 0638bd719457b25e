"""What is proved of a smoothed classifier, per sample."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.core.domain import Unit


@dataclass(frozen=True, repr=False)
class Smoothed:
    """One row per sample. All of it is about the smoothed classifier, never about the base model.

    prediction  its class, or −1 where it abstains: the draws do not tell which class has the most votes
    radius      with so many changes or fewer the class stays; −1 where it abstains
    lower       the least chance of its class, by the draws
    upper       the greatest chance of any other
    counts      votes of each class (samples, classes)
    label       the true classes
    """

    prediction: Tensor
    radius: Tensor
    lower: Tensor
    upper: Tensor
    counts: Tensor
    label: Tensor
    keep: int
    draws: int
    sites: int
    confidence: float
    unit: Unit = "feature"

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.prediction)

    @property
    def right(self) -> Tensor:
        """Whether the class is the true one."""
        return self.prediction == self.label

    @property
    def abstained(self) -> Tensor:
        """Whether it gives no class."""
        return self.prediction < 0

    @property
    def queries(self) -> int:
        """How many copies the base model was asked about, for all samples together."""
        return len(self) * self.draws

    def accuracy(self, changes: int = 0) -> float:
        """Share of ALL samples that are right and stay so with at most so many changes."""
        return float((self.right & (self.radius >= changes)).double().mean())

    def curve(self) -> list[tuple[int, float]]:
        """Certified accuracy at 0, 1, 2, ... changes, up to the first number at which it is 0."""
        most = int(self.radius[self.right].max()) if bool(self.right.any()) else -1
        return [(changes, self.accuracy(changes)) for changes in range(most + 2)]

    @property
    def median_radius(self) -> float:
        """Median over all samples of the changes that it stands while it is right; −1 for those that are not."""
        reach = torch.where(self.right, self.radius, -1).double().sort().values
        return float((reach[(len(reach) - 1) // 2] + reach[len(reach) // 2]) / 2)

    def __repr__(self) -> str:
        """One line: what one wants to know first."""
        return (
            f"<Smoothed of {len(self)} samples: {self.keep} of {self.sites} {self.unit}s kept, {self.draws} draws, "
            f"{self.accuracy():.1%} certified at 0 changes, median radius {self.median_radius:g}>"
        )
