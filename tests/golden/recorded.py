"""What the golden tests of the random attacks share: the recorded arrays, and a test of two samples."""

import numpy as np
import torch
from numpy.typing import NDArray

from sigmazero.core.oracle import Oracle
from tests.helpers.networks import TRACES

BATCH = 4  # of six rows: four and two. That every attack treats a row the same in any company, tests/attacks tests.


def recorded(file: str, kind: str) -> dict[str, torch.Tensor]:
    """The arrays of one network in a golden file."""
    with np.load(TRACES / f"{file}.npz") as arrays:
        return {k.removeprefix(f"{kind}__"): torch.from_numpy(arrays[k]) for k in arrays.files if k.startswith(kind)}


class Queries:
    """Notes every point asked for, per sample."""

    def __init__(self, monkeypatch, method: str) -> None:
        self.points: dict[int, list[torch.Tensor]] = {}
        ask = getattr(Oracle, method)

        def noted(oracle, x, *rest):
            for row, sample in enumerate(oracle.problem.ids.tolist()):
                self.points.setdefault(sample, []).append(x[row].clone())
            return ask(oracle, x, *rest)

        monkeypatch.setattr(Oracle, method, noted)

    def of(self, sample: int) -> torch.Tensor:
        return torch.stack(self.points[sample])


def rank_sum_z(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Standardised rank sum (Wilcoxon, Mann and Whitney, ties averaged): beyond ±3 the samples differ.

    For outcomes that are 0 or 1 this is the test of two proportions.
    """
    a, b = ours.double().numpy(), theirs.double().numpy()
    both: NDArray[np.float64] = np.concatenate([a, b])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    n, m = len(a), len(b)
    total = n + m
    spread = n * m / 12 * (total + 1 - (counts**3 - counts).sum() / (total * (total - 1)))
    return 0.0 if spread == 0 else float((ranks[:n].sum() - n * (total + 1) / 2) / np.sqrt(spread))
