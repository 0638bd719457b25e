"""Read submitted points, whatever tool found them: out of a store, or out of an .npz file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.board.folder import BoardError
from sigmazero.core.findings import Finding
from sigmazero.core.metrics import Outcome
from sigmazero.data import Rows
from sigmazero.report import findings, runs
from sigmazero.store.store import Store


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
                yield from _of_cell(store, info.key, rows)


def model_hashes(path: Path) -> set[str]:
    """Return the hashes of the models that the cells of a store are about; none for an .npz file."""
    if path.suffix == ".npz":
        return set()
    with Store(path) as store:
        return {info.model_sha256 for info in store.cells()}


def store_findings(path: Path, sha256: str) -> list[Finding]:
    """Return the errors that make a store's figures about this model doubtful; none for an .npz file."""
    if path.suffix == ".npz" or not path.is_file():
        return []
    with Store(path) as store:
        keys = [info.key for info in store.cells() if info.model_sha256 == sha256]
        return findings.errors(findings.findings(store, runs.load(store, keys)))


def _of_cell(store: Store, key: str, rows: Rows) -> Iterator[Submission]:
    info, facts = store.cell(key), store.facts(key)
    places = store.positions(key) if info.data_hash == rows.content_hash else _places(facts.row, rows)
    keep = facts.found & (facts.outcome != Outcome.ALREADY) & (places >= 0)  # whatever the budget of the run was
    keep = np.flatnonzero(keep)[np.argsort(places[keep])]
    facts, places = facts.take(keep), places[keep]
    fits = len(facts.index) and 0 <= facts.index.min() <= facts.index.max() < rows.images[:1].numel()
    if fits:  # otherwise there is nothing, or inputs of another shape, which are another board's
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
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError) as error:
        if isinstance(error, BoardError):
            raise
        raise BoardError(f"{path} is no .npz file with x_adv and ids ({error}); save both with numpy.savez") from None


def _points(path: Path, file: Any, places: NDArray[np.int64], rows: Rows) -> Submission:
    wanted = tuple(rows.images.shape[1:])
    version = np.lib.format.read_magic(file)
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, columns_first, kind = header(file)
    if columns_first or kind.kind != "f" or shape[1:] != wanted:
        found = f"{kind} x_adv of shape {shape}" + (" in Fortran order" if columns_first else "")
        raise BoardError(f"{path} has {found}; give floating-point x_adv of shape {('n', *wanted)}")
    if shape[0] != len(places):
        raise BoardError(f"{path} has {shape[0]} points and {len(places)} ids; give one id for each point")
    on_board = places[places >= 0]
    if not len(on_board):
        raise BoardError(f"{path} has no point for a row of this board, whose rows are {_few(rows)}; check the ids")
    if len(np.unique(on_board)) < len(on_board):
        raise BoardError(f"{path} has two points for one row; give the better one")
    points, size = torch.empty(len(on_board), *wanted, dtype=rows.images.dtype), int(np.prod(wanted)) * kind.itemsize
    at = np.argsort(np.argsort(on_board))
    for place in places:
        raw = file.read(size)
        if place >= 0:
            values = np.frombuffer(raw, kind).reshape(wanted).astype(kind.newbyteorder("="))
            points[at[0]], at = torch.from_numpy(values).to(points.dtype), at[1:]
    return Submission(path.name, np.sort(on_board), points)


def _few(rows: Rows) -> str:
    return runs.few(sorted(rows.ids.tolist()))
