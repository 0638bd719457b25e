"""The card of a model: what it is, how to build it, and the hash of its weights."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sigmazero.bench.plan import ModelSpec
from sigmazero.bench.toml import Lines, TomlTable, read_toml
from sigmazero.models import find

TOLD = ("title", "authors", "license", "architecture", "trained_on", "trained_against", "note")
LINKS = ("paper", "code")
KEYS = ("name", "model", "weights", "normalize", "sha256", "boards", "accuracy", "random", "lower", *TOLD, *LINKS)
LONGEST = 1 << 16  # bytes of a card
_HASH, _FILE = re.compile(r"[0-9a-f]{64}"), re.compile(r"[\w][\w.+-]*")


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
    random      whether it answers differently when asked twice: what counts is then the vote of some draws
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
    random: bool = False

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


def read_card(path: Path) -> ModelCard:
    """The card in a file; an error names the file, the line and what is wrong."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; a card is a TOML file (docs/leaderboard.md)")
    if path.stat().st_size > LONGEST:
        raise ValueError(f"{path}: a card of more than {LONGEST // 1024} KB is none; name another file")
    text = path.read_bytes().decode("utf-8", errors="replace")
    table = TomlTable(read_toml(text, str(path)), str(path), Lines(text))
    table.only(KEYS)
    name, model, sha256 = (_needed(table, key) for key in ("name", "model", "sha256"))
    if not _HASH.fullmatch(sha256):
        raise table.error(
            "sha256 must be the 64 digits that bench.identity.hash_weights gives of the loaded model", "sha256"
        )
    boards = table.texts("boards")
    if boards is None:
        raise table.error('boards is missing; name those that the model stands on: boards = ["mnist"]')
    links = {key: _link(table, key) for key in LINKS if key in table}
    told = {key.replace("_", " "): said for key in TOLD if (said := table.text(key)) is not None}
    weights, accuracy = table.text("weights"), table.number("accuracy", 0.0)
    card = ModelCard(
        name,
        model,
        sha256,
        tuple(boards),
        weights,
        table.text("normalize"),
        accuracy,
        _lower(table),
        told,
        links,
        table.flag("random"),
    )
    for file in card.files:
        if not _FILE.fullmatch(file):
            raise table.error(f"{file!r} must be the name of a file beside the card, without folders")
    return card


def _needed(table: TomlTable, key: str) -> str:
    found = table.text(key)
    if found is None:
        raise table.error(f"{key} is missing; a card needs name, model, sha256 and boards")
    return found


def _link(table: TomlTable, key: str) -> str:
    found = _needed(table, key)
    if not re.fullmatch(r"https?://[^\s\"'<>\\]+", found):
        raise table.error(f"{key} = {found!r} must be an address that begins with https://", key)
    return found


def _lower(table: TomlTable) -> Lower | None:
    if "lower" not in table:
        return None
    inside = table.below("lower")
    inside.only(("file", "method", "url"))
    file, method = (_needed(inside, key) for key in ("file", "method"))
    return Lower(file, method, _link(inside, "url") if "url" in inside else None)
