"""The samples of a page: clean images as bytes, and what each attack changed of them, for a script to draw.

Values are rounded to 8 bits; which features changed is exact.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core.metrics import Outcome
from sigmazero.report import measure, spaces
from sigmazero.report.figures import curves
from sigmazero.report.figures.images import is_image
from sigmazero.report.html import colours, paths
from sigmazero.report.inputs import Clean, CleanRows
from sigmazero.report.measure import Measured
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import Store

ROOM = 3_500_000  # bytes for the samples of a page that is to stay under 5 MB
WORDS = 60  # bytes for a change in words, about
FACT = 24  # bytes for the numbers of one sample of one run, about
OUTCOMES = {
    Outcome.ALREADY: "wrong already",
    Outcome.FOUND: "fooled",
    Outcome.NOT_FOUND: "not fooled",
    Outcome.NON_FINITE: "NaN or Inf",
    Outcome.UNVERIFIED: "not confirmed",
    Outcome.NO_START: "no start",
    Outcome.STOPPED: "not done",
    Outcome.BEYOND_BUDGET: "fooled beyond the budget",
}


@dataclass(frozen=True)
class Group:
    """The runs on the same rows: what the script draws, how many rows of how many, and why there are no pictures."""

    title: str
    data: dict[str, Any]
    shown: int
    total: int
    lack: str | None


def build(store: Store, cells: Sequence[Measured], clean: Clean, limit: int | None = None) -> list[Group]:
    """One group per data set; at most `limit` samples in each, or as many as there is room for."""
    if limit is not None and limit < 0:
        raise ValueError(f"{limit} samples: give 0 or more")
    groups: dict[str, list[CellInfo]] = {}
    for info, _ in cells:
        groups.setdefault(info.data_hash, []).append(info)
    return [_group(store, infos, clean, limit, ROOM // len(groups)) for infos in groups.values()]


def _group(store: Store, infos: Sequence[CellInfo], clean: Clean, limit: int | None, room: int) -> Group:
    facts = [store.facts(info.key) for info in infos]
    rows = np.unique(np.concatenate([each.row for each in facts]))
    inputs, lack = _inputs(clean, infos[0])
    table = inputs is not None and spaces.is_table(infos[0])
    pictures = inputs is not None and not table
    features = inputs.images[0].numel() if inputs is not None and pictures else 0
    fit = _fitting(facts, features, len(rows), room, WORDS if table else 0)
    chosen = spread(rows, fit if limit is None else limit)
    data: dict[str, Any] = {"rows": chosen.tolist(), "labels": _labels(facts, chosen), "cells": []}
    data |= {"classes": classes} if (classes := infos[0].about.get("classes")) else {}
    if inputs is not None and pictures:
        at = [int(np.flatnonzero(inputs.ids.numpy() == row)[0]) for row in chosen]
        data |= {"shape": list(inputs.images.shape[1:]), "images": _text(_bytes(inputs.images[at]))}
    named = curves.names(infos)
    for info, each in zip(infos, facts, strict=True):
        made = _cell(info, each, chosen, named[info.key], pictures=pictures)
        if (least := store.proved(info.key)) is not None:
            known = dict(zip(each.row.tolist(), least.tolist(), strict=True))
            made["least"] = [known[row] or None for row in made["rows"]]
        if inputs is not None and spaces.is_table(info):
            made |= _words(info, each, inputs, made["rows"])
        if pictures and (played := paths.build(store, info, made["rows"])):
            made["paths"] = played
        data["cells"].append(made)
    return Group(infos[0].dataset, data, len(chosen), len(rows), lack)


def _words(info: CellInfo, facts: Facts, inputs: CleanRows, rows: Sequence[int]) -> dict[str, Any]:
    """What was changed in these rows, by name and in the user's units: [name, before, after, cost] each."""
    sites = spaces.named_sites(info)
    held, stored = ({row: place for place, row in enumerate(each.tolist())} for each in (inputs.ids, facts.row))
    some = facts.take(np.array([stored[row] for row in rows], dtype=np.int64))
    clean = inputs.images[[held[row] for row in rows]]
    before, after = (each.flatten(1).tolist() for each in (clean, some.rebuild(clean)))
    found = [[*spaces.changes_of(sites, *pair)] for pair in zip(before, after, strict=True)]
    priced = measure.has_costs(facts)
    changes = [
        [[c.site.name, c.before, c.after, c.site.cost if priced and not c.site.derived else None] for c in row]
        for row in found
    ]
    cost = [None if not np.isfinite(each) else float(each) for each in some.cost]
    return {"changes": changes, "cost": cost if priced else None}


def _inputs(clean: Clean, info: CellInfo) -> tuple[CleanRows | None, str | None]:
    """The clean inputs if they can be had and shown; otherwise why not."""
    table = spaces.is_table(info)
    try:
        inputs = clean(info)
    except (OSError, ImportError, ValueError, LookupError) as error:
        return None, f"{'Changes are not shown' if table else 'No pictures'}: {error}"
    if table or is_image(inputs.images):
        return inputs, None
    return None, f"Inputs of shape {'×'.join(map(str, inputs.images.shape[1:]))} are no images, so none are shown."


def _fitting(facts: Sequence[Facts], features: int, rows: int, room: int, words: int = 0) -> int:
    """How many samples fit: base64 takes four bytes for three, and a change in words so many."""
    changes = sum(len(each.index) for each in facts) / max(rows, 1)
    each = 4 / 3 * (features + (5 if features > 2**16 else 3) * changes * bool(features)) + FACT * len(facts)
    each += words * changes
    return int(room / each)


def spread(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """At most so many of the rows, evenly spread.

    >>> spread(np.arange(10), 3).tolist()
    [0, 4, 9]
    """
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))]


def _labels(facts: Sequence[Facts], chosen: NDArray[np.int64]) -> list[int]:
    known = {int(row): int(label) for each in facts for row, label in zip(each.row, each.label, strict=True)}
    return [known[row] for row in chosen.tolist()]


def _cell(info: CellInfo, facts: Facts, chosen: NDArray[np.int64], name: str, *, pictures: bool) -> dict[str, Any]:
    """A run's facts for the chosen rows; a row that it has not done yet has None."""
    places = {int(row): place for place, row in enumerate(facts.row)}
    done = [row for row in chosen.tolist() if row in places]
    kept = facts.take(np.array([places[row] for row in done], dtype=np.int64))
    l0 = measure.changes(kept, info.unit)
    columns = {
        "before": kept.clean_prediction.tolist(),
        "after": kept.prediction.tolist(),
        "outcome": kept.outcome.tolist(),
        "l0": [None if np.isinf(x) else int(x) for x in l0],
        "queries": (kept.forwards + kept.backwards).tolist(),
        "step": kept.step_found.tolist(),
        "target": kept.target.tolist() if info.goal == "targeted" else None,
    }
    wide = np.uint32 if len(kept.index) and kept.index.max() >= 2**16 else np.uint16
    changes = {
        "counts": np.diff(kept.offsets).tolist(),
        "wide": wide is np.uint32,
        "index": _text(kept.index.astype(wide).astype(np.dtype(wide).newbyteorder("<"))),
        "value": _text(np.clip(np.round(255 * kept.value), 0, 255).astype(np.uint8)),
    }
    about = {"model": info.model, "attack": name, "budget": info.budget, "unit": info.unit, **colours.pair(info.attack)}
    return {**about, "rows": done, **columns, **(changes if pictures else {})}


def _bytes(images: Tensor) -> NDArray[np.uint8]:
    eight: NDArray[np.uint8] = (images.clamp(0, 1) * 255).round().byte().numpy()
    return eight


def _text(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()
