"""Whether examples found on one model fool another: a matrix, from what `sigmazero transfer` stored."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sigmazero.core.metrics import Floats, Outcome
from sigmazero.report.figures import matrix, style
from sigmazero.report.figures.classes import strongest
from sigmazero.report.figures.curves import panels
from sigmazero.report.figures.figure import Figure, Request
from sigmazero.report.measure import TRANSFER, Measured
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

NOTE = (
    "In % of the samples whose example fools the model in the row and that the model in the column has right; by the "
    "strongest attack on each."
)
HOW = "sigmazero transfer STORE asks the models first"


@dataclass(frozen=True)
class TransferMatrix:
    """The models of one data set: from which (with its attack) to which, in shares; NaN where nothing is known."""

    title: str
    rows: list[str]
    columns: list[str]
    shares: Floats


def matrices(store: Store, cells: Sequence[Measured]) -> list[TransferMatrix]:
    """A matrix per data set with two models or more that were asked; the points are those of the strongest attack."""
    asked = {(info.origin[TRANSFER], info.model_sha256): info for info in store.cells() if TRANSFER in info.origin}
    free = [cell for cell in cells if cell[0].budget is None and cell[0].goal == "untargeted"]
    groups: dict[tuple[str, str], list[Measured]] = {}
    for group in panels(free, mix=True) if free else []:
        cell = strongest(group)
        groups.setdefault((cell[0].dataset, cell[0].data_hash), []).append(cell)
    made = []
    for (name, _), chosen in groups.items():
        shares = np.full((len(chosen), len(chosen)), np.nan)
        for row, (info, facts) in enumerate(chosen):
            shares[row, row] = 1.0 if (facts.outcome == Outcome.FOUND).any() else np.nan
            for column, (other, _) in enumerate(chosen):
                held = asked.get((info.key, other.model_sha256))
                if held is not None and row != column:
                    shares[row, column] = _share(store, (info, facts), held)
        if np.isfinite(shares[~np.eye(len(chosen), dtype=bool)]).any():
            named = [f"{info.model} ({info.attack})" for info, _ in chosen]
            made.append(TransferMatrix(name, named, [info.model for info, _ in chosen], shares))
    return made


def _share(store: Store, source: Measured, held: CellInfo) -> float:
    facts, there = source[1], store.facts(held.key, perturbations=False)
    found = facts.row[facts.outcome == Outcome.FOUND]
    right = np.isin(there.row, found) & (there.outcome != Outcome.ALREADY)
    return float((there.outcome[right] == Outcome.FOUND).mean()) if right.any() else float("nan")


def draw_transfer(request: Request) -> Any:
    """A panel per data set."""
    held = matrices(request.store, request.cells)
    if not held:
        raise ValueError(f"the store does not say whether examples fool other models; {HOW}")
    sizes = [matrix.size(len(one.rows), len(one.columns), max(map(len, one.rows))) for one in held]
    figure = style.figure(max(5.0, sum(width for width, _ in sizes)), max(height for _, height in sizes) + 0.6)
    axes = figure.subplots(1, len(held), squeeze=False, width_ratios=[width for width, _ in sizes])[0]
    for axis, one in zip(axes, held, strict=True):
        texts = [["" if np.isnan(share) else f"{100 * share:.0f}" for share in row] for row in one.shares]
        matrix.fill(axis, one.shares, texts, (one.rows, one.columns))
        axis.set(xlabel="also fools", ylabel="found on")
        axis.set_title(style.plain(one.title), fontsize=9)
    figure.supxlabel(textwrap.fill(NOTE, 80), fontsize=7, color="#555555")
    return figure


FIGURE = Figure("transfer", f"Which examples fool other models too; {HOW}. As .pdf, .svg or .png.", draw_transfer)
