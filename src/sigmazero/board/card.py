"""Read the card of a model: what it is, how to build it, and the hash of its weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import Field

from sigmazero.bench.plan import ModelSpec
from sigmazero.core import toml
from sigmazero.core.toml import Names, Number, Table, Text
from sigmazero.models import find

ABOUT = ("title", "authors", "license", "architecture", "trained_on", "trained_against", "note")
LINKS = ("paper", "code")
MAX_BYTES = 1 << 16  # of a card
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="what `bench.identity.hash_weights` gives")]
Link = Annotated[str, Field(pattern=r"^https?://[^\s\"'<>\\]+$")]
_FILE = re.compile(r"[\w][\w.+-]*")


class ModelCard(Table):
    """One model, as its card describes it.

    sha256    of its weights, whatever file they are in; `board add` fills it in where it is missing
    boards    the boards it stands on
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
        """Return the model as stores and loaders name it."""
        return ModelSpec(self.name, self.model, self.weights, self.normalize)

    @property
    def code_file(self) -> str | None:
        """Return the file that the model is built from, if there is one: Python code, a program or an ONNX file."""
        if find(self.model) is not None:
            return None
        place = self.model.rpartition(":")[0] or self.model
        return place if Path(place).suffix in (".py", ".pt2", ".onnx") else None

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
        return {key: address for key in LINKS if (address := getattr(self, key)) is not None}


def read_card(path: Path) -> ModelCard:
    """Read a card; errors name the file, the line and the value."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; a card is a TOML file (docs/leaderboard.md)")
    if path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path}: a card has at most {MAX_BYTES // 1024} KB; name another file")
    text = toml.read(path)
    card = toml.parse(text, ModelCard, str(path))
    for file in card.files:
        if not _FILE.fullmatch(file):
            raise toml.error(text, str(path), f"{file!r} must be the name of a file beside the card, without folders")
        if (path.parent / file).is_symlink():
            raise toml.error(text, str(path), f"{file!r} is a link; put the file itself beside the card")
    return card
