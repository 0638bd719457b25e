"""Does a network want normalised inputs, and nobody normalises them? The usual statistics are tried."""

import math

import torch
from torch import Tensor, nn

from sigmazero.core.findings import Finding, coded
from sigmazero.core.model import logits_in
from sigmazero.models.normalize import KNOWN, Normalize

GOOD = 0.9  # of the rows right: whoever is that good has its normalisation
SURE = 1e-3  # probability with which as many rows would become right by chance


def examine_scale(model: object, x: Tensor, y: Tensor, logits: Tensor) -> list[Finding]:
    """Suspect a missing normalisation where one of the usual ones makes far more rows right.

    Asked of networks alone, and only of those that do badly: two questions at most for each row.
    """
    right = logits.argmax(1) == y
    inside = bool((x >= 0).all() & (x <= 1).all())
    if not isinstance(model, nn.Module) or not inside or x.ndim != 4 or float(right.double().mean()) >= GOOD:
        return []
    if any(isinstance(part, Normalize) for part in model.modules()):
        return []
    for name, (mean, std) in KNOWN.items():
        if len(mean) != x.shape[1]:
            continue
        with torch.no_grad():
            answer = logits_in(model(Normalize(mean, std).to(x)(x))).to(x.device)
        now = answer.argmax(1) == y
        gained, lost = int((now & ~right).sum()), int((right & ~now).sum())
        if _by_chance(gained, gained + lost) < SURE:
            rows = f"{int(right.sum())} of {len(y)} rows are right"
            detail = f"{rows}, with {name}'s mean and deviation {int(now.sum())}."
            fix = f"put the normalisation of the training in front of the network, such as --normalize {name}"
            return [coded("SZ033", detail, fix)]
    return []


def _by_chance(heads: int, tosses: int) -> float:
    """Probability of at least so many heads.

    >>> _by_chance(2, 2), _by_chance(0, 3)
    (0.25, 1.0)
    """
    return float(sum(math.comb(tosses, k) for k in range(heads, tosses + 1)) / 2**tosses)
