"""The searches of a page that can be played: what each asked, for a script to draw question by question."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmazero.report.figures.path import questions
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store
from sigmazero.store.trace import Trace

MOST = 6  # searches of a cell
FRAMES = 24


def build(store: Store, info: CellInfo, rows: list[int]) -> dict[str, list[Any]]:
    """Some traced searches of a cell that found something, by the rows on the page: a list of frames each."""
    places, facts = store.positions(info.key), store.facts(info.key, perturbations=False)
    held = {int(place): int(row) for place, row in zip(places, facts.row, strict=True)}
    traced = [place for place in np.flatnonzero(store.traced(info.key)).tolist() if held.get(place) in set(rows)]
    made: dict[str, list[Any]] = {}
    for place in traced:
        trace = store.trace(info.key, place)
        if trace.records and trace.l0[trace.records[-1]] > 0:
            made[str(held[place])] = [_frame(trace, question) for question in questions(trace, FRAMES)]
        if len(made) == MOST:
            break
    return made


def _frame(trace: Trace, question: int) -> list[Any]:
    """A question: its number, its changes, what it is taken for, and which features become what, in 8 bits."""
    span = slice(trace.offsets[question], trace.offsets[question + 1])
    eight = np.clip(np.round(255 * trace.value[span]), 0, 255).astype(np.uint8)
    index = _text(trace.index[span].astype("<u4"))
    return [question, int(trace.l0[question]), int(trace.prediction[question]), index, _text(eight)]


def _text(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()
