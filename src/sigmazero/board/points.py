"""The points of a leaderboard: an entry on its boards, what its store holds, and points that people submit."""

import zipfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero import models
from sigmazero.bench import identity
from sigmazero.bench.cells import about
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import Loader, refuse_untrusted
from sigmazero.board.folder import CARD, BoardError, BoardRules, Leaderboard, ModelCard
from sigmazero.core.metrics import Outcome
from sigmazero.core.model import ability_of
from sigmazero.data import Rows
from sigmazero.report.runs import Best, Run, few, merge, not_finite_is_wrong
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

CLEAN = "clean answers"  # the first cell of every entry: the model's answers to the clean rows
FORMAT = "board 1"


def load_network(card: ModelCard, folder: Path, loader: Loader) -> nn.Module:
    """Load the model of a card, whose files lie in a folder; refuse code that is not trusted, and other weights."""
    refuse_untrusted([card.spec], loader.trust)
    spec = card.spec_in(folder)
    network = models.load(spec.spec, weights=spec.weights, normalize=spec.normalize, device=loader.device)
    if card.sha256 not in (None, found := identity.hash_weights(network)):
        raise BoardError(
            f"{folder}: the weights of {card.name} here have sha256 {found}, its card says {card.sha256[:12]}...; "
            "the card or the weights are other ones"
        )
    return network


@dataclass(frozen=True)
class Placement:
    """An entry on one of its boards, with its model loaded; `name` is that of the board."""

    board: Leaderboard
    slug: str
    card: ModelCard
    name: str
    network: nn.Module
    loader: Loader

    @property
    def rules(self) -> BoardRules:
        """Return the rules of the board."""
        return self.board.boards[self.name]

    @property
    def rows(self) -> Rows:
        """Return the rows of the board."""
        return self.board.rows(self.name, self.loader)

    @property
    def allowed(self) -> Allowed:
        """Return what may change on the board: as the data states it, else every value from 0 to 1."""
        return Allowed().on(self.rows)

    def on_device(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return inputs and labels where the model is."""
        return rows.images.to(self.loader.device), rows.labels.to(self.loader.device)

    def origin(self) -> dict[str, Any]:
        """Return what a cell states as the origin of its model and rows."""
        return {"model": asdict(self.card.spec), "data": asdict(self.rules.spec(self.name)), "target": None}

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
        names = {"model": self.card.name, "dataset": self.name, "attack": tool}
        return CellInfo.of(question, **names, rows=len(rows), origin=self.origin(), about=about(rows, allowed))

    def known(self, store: Store) -> tuple[list[Run], Best]:
        """Return the runs of the entry, the clean answers first, and the best of each sample.

        Of equals the one that came first counts.
        """
        cells = [info for info in store.cells() if (info.dataset, info.unit) == (self.name, self.rules.unit)]
        cells.sort(key=lambda info: (int(info.parameters.get("turn", 0)), info.attack))
        if not cells or cells[0].attack != CLEAN or not store.stored(cells[0].key).all():
            raise BoardError(f"{store.path}: the model's clean answers on board {self.name} are missing; add it again")
        runs = [
            Run(info, store.facts(info.key, perturbations=False), store.proved(info.key), info.unit, info.attack)
            for info in cells
        ]
        return runs, merge([*map(not_finite_is_wrong, runs)])


def placements(board: Leaderboard, slug: str, loader: Loader) -> list[Placement]:
    """Load an entry's model, and return the entry on each of its boards."""
    card = board.card(slug)
    if unknown := [name for name in card.boards if name not in board.boards]:
        raise BoardError(f"{CARD} names a board {unknown[0]!r} that is not there")
    network = load_network(card, board.entry(slug), loader)
    return [Placement(board, slug, card, name, network, loader) for name in card.boards]


@dataclass(frozen=True)
class Submission:
    """Points for some of a board's rows, by their places on it, and the tool that found them."""

    tool: str
    places: NDArray[np.int64]
    points: Tensor


def read_points(path: Path, rows: Rows, sha256: str | None) -> Iterator[Submission]:
    """Yield the points of a file for the rows of a board; of a store those of the model with these weights.

    Without `sha256` all cells count, whichever model they were found on: replaying decides.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; give a store, or an .npz file with x_adv and ids")
    if path.suffix == ".npz":
        yield _of_arrays(path, rows)
        return
    with Store(path) as store:
        for info in store.cells():
            if sha256 is None or info.model_sha256 == sha256:
                yield from _of_cell(store, info, rows)


def _of_cell(store: Store, info: CellInfo, rows: Rows) -> Iterator[Submission]:
    facts = store.facts(info.key)
    places = store.positions(info.key) if info.data_hash == rows.content_hash else _places(facts.row, rows)
    keep = facts.found & (facts.outcome != Outcome.ALREADY) & (places >= 0)  # whatever the budget of the run was
    keep = np.flatnonzero(keep)[np.argsort(places[keep])]
    facts, places = facts.take(keep), places[keep]
    # Changes elsewhere are of inputs of another shape, which are another board's.
    if len(facts.index) and 0 <= facts.index.min() <= facts.index.max() < rows.images[:1].numel():
        yield Submission(info.attack, places, facts.rebuild(rows.images[torch.from_numpy(places)]))


def _places(ids: Any, rows: Rows) -> NDArray[np.int64]:
    """Return the place of each row on a board, −1 for others."""
    known = {int(row): place for place, row in enumerate(rows.ids)}
    return np.array([known.get(int(row), -1) for row in ids], np.int64)


def _of_arrays(path: Path, rows: Rows) -> Submission:
    """Read x_adv and ids; of x_adv only the rows of the board, so that a large file takes little memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            with archive.open("ids.npy") as file:
                ids = np.lib.format.read_array(file, allow_pickle=False)
            if ids.ndim != 1 or ids.dtype.kind not in "iu":
                raise BoardError(f"{path} has ids of type {ids.dtype} and shape {ids.shape}; give one number per point")
            with archive.open("x_adv.npy") as file:
                return _points(path, file, _places(ids, rows), rows)
    except BoardError:
        raise
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        raise BoardError(f"{path} is no .npz file with x_adv and ids ({error}); save both with numpy.savez") from None


def _points(path: Path, file: Any, places: NDArray[np.int64], rows: Rows) -> Submission:
    wanted, of_board = tuple(rows.images.shape[1:]), places[places >= 0]
    old = np.lib.format.read_magic(file) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    shape, columns_first, kind = read(file)
    if columns_first or kind.kind != "f" or shape[1:] != wanted:
        found = f"{kind} x_adv of shape {shape}" + (" in Fortran order" if columns_first else "")
        raise BoardError(f"{path} has {found}; give floating-point x_adv of shape {('n', *wanted)}")
    if shape[0] != len(places):
        raise BoardError(f"{path} has {shape[0]} points and {len(places)} ids; give one id for each point")
    if not len(of_board):
        known = few(sorted(rows.ids.tolist()))
        raise BoardError(f"{path} has no point for a row of this board, whose rows are {known}; check the ids")
    if len(np.unique(of_board)) < len(of_board):
        raise BoardError(f"{path} has two points for one row; give the better one")
    points, size = np.empty((len(rows), *wanted), kind.newbyteorder("=")), int(np.prod(wanted)) * kind.itemsize
    for place in places:
        raw = file.read(size)
        if place >= 0:
            points[place] = np.frombuffer(raw, kind).reshape(wanted)
    order = np.sort(of_board)
    return Submission(path.name, order, torch.from_numpy(points[order]).to(rows.images.dtype))
