"""Pack the samples of a page: clean inputs as bytes, and for each run what it changed, for the script to draw.

Values are rounded to 8 bits; which features changed is exact.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmazero.core.metrics import Outcome
from sigmazero.report import spaces
from sigmazero.report.figures.pictures import is_image
from sigmazero.report.pages.curve import colour
from sigmazero.report.runs import Clean, Group, Run, places_of
from sigmazero.store.facts import CellInfo, Facts, Integers

ROOM = 3_500_000  # bytes for the samples of a page, which is to stay under 5 MB
WORDS, NUMBERS = 60, 24  # bytes of a change in words, and of the numbers of a sample of a run, about
OUTCOMES = {
    int(Outcome.ALREADY): "wrong already",
    int(Outcome.FOUND): "fooled",
    int(Outcome.NOT_FOUND): "not fooled",
    int(Outcome.NON_FINITE): "NaN or Inf",
    int(Outcome.UNVERIFIED): "not confirmed",
    int(Outcome.NO_START): "no start",
    int(Outcome.STOPPED): "not done",
    int(Outcome.BEYOND_BUDGET): "fooled beyond the budget",
}


@dataclass(frozen=True)
class Samples:
    """The samples of a page: what the script draws, and notes above it."""

    data: dict[str, Any]
    notes: list[str]


def build(
    found: Sequence[Group], clean: Clean, limit: int | None = None, rows: Mapping[str, Integers] | None = None
) -> Samples:
    """Pack at most `limit` samples of each data set, or as many as there is room for; or `rows`, by their hash."""
    if limit is not None and limit < 0:
        raise ValueError(f"{limit} samples: give 0 or more")
    hashes = list(dict.fromkeys(group.info.data_hash for group in found))
    made = Samples({"sets": [], "groups": []}, [])
    chosen = {}
    for name in hashes:
        runs = [run for group in found if group.info.data_hash == name for run in group.runs]
        inputs, lack = _inputs(clean, runs[0].info)
        every = np.unique(np.concatenate([run.facts.row for run in runs]))
        if rows is not None:
            shown = rows[name]
        else:
            shown = spread(every, _room(runs, inputs, len(every), ROOM // len(hashes)) if limit is None else limit)
            if len(shown) < len(every):
                made.notes.append(f"{len(shown)} of {len(every)} samples of {runs[0].info.dataset}, evenly spread.")
        chosen[name] = shown, inputs
        made.data["sets"].append(_set(runs, inputs, shown))
        made.notes.extend([lack] if lack else [])
    for group in found:
        shown, inputs = chosen[group.info.data_hash]
        packed = [_run(run, shown, inputs) for run in group.runs]
        place = hashes.index(group.info.data_hash)
        made.data["groups"].append({"title": group.title, "set": place, "unit": group.unit, "runs": packed})
    return made


def _inputs(clean: Clean, info: CellInfo) -> tuple[Any, str]:
    """Return the clean inputs if they can be read and shown, otherwise why not."""
    table = spaces.is_table(info)
    try:
        inputs = clean(info)
    except (OSError, ImportError, ValueError, LookupError) as error:
        return None, f"{'Changes are not shown' if table else 'No pictures'}: {error}"
    if table or is_image(inputs.images):
        return inputs, ""
    return None, f"Inputs of shape {'×'.join(map(str, inputs.images.shape[1:]))} are not images, so none are shown."


def _room(runs: Sequence[Run], inputs: Any, samples: int, room: int) -> int:
    """Return how many samples fit into `room` bytes."""
    each: float = NUMBERS * len(runs)
    if inputs is not None:  # base64 takes four bytes for three
        changes = sum(len(run.perturbed.index) for run in runs) / samples
        features = inputs.images[0].numel()
        words = WORDS * changes
        packed = 4 / 3 * (features + (5 if features > 2**16 else 3) * changes)
        each += words if spaces.is_table(runs[0].info) else packed
    return int(room / each)


def spread(rows: Integers, count: int) -> Integers:
    """Return at most `count` of the rows, evenly spread.

    >>> spread(np.arange(10), 3).tolist()
    [0, 4, 9]
    """
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(count, len(rows))).astype(np.int64))]


def _set(runs: Sequence[Run], inputs: Any, rows: NDArray[np.int64]) -> dict[str, Any]:
    """Pack what all runs on some rows share: their classes and, of images, their values."""
    info = runs[0].info
    labels = {int(row): int(label) for run in runs for row, label in zip(run.facts.row, run.facts.label, strict=True)}
    made: dict[str, Any] = {"rows": rows.tolist(), "labels": [labels[row] for row in rows.tolist()]}
    if classes := info.about.get("classes"):
        made["classes"] = list(classes)
    if inputs is not None and not spaces.is_table(info):
        images = inputs.images[places_of(rows, inputs.ids.numpy())]
        eight: NDArray[np.uint8] = (images.clamp(0, 1) * 255).round().byte().numpy()
        made |= {"shape": list(images.shape[1:]), "images": _base64(eight)}
    return made


def _run(run: Run, rows: NDArray[np.int64], inputs: Any) -> dict[str, Any]:
    """Pack a run's facts for the chosen rows that it has done."""
    done = rows[np.isin(rows, run.facts.row)]
    at = run.places(done)
    facts = run.facts.take(at)
    made: dict[str, Any] = {
        "name": run.title,
        "colour": colour(run.info.attack),
        "rows": done.tolist(),
        "before": facts.clean_prediction.tolist(),
        "after": facts.prediction.tolist(),
        "outcome": facts.outcome.tolist(),
        "changes": [None if np.isinf(k) else int(k) for k in run.changes[at]],
        "queries": (facts.forwards + facts.backwards).tolist(),
        "step": facts.step_found.tolist(),
    }
    if run.info.goal == "targeted":
        made["target"] = facts.target.tolist()
    if run.priced:
        made["cost"] = [float(each) if np.isfinite(each) else None for each in facts.cost]
    if run.least is not None:
        made["least"] = run.least[at].tolist()
    if inputs is None:
        return made
    changed = run.perturbed.take(at)
    if spaces.is_table(run.info):
        return made | {"words": _words(run, changed, inputs)}
    wide = np.uint32 if len(changed.index) and changed.index.max() >= 2**16 else np.uint16
    return made | {
        "counts": np.diff(changed.offsets).tolist(),
        "wide": wide is np.uint32,
        "index": _base64(changed.index.astype(np.dtype(wide).newbyteorder("<"))),
        "value": _base64(np.clip(np.round(255 * changed.value), 0, 255).astype(np.uint8)),
    }


def _words(run: Run, facts: Facts, inputs: Any) -> list[list[list[Any]]]:
    """Return what changed in each row, in the user's words and units: [name, before, after, cost] each."""
    sites = spaces.named_sites(run.info)
    clean = inputs.images[places_of(facts.row, inputs.ids.numpy())]
    before, after = (each.flatten(1).tolist() for each in (clean, facts.rebuild(clean)))
    return [
        [
            [c.site.name, c.before, c.after, spaces.plain(c.site.cost) if run.priced and not c.site.derived else None]
            for c in spaces.changes_of(sites, *pair)
        ]
        for pair in zip(before, after, strict=True)
    ]


def _base64(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()
