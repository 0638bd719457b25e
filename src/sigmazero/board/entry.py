"""What an entry holds: the model that its card names, and the cells of its store with the best point of each sample."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from sigmazero import models
from sigmazero.bench import identity
from sigmazero.bench.cells import about
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import Loader, refuse_untrusted
from sigmazero.board.card import ModelCard
from sigmazero.board.folder import POINTS, BoardError, BoardRules
from sigmazero.core.metrics import Outcome
from sigmazero.core.model import Ability
from sigmazero.data import Rows
from sigmazero.report.site.old.measure import changes
from sigmazero.store.facts import CellInfo, Facts, Floats, Integers
from sigmazero.store.store import Store

CLEAN = "clean answers"  # the cell that every entry begins with: what the model says of the rows as they are
FORMAT = "board 1"


def load_network(card: ModelCard, folder: Path, loader: Loader) -> nn.Module:
    """The model of a card, whose files lie in a folder; refused if it is code that is not trusted, or other weights."""
    refuse_untrusted([card.spec], loader.trust)
    spec = card.model if card.code_file is None else f"{folder / card.model}"
    weights = None if card.weights is None else folder / card.weights
    network = models.load(
        spec, weights=weights, model_dir=loader.model_dir, normalize=card.normalize, device=loader.device
    )
    if (found := identity.hash_weights(network)) != card.sha256:
        raise BoardError(
            f"{folder}: the weights of {card.name} here have sha256 {found}, its card says {card.sha256[:12]}...; "
            "the card or the weights are other ones"
        )
    return network


def describe(
    card: ModelCard, rules: BoardRules, rows: Rows, allowed: Allowed, ability: Ability, by: str, tool: str, turn: int
) -> CellInfo:
    """The cell of what somebody found with some tool; `turn` counts an entry's submissions.

    It has the form of a benchmark's cell, so that everything that reads and checks stores works here as well.
    """
    parameters: dict[str, Any] = {"steps": 0, "by": by, "tool": tool, "turn": turn, "ability": ability}
    said = allowed.identity(tuple(rows.images.shape[1:]))
    asked: dict[str, Any] = {
        **({"space": said["space"]} if said["space"] else {}),
        "format": FORMAT,
        "attack": {"class": "Submission", "version": 1, "parameters": parameters},
        "model": {"weights": card.sha256, "code": {}},
        "data": rows.content_hash,
        "ids": identity.hash_integers(rows.ids),
        "targets": None,
        "unit": rules.unit,
        "budget": None,
        "seed": 0,
        "precision": "fp32",
        "bounds": [identity.plain_bound(bound) for bound in allowed.bounds],
        "mask": None,
    }
    return CellInfo(
        key=identity.digest(asked),
        model=card.name,
        dataset=rules.name,
        attack=tool,
        parameters=parameters,
        version=1,
        steps=0,
        unit=rules.unit,
        goal="untargeted",
        budget=None,
        seed=0,
        precision="fp32",
        rows=len(rows),
        model_sha256=card.sha256,
        data_hash=rows.content_hash,
        bounds=(asked["bounds"][0], asked["bounds"][1]),
        identity=asked,
        origin=origin_of(card, rules),
        about=about(rows, allowed),
    )


def origin_of(card: ModelCard, rules: BoardRules) -> dict[str, Any]:
    """Where a cell says that its model and rows came from."""
    return {"model": asdict(card.spec), "data": asdict(rules.data), "target": None}


def cells_on(store: Store, rules: BoardRules) -> list[CellInfo]:
    """The cells of an entry that belong to a board, in the order in which they came: the clean answers first."""
    found = [info for info in store.cells() if info.dataset == rules.name and info.unit == rules.unit]
    return sorted(found, key=lambda info: (int(info.parameters.get("turn", 0)), info.attack))


@dataclass(frozen=True)
class Held:
    """The best of each sample of an entry on a board, in the order of the rows; `source` is the cell that has it.

    `changes` is 0 for a sample that is wrong as it is, and infinite for one that nobody fooled.
    """

    cells: Sequence[CellInfo]
    facts: Facts
    changes: Floats
    source: list[CellInfo]


def held(store: Store, rules: BoardRules) -> Held:
    """The best of each sample; of equals the one that came first."""
    cells = cells_on(store, rules)
    if not cells or cells[0].attack != CLEAN or not store.stored(cells[0].key).all():
        raise BoardError(f"{store.path}: the model's clean answers on board {rules.name} are missing; add it again")
    parts = [store.facts(info.key, perturbations=False) for info in cells]
    # Where a clean answer is not finite, the model is wrong as it is.
    best = np.where(parts[0].success | (parts[0].outcome == Outcome.NON_FINITE), 0.0, math.inf)
    where = np.zeros(len(best), np.int64)
    for number, (info, facts) in enumerate(zip(cells, parts, strict=True)):
        places, found = store.positions(info.key), changes(facts, rules.unit)
        better = (facts.outcome == Outcome.FOUND) & (found < best[places])
        best[places[better]], where[places[better]] = found[better], number
    return Held(cells, parts[0], best, [cells[number] for number in where])


def lower_bounds(card: ModelCard, folder: Path, rules: BoardRules, ids: Integers, wrong: Any) -> Floats:
    """The fewest changes that are known to be needed: 1 for what is right as it is, what is proved in the entry's
    store, or what the card's file certifies.

    The file has lines `board,row,changes`; `wrong` says which samples are wrong as they are.
    """
    known = np.where(wrong, 0.0, 1.0)
    with Store(folder / POINTS) as store:
        proved = store.proved(cells_on(store, rules)[0].key)
    if proved is not None:
        known = np.where(wrong, 0.0, np.maximum(known, proved))
    if card.lower is None:
        return known
    places, path = {int(row): place for place, row in enumerate(ids)}, folder / card.lower.file
    with path.open(newline="", encoding="utf-8") as file:
        for number, line in enumerate(csv.reader(file), start=1):
            if number == 1 and line == ["board", "row", "changes"]:
                continue
            try:
                board, row, least = line[0], int(line[1]), int(line[2])
            except (ValueError, IndexError):
                raise BoardError(f"{path}:{number}: {','.join(line)[:80]!r} is not board,row,changes") from None
            if board == rules.name:
                if row not in places:
                    raise BoardError(f"{path}:{number}: row {row} is not on board {board}")
                known[places[row]] = max(known[places[row]], least) if not wrong[places[row]] else 0.0
    return known


def on_device(rows: Rows, loader: Loader) -> tuple[Tensor, Tensor]:
    """Inputs and labels where the models are."""
    return rows.images.to(loader.device), rows.labels.to(loader.device)
