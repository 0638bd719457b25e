"""Run some stored cells again, from nothing but their description, and compare what comes out.

Checksums tell what was altered by accident, and asking the model tells what was made up about the examples themselves.
Neither tells whether a search asked as often as is stored, or whether it really found nothing: for that it must be
made again. On the processor, with the versions and the number of threads of the run, the same rows in the same batch
give the same bits, and every difference is a disagreement. Anywhere else rounding may lead a search another way, and
differences are only counted.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from sigmazero import attacks
from sigmazero.bench import identity
from sigmazero.bench.allowed import recall
from sigmazero.bench.cells import ABSENT, Loader, in_format
from sigmazero.bench.provenance import provenance
from sigmazero.bench.verify import ROUNDING, Disagreement, Verification, load
from sigmazero.bench.worker import forced
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.problem import Problem
from sigmazero.report.measure import TRANSFER
from sigmazero.run import Hardware, Session
from sigmazero.run.numbers import Numbers
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import Store, StoreError

BATCHES = 2  # of a cell, drawn at random
SAME = ("torch", "numpy", "device", "threads")  # what must be as in the run for the same bits
COLUMNS = ("outcome", "l0", "l0_pixel", "clean_prediction", "prediction", "step_found", "forwards", "backwards", "cost")


def rerun(store: Store, loader: Loader, share: float | int, done: Verification, seed: int = 0) -> int:
    """Run some cells again and add what differs to a verification; returns how many rows were compared.

    share   a number of cells, or a float: the part of all cells; at least one cell is drawn
    seed    for the draw of cells and batches; cells that `done` could not check, or found at fault, are not drawn
    """
    out = {one.cell.key for one in (*done.skipped, *done.disagreements) if one.cell is not None and one.row is None}
    # What was found on other models is no run of an attack, so there is nothing to run again.
    every = [one.cell for one in store.status() if one.done and TRANSFER not in one.cell.origin]
    held = [info for info in every if info.key not in out]
    if not held:
        done.notes.append("no cell could be run again")
        return 0
    draw = random.Random(seed)
    count = round(share * len(held)) if isinstance(share, float) else share
    rows = 0
    for info in draw.sample(held, min(max(count, 1), len(held))):
        try:
            rows += _compare(store, info, loader, done, draw)
        except (*ABSENT, ValueError, LookupError, TypeError, StoreError) as error:
            done.skipped.append(Disagreement(info, None, f"cannot be run again: {error}"))
    return rows


def attack_of(described: Mapping[str, Any]) -> Attack:
    """The attack that a cell's identity describes; only those of the registry, as they are here."""
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


def _compare(store: Store, info: CellInfo, loader: Loader, done: Verification, draw: random.Random) -> int:
    """Run batches of a cell again and note what differs; returns their number of rows."""
    if not info.identity:
        raise LookupError("it does not describe its attack in full")
    attack = attack_of(info.identity["attack"])
    network, rows, targets = load(store, info, loader)
    network, images = in_format(network, rows.images, info.precision)
    goals = rows.labels if targets is None else targets
    problem = recall(store, info, loader.spaces).pose(
        images.to(loader.device),
        goals.to(loader.device),
        targeted=targets is not None,
        unit=cast(Unit, info.unit),
        budget=info.budget,
        seed=info.seed,
        ids=rows.ids,
        margin=info.margin,
    )
    hardware = Hardware(forced(info.precision), prepare="fold")
    numbers = Numbers.current(loader.device)
    if hardware.precision is None:
        numbers = Numbers.named(info.precision, loader.device)
    batches, facts, stored = store.batches(info.key), store.facts(info.key), store.positions(info.key)
    compared = 0
    for places, made in draw.sample(batches, min(BATCHES, len(batches))):
        part: Problem = problem.take(torch.from_numpy(places).to(loader.device))
        with numbers.applied(), Session(attack, network, hardware, batch_size=len(places)) as session:
            result = session.run(part)
        at = torch.from_numpy(places)
        goals_here = None if targets is None else targets[at]
        fresh = Facts.from_result(result, rows.labels[at], goals_here, part.x, priced=part.domain.priced)
        kept = facts.take(np.searchsorted(stored, places))
        _note(info, kept, fresh, _same_place(made, loader.device), done)
        compared += len(places)
    return compared


def _same_place(made: Mapping[str, Any], device: torch.device) -> bool:
    """Whether a run made with this provenance would give the same bits here."""
    here = provenance(device)
    return device.type == "cpu" and all(made.get(name) == here[name] for name in SAME)


def _note(info: CellInfo, kept: Facts, fresh: Facts, exact: bool, done: Verification) -> None:
    """Add the differences of a batch: as disagreements where there must be none, else as one note with figures."""
    pairs = {name: (getattr(kept, name), getattr(fresh, name)) for name in COLUMNS}
    masks = {name: (here != there) & ~((here != here) & (there != there)) for name, (here, there) in pairs.items()}
    masks["margin"] = ~np.isclose(kept.margin, fresh.margin, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    masks["the example"] = _changes(kept) != _changes(fresh)
    if exact:
        done.disagreements += [
            Disagreement(info, int(row), f"run again, {name} is another")
            for name, mask in masks.items()
            for row in kept.row[mask]
        ]
        return
    told = [f"{name} of {int(mask.sum())}" for name, mask in masks.items() if mask.any()]
    if told:
        means = " and ".join(f"{_mean(each):.2f}" for each in (kept, fresh))
        what = f"run again on another machine or with other versions, of {len(kept)} rows differ: {', '.join(told)}"
        done.notes.append(str(Disagreement(info, None, f"{what}; mean changes of what was found {means}")))


def _changes(facts: Facts) -> NDArray[np.object_]:
    """What was changed in each row, as bytes."""
    spans = zip(facts.offsets[:-1], facts.offsets[1:], strict=True)
    found = [facts.index[a:b].tobytes() + facts.value[a:b].tobytes() for a, b in spans]
    return np.array([*found, None], dtype=object)[:-1]


def _mean(facts: Facts) -> float:
    found = facts.l0[np.isfinite(facts.l0)]
    return float(found.mean()) if len(found) else float("nan")
