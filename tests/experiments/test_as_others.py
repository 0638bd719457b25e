"""Scripts that call other libraries as they are called elsewhere: what they compute themselves."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from experiments import attackbench, brendel_bethge


class Above(nn.Module):
    """Answer 0 where the first feature is above a threshold, else 1."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold

    def forward(self, x: Tensor) -> Tensor:
        answer = (x.flatten(1)[:, 0] <= self.threshold).long()
        return nn.functional.one_hot(answer, 2).float()


@pytest.mark.parametrize(("threshold", "expected"), [(2.0, 1 - 0.75**32), (0.5, 0.0)])
def test_batches_are_lost_as_often_as_noise_has_one_class(threshold, expected):
    x = torch.zeros(4, 1, 2, 2)
    y = torch.tensor([1, 0, 0, 0])  # the last three are wrong already, and need no start
    assert brendel_bethge.expected_lost(Above(threshold), x, y) == pytest.approx(expected, abs=1e-9)


def test_rows_are_those_that_the_library_draws():
    drawn = np.random.default_rng(0).choice(10_000, replace=False, size=50)
    assert attackbench.rows(50, 10_000).tolist() == drawn.tolist()
    some = attackbench.rows(20, 2000)
    drawn = np.random.default_rng(0).choice(10_000, replace=False, size=1000)
    assert some.tolist() == [row for row in drawn if row < 2000][:20]
