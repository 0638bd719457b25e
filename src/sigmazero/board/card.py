"""The card of a model: what it is, how to build it, and the hash of its weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sigmazero.bench.plan import ModelSpec
from sigmazero.core import toml
from sigmazero.core.toml import Names, Number, Table, Text
from sigmazero.models import find

TOLD = ("title", "authors", "license", "architecture", "trained_on", "trained_against", "note")
LINKS = ("paper", "code")
MAX_BYTES = 1 << 16  # of a card
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="what `bench.identity.hash_weights` gives")]
Link = Annotated[str, Field(pattern=r"^https?://[^\s\"'<>\\]+$")]
_FILE = re.compile(r"[\w][\w.+-]*")


@dataclass(frozen=True)
class Lower:
    """Certified lower bounds: a file of them, and who says so, by which method."""

    file: str
    method: str
    url: str | None = None


@dataclass(frozen=True)
class ModelCard:
    """One model. `told` is what people say of it, `links` leads to more; all else is checked.

    boards      the boards it stands on
    sha256      of its weights, whatever file they are in
    accuracy    what it is said to have on clean inputs, in %
    """

    name: str
    model: str
    sha256: str
    boards: tuple[str, ...]
    weights: str | None
    normalize: str | None
    accuracy: float | None
    lower: Lower | None
    told: dict[str, str]
    links: dict[str, str]

    @property
    def spec(self) -> ModelSpec:
        """The model as stores and loaders name it."""
        return ModelSpec(self.name, self.model, self.weights, self.normalize)

    @property
    def code_file(self) -> str | None:
        """The file that the model is built from, if there is one: Python code, a program or an ONNX file."""
        if find(self.model) is not None:
            return None
        place = self.model.rpartition(":")[0] or self.model
        return place if Path(place).suffix in (".py", ".pt2", ".onnx") else None

    @property
    def files(self) -> list[str]:
        """The files that belong beside the card."""
        lower = None if self.lower is None else self.lower.file
        return [file for file in (self.code_file, self.weights, lower) if file is not None]


class LowerTable(Table):
    """`[lower]`."""

    file: Text
    method: Text
    url: Link | None = None


class CardFile(Table):
    """The tables of a card."""

    name: Text
    model: Text
    sha256: Sha256
    boards: Names
    weights: Text | None = None
    normalize: Text | None = None
    accuracy: Number | None = None
    lower: LowerTable | None = None
    title: Text | None = None
    authors: Text | None = None
    license: Text | None = None
    architecture: Text | None = None
    trained_on: Text | None = None
    trained_against: Text | None = None
    note: Text | None = None
    paper: Link | None = None
    code: Link | None = None


def read_card(path: Path) -> ModelCard:
    """Read a card; errors name the file, the line and the value."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; a card is a TOML file (docs/leaderboard.md)")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: a card of more than {MAX_BYTES // 1024} KB is none; name another file")
    text = toml.read(path)
    held = toml.parse(text, CardFile, str(path))
    lower = held.lower
    card = ModelCard(
        held.name,
        held.model,
        held.sha256,
        tuple(held.boards),
        held.weights,
        held.normalize,
        held.accuracy,
        None if lower is None else Lower(lower.file, lower.method, lower.url),
        {key.replace("_", " "): getattr(held, key) for key in TOLD if getattr(held, key) is not None},
        {key: getattr(held, key) for key in LINKS if getattr(held, key) is not None},
    )
    for file in card.files:
        if not _FILE.fullmatch(file):
            raise toml.error(text, str(path), f"{file!r} must be the name of a file beside the card, without folders")
    return card
