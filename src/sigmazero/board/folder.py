"""The folder of a leaderboard: board.toml, and a folder for each model with its card and its points.

An entry appears and changes as a whole. `verify` replays every point; who found it is guarded by the history of the
folder, in Git or elsewhere.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from sigmazero.bench.constraints import Allowed
from sigmazero.bench.identity import hash_file
from sigmazero.bench.loader import Loader, load_rows, refuse_untrusted
from sigmazero.bench.plan import DataSpec
from sigmazero.board.card import ModelCard, Sha256, read_card
from sigmazero.core import faults, toml
from sigmazero.core.domain import Unit
from sigmazero.core.files import replacing
from sigmazero.core.toml import Count, Table, Text, Whole, Wholes
from sigmazero.data import DATASETS, Rows, is_data_file, is_folder
from sigmazero.data.table import stem
from sigmazero.store.store import WriterLock

RULES, CARD, POINTS = "board.toml", "card.toml", "points.db"
PART, OLD = ".part", ".old"  # ends of the folders of an entry that is being written, and of the one it replaces
KS = (1, 4, 10, 24)


class BoardError(ValueError):
    """Report a leaderboard, or a file for it, that breaks a rule; the message names the file."""


@dataclass(frozen=True)
class BoardRules:
    """One board: which rows of which data, by their hash, what counts as one change, and the k of its columns."""

    name: str
    data: DataSpec
    sha256: str
    unit: Unit
    ks: tuple[int, ...]


class Leaderboard:
    """A folder that holds boards and entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / RULES).is_file():
            raise FileNotFoundError(
                f"{path / RULES}: no such file; a leaderboard is a folder with such a file (docs/leaderboard.md)"
            )
        rules = toml.parse(toml.read(path / RULES), BoardFile, str(path / RULES))
        self.title = rules.title
        self.boards = {name: table.rules(name) for name, table in rules.boards.items()}
        self._rows: dict[str, Rows] = {}

    @property
    def slugs(self) -> list[str]:
        """Return the names of the entries' folders."""
        names = {each.parent.name for each in self.path.glob(f"entries/*/{CARD}")}
        former = {name[1 : -len(OLD)] for name in names if name.endswith(OLD)}
        return sorted({name for name in names if not name.startswith(".")} | former)

    def entry(self, slug: str) -> Path:
        """Return the folder of an entry: the former one while no other has taken its place."""
        place, old = self._folder(slug), self._folder(f".{slug}{OLD}")
        return old if old.exists() and not place.exists() else place

    def _folder(self, name: str) -> Path:
        return self.path / "entries" / name

    def card(self, slug: str) -> ModelCard:
        """Return the card of an entry."""
        return read_card(self.entry(slug) / CARD)

    def find(self, name: str) -> str:
        """Return the name of the folder of a model's entry."""
        cards = {self.card(slug).name: slug for slug in self.slugs}
        if name not in cards:
            raise BoardError(f"{self.path}: no model is called {name!r}; there are {', '.join(cards) or 'none'}")
        return cards[name]

    def rows(self, name: str, loader: Loader) -> Rows:
        """Return the rows of a board; refuse other rows than the rules name."""
        rules = self.boards[name]
        if name not in self._rows:
            refuse_untrusted([rules.data], loader.trust)
            rows = load_rows(self.source(rules.data))
            if rows.content_hash != rules.sha256:
                raise BoardError(
                    f"{self.path / RULES}: the rows of board {name} here have sha256 {rows.content_hash[:12]}, the "
                    f"rules say {rules.sha256[:12]}; the data or the hash is another one"
                )
            self._rows[name] = rows
        return self._rows[name]

    def source(self, spec: DataSpec) -> DataSpec:
        """Return what to load for a board: a file lies in the board's folder."""
        if not is_data_file(spec.source):
            return spec
        if Path(spec.source).name != spec.source:
            raise BoardError(f"{self.path / RULES}: {spec.source} must be a file in the leaderboard's own folder")
        return DataSpec(spec.name, str(self.path / spec.source), spec.rows, spec.limit, spec.seed)

    def allowed(self, name: str, loader: Loader) -> Allowed:
        """Return what may change on a board: as the data states it, else every value from 0 to 1."""
        return Allowed().on(self.rows(name, loader))

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Keep other processes from changing the leaderboard; put right what a killed one left half done."""
        lock = WriterLock(self.path / ".board")
        try:
            for part in self.path.glob(f"entries/.*{PART}"):
                shutil.rmtree(part)
            for old in self.path.glob(f"entries/.*{OLD}"):
                self._settle(old.name[1 : -len(OLD)])
            yield
        finally:
            lock.close()

    @contextmanager
    def rewriting(self, slug: str) -> Iterator[Path]:
        """Yield a copy of an entry's folder to change; it takes the entry's place if nothing went wrong."""
        place, part, old = (self._folder(name) for name in (slug, f".{slug}{PART}", f".{slug}{OLD}"))
        try:
            if place.exists():
                shutil.copytree(place, part, symlinks=True)
            else:
                part.mkdir(parents=True)
            yield part
            for lock in part.glob("*.lock"):  # of a store, which is closed now
                lock.unlink()
            faults.reach("entry.written")
            if place.exists():
                os.replace(place, old)
            faults.reach("entry.moved")
            os.replace(part, place)
        finally:
            shutil.rmtree(part, ignore_errors=True)
            self._settle(slug)

    def _settle(self, slug: str) -> None:
        """Remove the former state of an entry, or put it back if no other took its place."""
        old = self._folder(f".{slug}{OLD}")
        if old.exists() and not self._folder(slug).exists():
            os.replace(old, self._folder(slug))
        shutil.rmtree(old, ignore_errors=True)


class BoardTable(Table):
    """`[boards.NAME]`."""

    data: Text
    sha256: Sha256
    rows: Text | None = None
    limit: Count | None = None
    seed: Whole | None = None
    unit: Unit = "feature"
    ks: Wholes = Field(default=list(KS))

    def rules(self, name: str) -> BoardRules:
        """Return the rules of the board of that name."""
        spec = DataSpec(name, self.data, self.rows, self.limit, self.seed)
        return BoardRules(name, spec, self.sha256, self.unit, tuple(sorted(self.ks)))


class BoardFile(Table):
    """The tables of board.toml."""

    title: Text = "Robustness to sparse changes"
    boards: dict[str, BoardTable] = Field(default={})


def new_board(path: Path, name: str, spec: DataSpec, unit: Unit, ks: Sequence[int]) -> Rows:
    """Add a board to the rules of a leaderboard, which may be new; a file of rows is copied into its folder."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ValueError(f"a board called {name!r}: use small letters, digits and hyphens")
    old = (path / RULES).read_text(encoding="utf-8") if (path / RULES).exists() else ""
    if old and name in Leaderboard(path).boards:
        raise BoardError(f"{path / RULES} has a board {name} already, and its rows are fixed; choose another name")
    if spec.source not in DATASETS and is_folder(spec.source):
        raise ValueError(f"{spec.source} is a folder, and a board copies one file; save its rows as .npz first")
    rows = load_rows(spec)
    Allowed().on(rows).pose(rows.images, rows.labels, unit=unit)  # rows that no attack could begin at are an error now
    path.mkdir(parents=True, exist_ok=True)
    copied = _copied(Path(spec.source), path) if is_data_file(spec.source) else []
    chosen = {
        "data": copied[0] if copied else spec.source,
        "rows": spec.rows,
        "limit": spec.limit,
        "seed": spec.seed,
        "sha256": rows.content_hash,
        "unit": unit,
        "ks": list(ks),
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in chosen.items() if value is not None]
    with replacing(path / RULES) as part:
        text = "\n".join([f"[boards.{name}]", *lines])
        part.write_text((f"{old}\n" if old else "") + f"{text}\n", encoding="utf-8")
    return rows


def _copied(source: Path, folder: Path) -> list[str]:
    """Copy a file of rows and the files that describe it; return their names, its own first."""
    beside = [source.with_name(f"{stem(source)}{ending}") for ending in (".toml", ".space.toml")]
    files = [source, *(file for file in beside if file.is_file())]
    for file in files:
        if not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
        elif hash_file(folder / file.name) != hash_file(file):
            raise BoardError(f"{folder / file.name} is another file than {file}; rename one of them")
    return [file.name for file in files]
