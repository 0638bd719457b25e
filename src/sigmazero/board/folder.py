"""The folder of a leaderboard: board.toml, and a folder for each model with its card and its points.

An entry appears and changes as a whole. `verify` replays every point; who found it is guarded by the history of the
folder, in Git or elsewhere.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sigmazero.bench.constraints import Allowed
from sigmazero.bench.identity import hash_file
from sigmazero.bench.loader import Loader, load_rows, refuse_untrusted
from sigmazero.bench.plan import DataSpec, ModelSpec
from sigmazero.core import faults, toml
from sigmazero.core.domain import Unit
from sigmazero.core.files import replacing
from sigmazero.core.toml import Count, Names, Number, Table, Text, Whole, Wholes
from sigmazero.data import DATASETS, Rows, is_data_file, is_folder
from sigmazero.data.table import stem
from sigmazero.models import find
from sigmazero.store.store import WriterLock

RULES, CARD, POINTS = "board.toml", "card.toml", "points.db"
PART, OLD = ".part", ".old"  # ends of the folders of an entry that is being written, and of the one it replaces
KS = (1, 4, 10, 24)
ABOUT = ("title", "authors", "license", "architecture", "trained_on", "trained_against", "note")
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="what `bench.identity.hash_weights` gives")]
Link = Annotated[str, Field(pattern=r"^https?://[^\s\"'<>\\]+$")]


class BoardError(ValueError):
    """Report a leaderboard, or a file for it, that breaks a rule; the message names the file."""


class BoardRules(Table):
    """`[boards.NAME]`: which rows of which data, what counts as one change, and the k of the columns."""

    data: Text
    sha256: Sha256
    rows: Text | None = None
    limit: Count | None = None
    seed: Whole | None = None
    unit: Unit = "feature"
    ks: Wholes = Field(default=list(KS))

    def spec(self, name: str) -> DataSpec:
        """Return the rows of the board of that name, as stores name them."""
        return DataSpec(name, self.data, self.rows, self.limit, self.seed)


class BoardFile(Table):
    """The tables of board.toml."""

    title: Text = "Robustness to sparse changes"
    boards: dict[str, BoardRules] = Field(default={})


class ModelCard(Table):
    """One model: what it is, how to build it, and the boards it stands on.

    sha256    of its weights, whatever file they are in; `board add` fills it in where it is missing
    accuracy  on clean inputs, in %, as its authors give it
    """

    name: Text
    model: Text
    boards: Names
    sha256: Sha256 | None = None
    weights: Text | None = None
    normalize: Text | None = None
    accuracy: Number | None = None
    title: Text | None = None
    authors: Text | None = None
    license: Text | None = None
    architecture: Text | None = None
    trained_on: Text | None = None
    trained_against: Text | None = None
    note: Text | None = None
    paper: Link | None = None
    code: Link | None = None

    @property
    def spec(self) -> ModelSpec:
        """Return the model as stores name it."""
        return ModelSpec(self.name, self.model, self.weights, self.normalize)

    def spec_in(self, folder: Path) -> ModelSpec:
        """Return the model with the paths of its files, which lie in this folder."""
        model = self.model if self.code_file is None else f"{folder / self.model}"
        return replace(self.spec, spec=model, weights=None if self.weights is None else f"{folder / self.weights}")

    @property
    def code_file(self) -> str | None:
        """Return the file that the model is built from, if there is one: Python code, a program or an ONNX file."""
        place = self.model.rpartition(":")[0] or self.model
        return place if find(self.model) is None and Path(place).suffix in (".py", ".pt2", ".onnx") else None

    @property
    def files(self) -> list[str]:
        """Return the names of the files that belong beside the card."""
        return [file for file in (self.code_file, self.weights) if file is not None]

    @property
    def about(self) -> dict[str, str]:
        """Return what the page of the model says, by its headings."""
        about = {key.replace("_", " "): getattr(self, key) for key in ABOUT}
        about |= {"built by": self.model, "weights file": self.weights, "SHA-256 of the weights": self.sha256}
        return {key: text for key, text in about.items() if text is not None}

    @property
    def links(self) -> dict[str, str]:
        """Return addresses by what they lead to."""
        return {key: address for key in ("paper", "code") if (address := getattr(self, key)) is not None}


def read_card(path: Path) -> ModelCard:
    """Read a card; errors name the file, the line and the value."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; a card is a TOML file (docs/leaderboard.md)")
    text = toml.read(path)
    card = toml.parse(text, ModelCard, str(path))
    for file in card.files:
        if not re.fullmatch(r"[\w][\w.+-]*", file):
            raise toml.error(text, str(path), f"{file!r} must be the name of a file beside the card, without folders")
        if (path.parent / file).is_symlink():
            raise toml.error(text, str(path), f"{file!r} is a link; put the file itself beside the card")
    return card


class Leaderboard:
    """A folder that holds boards and entries."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / RULES).is_file():
            raise FileNotFoundError(
                f"{path / RULES}: no such file; a leaderboard is a folder with such a file (docs/leaderboard.md)"
            )
        rules = toml.parse(toml.read(path / RULES), BoardFile, str(path / RULES))
        self.title, self.boards = rules.title, rules.boards
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
            spec = rules.spec(name)
            refuse_untrusted([spec], loader.trust)
            if is_data_file(rules.data):
                if Path(rules.data).name != rules.data:
                    raise BoardError(
                        f"{self.path / RULES}: {rules.data} must be a file in the leaderboard's own folder"
                    )
                spec = replace(spec, source=f"{self.path / rules.data}")
            rows = load_rows(spec)
            if rows.content_hash != rules.sha256:
                raise BoardError(
                    f"{self.path / RULES}: the rows of board {name} here have sha256 {rows.content_hash[:12]}, the "
                    f"rules say {rules.sha256[:12]}; the data or the hash is another one"
                )
            self._rows[name] = rows
        return self._rows[name]

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
    chosen = {
        "data": _copied(Path(spec.source), path) if is_data_file(spec.source) else spec.source,
        "rows": spec.rows,
        "limit": spec.limit,
        "seed": spec.seed,
        "sha256": rows.content_hash,
        "unit": unit,
        "ks": list(ks),
    }
    lines = [
        f"[boards.{name}]",
        *(f"{key} = {json.dumps(value)}" for key, value in chosen.items() if value is not None),
    ]
    with replacing(path / RULES) as part:
        part.write_text("\n".join([*([old] if old else []), *lines, ""]), encoding="utf-8")
    return rows


def _copied(source: Path, folder: Path) -> str:
    """Copy a file of rows and the files that describe it; return its name."""
    beside = [source.with_name(f"{stem(source)}{ending}") for ending in (".toml", ".space.toml")]
    for file in [source, *(file for file in beside if file.is_file())]:
        if not (folder / file.name).exists():
            shutil.copyfile(file, folder / file.name)
        elif hash_file(folder / file.name) != hash_file(file):
            raise BoardError(f"{folder / file.name} is another file than {file}; rename one of them")
    return source.name
