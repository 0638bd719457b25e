"""Load an entry on its boards: the model that its card names, and the best point of each sample in its store."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from sigmazero import models
from sigmazero.bench import identity
from sigmazero.bench.cells import about
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import Loader, refuse_untrusted
from sigmazero.board.card import ModelCard
from sigmazero.board.folder import CARD, BoardError, BoardRules, Leaderboard
from sigmazero.core.model import ability_of
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
    network = models.load(spec, weights=weights, normalize=card.normalize, device=loader.device)
    if card.sha256 not in (None, found := identity.hash_weights(network)):
        raise BoardError(
            f"{folder}: the weights of {card.name} here have sha256 {found}, its card says {card.sha256[:12]}...; "
            "the card or the weights are other ones"
        )
    return network


@dataclass(frozen=True)
class Placement:
    """An entry on one of its boards, with its model loaded."""

    board: Leaderboard
    slug: str
    card: ModelCard
    rules: BoardRules
    network: nn.Module
    loader: Loader

    @property
    def rows(self) -> Rows:
        """Return the rows of the board."""
        return self.board.rows(self.rules.name, self.loader)

    @property
    def allowed(self) -> Allowed:
        """Return what may change on the board."""
        return self.board.allowed(self.rules.name, self.loader)

    def on_device(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return inputs and labels where the model is."""
        return rows.images.to(self.loader.device), rows.labels.to(self.loader.device)

    def origin(self) -> dict[str, Any]:
        """Return what a cell states as the origin of its model and rows."""
        return {"model": asdict(self.card.spec), "data": asdict(self.rules.data), "target": None}

    def describe(self, by: str, tool: str, turn: int) -> CellInfo:
        """Return the cell of a submission: points by a person and a tool; `turn` counts an entry's submissions.

        It has the form of a benchmark's cell, so that everything that reads and checks stores works here as well.
        """
        rows, allowed = self.rows, self.allowed
        parameters = {"steps": 0, "by": by, "tool": tool, "turn": turn, "ability": ability_of(self.network)}
        question: dict[str, Any] = {
            "format": FORMAT,
            "attack": {"class": "Submission", "version": 1, "parameters": parameters},
            "model": {"weights": self.card.sha256, "code": {}},
            "data": rows.content_hash,
            "ids": identity.hash_integers(rows.ids),
            "targets": None,
            "unit": self.rules.unit,
            "budget": None,
            "seed": 0,
            "precision": "fp32",
            **allowed.identity(tuple(rows.images.shape[1:])),
        }
        return CellInfo.of(
            question,
            model=self.card.name,
            dataset=self.rules.name,
            attack=tool,
            rows=len(rows),
            origin=self.origin(),
            about=about(rows, allowed),
        )

    def known(self, store: Store) -> tuple[list[Run], Best]:
        """Return the runs of the entry, the clean answers first, and the best of each sample.

        Of equals the one that came first counts. A point below what is proved is refused.
        """
        name = self.rules.name
        cells = [info for info in store.cells() if info.dataset == name and info.unit == self.rules.unit]
        cells.sort(key=lambda info: (int(info.parameters.get("turn", 0)), info.attack))
        if not cells or cells[0].attack != CLEAN or not store.stored(cells[0].key).all():
            raise BoardError(f"{store.path}: the model's clean answers on board {name} are missing; add it again")
        runs = [
            Run(info, store.facts(info.key, perturbations=False), store.proved(info.key), info.unit, info.attack)
            for info in cells
        ]
        return runs, merge(runs)


def placements(board: Leaderboard, slug: str, loader: Loader) -> list[Placement]:
    """Load an entry's model, and return the entry on each of its boards."""
    card = board.card(slug)
    if unknown := [name for name in card.boards if name not in board.boards]:
        raise BoardError(f"{CARD} names a board {unknown[0]!r} that is not there")
    network = load_network(card, board.entry(slug), loader)
    return [Placement(board, slug, card, board.boards[name], network, loader) for name in card.boards]
