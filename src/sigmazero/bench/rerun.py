"""Run some searches of a store again and report how they differ.

Another processor, number of threads or version rounds differently and may lead a search elsewhere. So differences are
figures and no accusation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sigmazero import attacks
from sigmazero.bench import identity
from sigmazero.bench.cells import Cell
from sigmazero.bench.constraints import recall as recall_constraints
from sigmazero.bench.loader import Loader, origin, recall
from sigmazero.bench.plan import PRECISIONS, Question
from sigmazero.bench.provenance import provenance
from sigmazero.bench.verify import UNLOADABLE, Disagreement, Verification
from sigmazero.bench.worker import Unit, Worker
from sigmazero.core.attack import Attack
from sigmazero.report.runs import TRANSFER
from sigmazero.store.facts import ROUNDING, CellInfo, Facts
from sigmazero.store.store import Store, StoreError

BATCHES = 2  # of a cell that are run again, drawn at random
SAME = ("torch", "numpy", "device", "threads", "processor", "sigmazero")  # where these agree the bits should, too
COMPARED = ("outcome", "l0", "l0_pixel", "clean_prediction", "prediction", "step_found", "forwards", "backwards")


def rerun(store: Store, loader: Loader, share: float | int, done: Verification, seed: int = 0) -> int:
    """Run batches of some cells again and note in a verification how they differ; return the rows compared.

    share   a number of cells, or a float: the share of all cells; at least one cell is drawn
    seed    for the draw of cells and batches; cells that `done` could not check, or found wrong, are not drawn
    """
    out = {one.cell.key for one in (*done.skipped, *done.disagreements) if one.cell is not None and one.row is None}
    out |= store.superseded().keys()
    # Points that were found on other models are no run of an attack, so there is nothing to run again.
    every = [one.cell for one in store.status() if one.done and TRANSFER not in one.cell.origin]
    candidates = [info for info in every if info.key not in out]
    if not candidates:
        done.notes.append("no cell could be run again")
        return 0
    draw = random.Random(seed)
    count = round(share * len(candidates)) if isinstance(share, float) else share
    rows = 0
    for info in draw.sample(candidates, min(max(count, 1), len(candidates))):
        try:
            rows += _rerun_cell(store, info, loader, done, draw)
        except (*UNLOADABLE, StoreError) as error:
            done.skipped.append(Disagreement(info, None, f"cannot be run again: {error}"))
    return rows


def _rerun_cell(store: Store, info: CellInfo, loader: Loader, done: Verification, draw: random.Random) -> int:
    """Run batches of a cell again, as the stored ones were run; return their number of rows."""
    if not info.identity:
        raise LookupError("it does not describe its attack in full")
    worker, question = Worker(loader, foreign=True), _question(store, info, loader)
    batches, traced, rows = store.batches(info.key), store.traced(info.key), 0
    for places, made in draw.sample(batches, min(BATCHES, len(batches))):
        size, trace = int(made.get("batch_size", len(places))), bool(traced[places].any())
        cell = Cell(info, replace(question, batch_size=size, prepare=made.get("prepare", "fold"), trace=trace))
        start = int(places[0]) // size * size
        result = worker.attack(Unit(cell, start, min(start + size, info.rows)))
        if result.error:
            raise ValueError(result.line)
        (batch,) = result.batches
        fresh = batch.facts.take(np.isin(batch.positions, places))
        done.notes += _compared(info, store.facts(info.key, positions=places), fresh, _same_place(made, loader.device))
        rows += len(places)
    return rows


def _question(store: Store, info: CellInfo, loader: Loader) -> Question:
    """Return the question of a stored cell."""
    model, _, target = origin(info)
    asked: dict[str, Any] = {name: getattr(info, name) for name in ("unit", "goal", "budget", "seed", "margin")}
    return Question(
        model,
        recall(store, info, loader),
        info.attack,
        attack_of(info.identity["attack"]),
        target=target,
        precision=info.precision if info.precision in PRECISIONS else None,
        allowed=recall_constraints(store, info, loader.spaces),
        **asked,
    )


def attack_of(described: Mapping[str, Any]) -> Attack:
    """Return the attack that a cell's identity describes: one of the registry, as it is here."""
    kind = described["class"]
    known = next((each for each in attacks.ATTACKS.values() if type(each).__name__ == kind), None)
    if known is None or "code" in described:
        raise LookupError(f"its attack {kind} is not in the registry of sigmazero")
    values: dict[str, Any] = {
        name: attack_of(value) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value
        for name, value in described["parameters"].items()
    }
    made = replace(known, **values)
    if made.version != described["version"]:
        raise ValueError(f"{kind} is version {made.version} here, the facts are of version {described['version']}")
    if identity.describe_attack(made) != described:
        raise ValueError(f"{kind} is described with other parameters or other code than it has here")
    return made


def _same_place(made: Mapping[str, Any], device: torch.device) -> bool:
    """Return whether a run with this provenance should give the same bits here."""
    here = provenance(device)
    return device.type == "cpu" and all(made.get(name) == here.get(name) for name in SAME)


def _compared(info: CellInfo, stored: Facts, fresh: Facts, same_place: bool) -> list[str]:
    """Return a line about how a batch that was run again differs from the stored one; nothing if it does not."""
    masks = {name: getattr(stored, name) != getattr(fresh, name) for name in COMPARED}
    masks["margin"] = ~np.isclose(stored.margin, fresh.margin, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    masks["changes"] = np.array([one != two for one, two in zip(_changes(stored), _changes(fresh), strict=True)])
    parts = [f"{name} of {int(mask.sum())}" for name, mask in masks.items() if mask.any()]
    if not parts:
        return []
    where = "here" if same_place else "on another machine or with other versions"
    means = [_mean(each.l0[np.isfinite(each.l0)]) for each in (fresh, stored)]
    queries = [_mean(each.forwards + each.backwards) for each in (fresh, stored)]
    what = (
        f"run again {where}, of {len(stored)} rows differ: {', '.join(parts)}; mean changes {means[0]:.2f} against "
        f"{means[1]:.2f} stored, mean queries {queries[0]:.0f} against {queries[1]:.0f} stored"
    )
    return [str(Disagreement(info, None, what))]


def _changes(facts: Facts) -> list[bytes]:
    """Return the changes of each row as bytes."""
    spans = zip(facts.offsets[:-1], facts.offsets[1:], strict=True)
    return [facts.index[a:b].tobytes() + facts.value[a:b].tobytes() for a, b in spans]


def _mean(values: NDArray[Any]) -> float:
    return float(values.mean()) if len(values) else float("nan")
