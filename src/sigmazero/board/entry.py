"""Read an entry: the model that its card names, and the best point of each sample in its store."""

from __future__ import annotations

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
from sigmazero.board.folder import BoardError, BoardRules
from sigmazero.core.model import Ability
from sigmazero.data import Rows
from sigmazero.report.runs import Run, merge
from sigmazero.store.facts import CellInfo, Floats
from sigmazero.store.store import Store

CLEAN = "clean answers"  # the cell that every entry begins with: what the model says of the rows as they are
FORMAT = "board 1"


def load_network(card: ModelCard, folder: Path, loader: Loader) -> nn.Module:
    """Load the model of a card, whose files lie in a folder; refuse code that is not trusted, and other weights."""
    refuse_untrusted([card.spec], loader.trust)
    spec = card.model if card.code_file is None else f"{folder / card.model}"
    weights = None if card.weights is None else folder / card.weights
    network = models.load(spec, weights=weights, normalize=card.normalize, device=loader.device)
    if card.sha256 not in (None, found := identity.hash_weights(network)):
        raise BoardError(
            f"{folder}: the weights of {card.name} here have sha256 {found}, its card says {card.sha256[:12]}...; "
            "the card or the weights are other ones"
        )
    return network


def describe(
    card: ModelCard, rules: BoardRules, rows: Rows, allowed: Allowed, ability: Ability, by: str, tool: str, turn: int
) -> CellInfo:
    """Return the cell of what somebody found with some tool; `turn` counts an entry's submissions.

    It has the form of a benchmark's cell, so that everything that reads and checks stores works here as well.
    """
    assert card.sha256 is not None  # a card in an entry has it
    parameters: dict[str, Any] = {"steps": 0, "by": by, "tool": tool, "turn": turn, "ability": ability}
    question: dict[str, Any] = {
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
        **allowed.identity(tuple(rows.images.shape[1:])),
    }
    return CellInfo.of(
        question,
        model=card.name,
        dataset=rules.name,
        attack=tool,
        rows=len(rows),
        origin=origin_of(card, rules),
        about=about(rows, allowed),
    )


def origin_of(card: ModelCard, rules: BoardRules) -> dict[str, Any]:
    """Return where a cell says that its model and rows came from."""
    return {"model": asdict(card.spec), "data": asdict(rules.data), "target": None}


@dataclass(frozen=True)
class Known:
    """The best of each sample of an entry on a board, in the order of the rows.

    runs     the clean answers first, then submissions in the order in which they came
    changes  0 for a sample that is wrong already, infinite for one that nobody fooled
    lower    changes that are needed: what is proved, otherwise 1, or 0 for a sample that is wrong already
    """

    runs: Sequence[Run]
    changes: Floats
    lower: Floats


def known(store: Store, rules: BoardRules) -> Known:
    """Return the best of each sample; of equals the one that came first."""
    cells = [info for info in store.cells() if info.dataset == rules.name and info.unit == rules.unit]
    cells.sort(key=lambda info: (int(info.parameters.get("turn", 0)), info.attack))
    if not cells or cells[0].attack != CLEAN or not store.stored(cells[0].key).all():
        raise BoardError(f"{store.path}: the model's clean answers on board {rules.name} are missing; add it again")
    runs = [Run(info, store.facts(info.key, perturbations=False), unit=info.unit) for info in cells]
    changes = merge(runs).changes
    least = store.proved(cells[0].key)
    lower = np.maximum(1, 0 if least is None else least)
    return Known(runs, changes, np.where(changes == 0, 0.0, lower))


def on_device(rows: Rows, loader: Loader) -> tuple[Tensor, Tensor]:
    """Return inputs and labels where the models are."""
    return rows.images.to(loader.device), rows.labels.to(loader.device)
