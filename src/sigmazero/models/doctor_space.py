"""What makes a space doubtful on some rows: inputs outside it, features that cannot change, odd ends and costs."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.findings import Finding, coded
from sigmazero.core.inputs import make_problem
from sigmazero.spaces.space import Columns, Space

FAR = 100  # times as wide as what the rows show: ends that nobody meant
APART = 1000  # times as dear as the cheapest change
FEWEST = 8  # rows below which what they show says little
SHOWN = 5  # features that a finding names


def examine_space(space: Space, images: Tensor) -> list[Finding]:
    """What is wrong with a space for these inputs."""
    x = images.detach() if images.is_floating_point() else images.detach().float()
    try:
        columns = space.columns(tuple(x.shape[1:]))
        problem = make_problem(x, torch.zeros(len(x), dtype=torch.int64, device=x.device), space=space)
    except (TypeError, ValueError) as error:
        return [
            coded("SZ017", f"{str(error).partition(';')[0]}.", str(error).partition("; ")[2] or "correct the space")
        ]
    free = (problem.domain.user_lower < problem.domain.user_upper).flatten(1).any(0).cpu().numpy()
    return [*_fixed(columns, free), *_wide(columns, x, free), *_apart(columns)]


def _fixed(columns: Columns, free: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Iterator[Finding]:
    """Features that were not said to stay as they are, and still cannot change."""
    may = (columns.rise | columns.fall).any(0)
    stuck = np.flatnonzero(may & ~free)
    if len(stuck):
        detail = f"{len(stuck)} of {len(free)} features cannot change: {_named(columns, stuck)}."
        fix = 'say direction = "none" if that is meant; otherwise widen the ends or correct the direction'
        yield coded("SZ018", detail, fix, "warning")
    if not free.any():
        yield coded("SZ018", "No feature can change at all.", "let some feature change, or there is nothing to attack")


def _wide(columns: Columns, x: Tensor, free: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Iterator[Finding]:
    """Features whose ends are far wider than the values of the rows, which look like another unit."""
    values = x.flatten(1).double().cpu().numpy()
    if len(values) < FEWEST:
        return
    shown, room = np.ptp(values, axis=0), columns.upper - columns.lower
    if x.ndim > 2:  # pixels have one unit: those at the border may show next to nothing of it
        shown = np.full_like(shown, np.ptp(values))
    far = np.flatnonzero(free & np.isfinite(room) & (shown > 0) & (room > FAR * shown))
    if len(far):
        k = int(far[0])
        rows = f"the rows go from {values[:, k].min():g} to {values[:, k].max():g}"
        ends = f"Feature {columns.labels[k]} may go from {columns.lower[k]:g} to {columns.upper[k]:g} and {rows}"
        more = f", and {len(far) - 1} more features are like it" if len(far) > 1 else ""
        fix = "give ends in the units of the inputs, or leave it if such values are real"
        yield coded("SZ019", f"{ends}{more}.", fix, "warning")


def _apart(columns: Columns) -> Iterator[Finding]:
    cost = columns.cost
    if len(cost) and cost.max() > APART * cost.min():
        dear, cheap = int(cost.argmax()), int(cost.argmin())
        detail = (
            f"Feature {columns.labels[dear]} costs {cost[dear]:g} and {columns.labels[cheap]} costs {cost[cheap]:g}."
        )
        fix = 'say direction = "none" for what nobody would change; a cost is a price, not a prohibition'
        yield coded("SZ020", detail, fix, "warning")


def _named(columns: Columns, places: Sequence[int] | np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> str:
    few = [columns.labels[int(k)] for k in places[:SHOWN]]
    return ", ".join(few) + (", ..." if len(places) > SHOWN else "")
