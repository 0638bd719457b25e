"""The folder of a leaderboard: board.toml, a folder per model with its card and its points, and a seal over each file.

The seals show accidents and careless edits. Whoever writes new ones is caught by replaying, which asks the models.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import Field

from sigmazero.bench.constraints import Allowed
from sigmazero.bench.identity import hash_file
from sigmazero.bench.loader import Loader, load_rows, refuse_untrusted
from sigmazero.bench.plan import DataSpec
from sigmazero.board.card import ModelCard, Sha256, read_card
from sigmazero.core import toml
from sigmazero.core.domain import Unit
from sigmazero.core.files import replacing
from sigmazero.core.toml import Count, Table, Text, Whole, Wholes
from sigmazero.data import DATASETS, Rows, is_data_file, is_folder
from sigmazero.data.table import stem
from sigmazero.store.store import Store, WriterLock

RULES, SEALS, CARD, POINTS = "board.toml", "seals.json", "card.toml", "points.db"
KS = (1, 4, 10, 24)


class BoardError(ValueError):
    """A leaderboard, or something for it, that is not as it must be; the message names the file."""


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
        held = toml.parse(toml.read(path / RULES), BoardFile, str(path / RULES))
        self.title = held.title
        self.boards = {name: table.rules(name) for name, table in held.boards.items()}
        self._rows: dict[str, Rows] = {}

    @property
    def slugs(self) -> list[str]:
        """The folders of the entries, by name."""
        folder = self.path / "entries"
        return sorted(each.name for each in folder.iterdir() if (each / CARD).is_file()) if folder.is_dir() else []

    def entry(self, slug: str) -> Path:
        """The folder of an entry."""
        return self.path / "entries" / slug

    def card(self, slug: str) -> ModelCard:
        """The card of an entry."""
        return read_card(self.entry(slug) / CARD)

    def find(self, name: str) -> str:
        """The folder of the entry of that name."""
        cards = {self.card(slug).name: slug for slug in self.slugs}
        if name not in cards:
            raise BoardError(f"{self.path}: no model is called {name!r}; there are {', '.join(cards) or 'none'}")
        return cards[name]

    def rows(self, name: str, loader: Loader) -> Rows:
        """The rows of a board; refused where what is here is not what the rules say."""
        rules = self.boards[name]
        if name not in self._rows:
            refuse_untrusted([rules.data], loader.trust)
            rows = load_rows(self.source(rules.data), loader.data_dir)
            if rows.content_hash != rules.sha256:
                raise BoardError(
                    f"{self.path / RULES}: the rows of board {name} here have sha256 {rows.content_hash[:12]}, the "
                    f"rules say {rules.sha256[:12]}; the data or the hash is another one"
                )
            self._rows[name] = rows
        return self._rows[name]

    def source(self, spec: DataSpec) -> DataSpec:
        """What to load for a board: a file lies in the folder, whatever the current one is."""
        if not is_data_file(spec.source):
            return spec
        if Path(spec.source).name != spec.source:
            raise BoardError(f"{self.path / RULES}: {spec.source} must be a file in the leaderboard's own folder")
        return DataSpec(spec.name, str(self.path / spec.source), spec.rows, spec.limit, spec.seed)

    def allowed(self, name: str, loader: Loader) -> Allowed:
        """What may change on a board: what the data says, else every value from 0 to 1."""
        return Allowed().on(self.rows(name, loader))

    @cached_property
    def seals(self) -> dict[str, list[str]]:
        """The hashes that each sealed file may have: one, or two while it is being exchanged."""
        try:
            held = json.loads((self.path / SEALS).read_text(encoding="utf-8"))["files"]
            return {str(file): [str(each) for each in hashes] for file, hashes in held.items()}
        except FileNotFoundError:
            raise BoardError(f"{self.path / SEALS} is missing; take the leaderboard as it was published") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise BoardError(f"{self.path / SEALS} is damaged ({error}); take it as it was published") from None

    def broken(self, slug: str | None = None) -> Iterator[str]:
        """What is not as it was sealed, of one entry or of everything."""
        folder = "" if slug is None else f"entries/{slug}/"
        for file, hashes in self.seals.items():
            if file.startswith(folder) or file == RULES:
                if not (self.path / file).is_file():
                    yield f"{file} is missing"
                elif (found := hash_file(self.path / file)) not in hashes:
                    yield f"{file} was changed since it was sealed (sha256 {found[:12]}, sealed {hashes[-1][:12]})"
        for each in self.slugs if slug is None else [slug]:
            for path in sorted(self.entry(each).iterdir()):
                name = path.relative_to(self.path).as_posix()
                if name not in self.seals and not path.name.startswith("."):
                    yield f"{name} is not sealed: it was put there by hand"

    def refuse_broken(self, slug: str, file: str = "") -> None:
        """Nothing is built on an entry that was tampered with, or on this file of it."""
        for what in self.broken(slug):
            if file and not what.startswith(f"entries/{slug}/{file} "):
                continue
            raise BoardError(f"{self.path}: {what}; take the file as it was published, or add the model again")

    def seal(self, files: dict[str, list[str]], gone: str = "") -> None:
        """Note these hashes; what lies below `gone` is forgotten first."""
        kept = {file: hashes for file, hashes in self._held().items() if not gone or not file.startswith(gone)}
        with replacing(self.path / SEALS) as part:
            held = {"format": 1, "files": dict(sorted({**kept, **files}.items()))}
            part.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
        self.__dict__.pop("seals", None)

    def _held(self) -> dict[str, list[str]]:
        return self.seals if (self.path / SEALS).exists() else {}

    @contextmanager
    def changing(self) -> Iterator[None]:
        """While one process changes a leaderboard, no other does."""
        lock = WriterLock(self.path / ".board", 0.0)
        try:
            yield
        finally:
            lock.close()

    @contextmanager
    def points(self, slug: str) -> Iterator[Store]:
        """The store of an entry, to write to: a copy, which takes its place under a new seal if all went well."""
        place, name = self.entry(slug) / POINTS, f"entries/{slug}/{POINTS}"
        part = place.with_name(f".{POINTS}.{os.getpid()}.part")
        try:
            if place.exists():
                shutil.copyfile(place, part)
            with Store(part, write=True) as store:
                yield store
            new = hash_file(part)
            self.seal({name: [*self._held().get(name, [])[-1:], new]})
            os.replace(part, place)
            self.seal({name: [new]})
        finally:
            for rest in place.parent.glob(f"{part.name}*"):
                rest.unlink(missing_ok=True)


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


def slug_of(name: str) -> str:
    """A name for an entry's folder.

    >>> slug_of("../ResNet 20 (mine)")
    'resnet-20-mine'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower())[:60].strip("-") or "model"


def new_board(path: Path, name: str, spec: DataSpec, unit: Unit, ks: Sequence[int], data_dir: Path | None) -> Rows:
    """Write a board into the rules of a leaderboard, new or at hand; a file of rows is copied beside them."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
        raise ValueError(f"a board called {name!r}: use small letters, digits and hyphens")
    old = (path / RULES).read_text(encoding="utf-8") if (path / RULES).exists() else ""
    if old and name in Leaderboard(path).boards:
        raise BoardError(f"{path / RULES} has a board {name} already, and its rows are fixed; choose another name")
    if spec.source not in DATASETS and is_folder(spec.source):
        raise ValueError(f"{spec.source} is a folder, and a board copies one file; save its rows as .npz first")
    rows = load_rows(spec, data_dir)
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
    Leaderboard(path).seal({file: [hash_file(path / file)] for file in (RULES, *copied)})
    return rows


def _copied(source: Path, folder: Path) -> list[str]:
    """Copy a file of rows, and what is said about it in files beside it; their names, its own first."""
    beside = [source.with_name(f"{stem(source)}{ending}") for ending in (".toml", ".space.toml")]
    files = [source, *(file for file in beside if file.is_file())]
    for file in files:
        if not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
        elif hash_file(folder / file.name) != hash_file(file):
            raise BoardError(f"{folder / file.name} is another file than {file}; rename one of them")
    return [file.name for file in files]
