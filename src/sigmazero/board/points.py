"""Points that somebody claims to fool a model, whatever tool found them: out of a store, or out of an .npz file."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.board.folder import BoardError
from sigmazero.core.findings import Finding
from sigmazero.core.metrics import Outcome
from sigmazero.data import Rows
from sigmazero.report import findings, runs
from sigmazero.store.results import arrays
from sigmazero.store.store import Store


@dataclass(frozen=True)
class Claim:
    """Points for some of a board's rows, by their places on it, and the tool that found them."""

    tool: str
    places: NDArray[np.int64]
    points: Tensor


def claims(path: Path, rows: Rows, sha256: str | None) -> Iterator[Claim]:
    """What a file claims about the rows of a board; of a store the cells about the model with these weights.

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


def about_models(path: Path) -> set[str]:
    """The hashes of the models that the cells of a store are about; none for an .npz file, which does not say."""
    if path.suffix == ".npz":
        return set()
    with Store(path) as store:
        return {info.model_sha256 for info in store.cells()}


def said_of(path: Path, sha256: str) -> list[Finding]:
    """What makes the figures of a store about this model doubtful; an .npz file does not say."""
    if path.suffix == ".npz" or not path.is_file():
        return []
    with Store(path) as store:
        keys = [info.key for info in store.cells() if info.model_sha256 == sha256]
        return findings.errors(findings.findings(store, runs.load(store, keys)))


def _of_cell(store: Store, key: str, rows: Rows) -> Iterator[Claim]:
    info, facts = store.cell(key), store.facts(key)
    if not len(facts):
        return
    # The state of a cascade counts its inputs from 0; by their content they are these rows all the same.
    if info.data_hash == rows.content_hash:
        places = store.positions(key)
    else:
        known = {int(row): place for place, row in enumerate(rows.ids)}
        places = np.array([known.get(int(row), -1) for row in facts.row], np.int64)
    keep = facts.found & (facts.outcome != Outcome.ALREADY) & (places >= 0)  # whatever the budget of the run was
    facts, places = facts.take(keep), places[keep]
    features = rows.images[:1].numel()
    if len(facts.index) and not 0 <= facts.index.min() <= facts.index.max() < features:
        return  # inputs of another shape: another board's
    if len(facts):
        order = np.argsort(places)
        facts, places = facts.take(order), places[order]
        yield Claim(info.attack, places, facts.rebuild(rows.images[torch.from_numpy(places)]))


def _of_arrays(path: Path, rows: Rows) -> Claim:
    held = arrays(path)
    points = held.get("x_adv")
    if points is None or points.shape[1:] != rows.images.shape[1:] or not points.is_floating_point():
        found = "no x_adv" if points is None else f"x_adv of shape {tuple(points.shape)}"
        wanted = tuple(rows.images.shape[1:])
        raise BoardError(f"{path} has {found}; it should hold floating-point x_adv of shape {('n', *wanted)}, and ids")
    ids = held.get("ids", torch.arange(len(points)) if len(points) != len(rows) else rows.ids)
    if ids.shape != (len(points),):
        raise BoardError(f"{path} has {len(points)} points and {ids.numel()} ids; give one for each point")
    known = {int(row): place for place, row in enumerate(rows.ids)}
    places = np.array([known.get(int(row), -1) for row in ids], np.int64)
    keep = np.flatnonzero(places >= 0)
    order = keep[np.argsort(places[keep], kind="stable")]
    if len(np.unique(places[order])) < len(order):
        raise BoardError(f"{path} has two points for one row; give the better one")
    return Claim(path.name, places[order], points[torch.from_numpy(order)].to(rows.images.dtype))
