"""Read an entry: the model that its card names, and the best point of each sample in its store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

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
from sigmazero.report.runs import Best, Run, merge
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

CLEAN = "clean answers"  # the first cell of every entry: the model's answers to the clean rows
FORMAT = "board 1"


def load_network(card: ModelCard, folder: Path, loader: Loader) -> nn.Module:
    """Load the model of a card, whose files lie in a folder; refuse code that is not trusted, and other weights."""
    refuse_untrusted([card.spec], loader.trust)
    spec = card.model if card.code_file is None else f"{folder / card.model}"
    weights = None if card.weights is None else folder / card.weights
    network = models.load(
        spec, weights=weights, model_dir=loader.model_dir, normalize=card.normalize, device=loader.device
    )
    if card.sha256 not in (None, found := identity.hash_weights(network)):
        raise BoardError(
            f"{folder}: the weights of {card.name} here have sha256 {found}, its card says {card.sha256[:12]}...; "
            "the card or the weights are other ones"
        )
    return network


def describe(
    card: ModelCard, rules: BoardRules, rows: Rows, allowed: Allowed, ability: Ability, by: str, tool: str, turn: int
) -> CellInfo:
    """Return the cell of a submission: points by a person and a tool; `turn` counts an entry's submissions.

    It has the form of a benchmark's cell, so that everything that reads and checks stores works here as well.
    """
    assert card.sha256 is not None  # a card in an entry has it
    parameters: dict[str, Any] = {"steps": 0, "by": by, "tool": tool, "turn": turn, "ability": ability}
    limits = allowed.identity(tuple(rows.images.shape[1:]))
    question: dict[str, Any] = {
        **({"space": limits["space"]} if limits["space"] else {}),
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
        key=identity.digest(question),
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
        bounds=(question["bounds"][0], question["bounds"][1]),
        identity=question,
        origin=origin_of(card, rules),
        about=about(rows, allowed),
    )


def origin_of(card: ModelCard, rules: BoardRules) -> dict[str, Any]:
    """Return where a cell says that its model and rows came from."""
    return {"model": asdict(card.spec), "data": asdict(rules.data), "target": None}


def known(store: Store, rules: BoardRules) -> tuple[list[Run], Best]:
    """Return the runs of an entry on a board, the clean answers first, and the best of each sample.

    Of equals the one that came first counts.
    """
    cells = [info for info in store.cells() if info.dataset == rules.name and info.unit == rules.unit]
    cells.sort(key=lambda info: (int(info.parameters.get("turn", 0)), info.attack))
    if not cells or cells[0].attack != CLEAN or not store.stored(cells[0].key).all():
        raise BoardError(f"{store.path}: the model's clean answers on board {rules.name} are missing; add it again")
    facts = [store.facts(info.key, perturbations=False) for info in cells]
    runs = [
        Run(info, each, store.proved(info.key), info.unit, info.attack) for info, each in zip(cells, facts, strict=True)
    ]
    return runs, merge(runs)


def on_device(rows: Rows, loader: Loader) -> tuple[Tensor, Tensor]:
    """Return inputs and labels where the models are."""
    return rows.images.to(loader.device), rows.labels.to(loader.device)
