"""Do what the published runs of Brendel & Bethge did: foolbox's attack in batches of 32.

    python -m experiments.brendel_bethge M2 bb --steps 100 --samples 96 --out docs/evidence/brendel-bethge.csv

foolbox draws uniform noise until every sample of a batch has a starting point, 1,000 times at most. If one sample has
none then, the attack ends for the whole batch, and the published runs counted its samples as not fooled. A line has
what foolbox reaches, and the share of samples that such batches are expected to hold: the chance is estimated from
noise, for each class of the test set. It needs foolbox and numba.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import sigmazero as sz
from experiments import evidence
from sigmazero.core.metrics import asr, median

BATCH, DIRECTIONS = 32, 1000
DRAWS, BLOCK = 30_000, 250


def attacked(model: nn.Module, x: Tensor, y: Tensor, attack: str, steps: int) -> tuple[list[float], int]:
    """Return the changes of each sample, infinite where it was not fooled, and how many were in lost batches."""
    import foolbox

    np.random.seed(0)
    torch.manual_seed(0)
    theirs = foolbox.PyTorchModel(model, bounds=(0, 1))
    changes: list[float] = []
    lost = 0
    for some, labels in zip(torch.split(x, BATCH), torch.split(y, BATCH), strict=True):
        init = None
        if attack == "bb-dataset":  # the starting points are the other samples of the batch
            init = foolbox.attacks.DatasetAttack()
            init.feed(theirs, some)
        try:
            _, found, _ = foolbox.attacks.L0BrendelBethgeAttack(init_attack=init, steps=steps)(
                theirs, some, labels, epsilons=None
            )
        except AssertionError:  # starts that are not adversarial
            found, lost = some, lost + len(some)
        with torch.no_grad():
            fooled = model(found).argmax(1) != labels
        changes += torch.where(fooled, (found != some).flatten(1).sum(1), torch.inf).tolist()
    return changes, lost


def expected_lost(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of samples in batches of 32 with a sample that no noise starts."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        answers = torch.cat(
            [model(torch.rand(BLOCK, *x.shape[1:], generator=random)).argmax(1) for _ in range(DRAWS // BLOCK)]
        )
        right = model(x).argmax(1) == y
    alike = torch.bincount(answers, minlength=int(y.max()) + 1)[y] / DRAWS  # noise of the sample's own class
    fails = torch.where(right, alike.double() ** DIRECTIONS, 0.0).mean()
    return float(1 - (1 - fails) ** BATCH)


def main() -> None:
    """Add a line to a CSV file, in the place of one with the same question."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("M1", "M2"))
    parser.add_argument("attack", choices=("bb", "bb-dataset"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=96)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    import foolbox

    warnings.simplefilter("ignore")
    model = sz.models.load(asked.model).eval()
    rows = sz.data.load("mnist", limit=asked.samples)
    changes, lost = attacked(model, rows.images, rows.labels, asked.attack, asked.steps)
    every = sz.data.load("mnist")
    chance = expected_lost(model, every.images, every.labels) if asked.attack == "bb" else 0.0
    line = {
        "model": asked.model,
        "attack": asked.attack,
        "steps": str(asked.steps),
        "rows": str(len(changes)),
        **{f"asr_{k}": f"{asr(changes, k):.4f}" for k in (24, 50)},
        "asr_inf": f"{asr(changes):.4f}",
        "median_l0": f"{median(changes):g}",
        "lost": str(lost),
        "expected_lost": f"{chance:.4f}",
        "foolbox": foolbox.__version__,
        "torch": torch.__version__,
    }
    evidence.add(asked.out, [line], ["model", "attack", "steps"])


if __name__ == "__main__":
    main()
