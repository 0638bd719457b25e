"""The table of known models: facts in zoo.toml, checked when read."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from torch import nn

from sigmazero.core import toml
from sigmazero.core.inputs import hint
from sigmazero.models.architectures import build
from sigmazero.models.normalize import Normalize

CLASSES = {"mnist": 10, "cifar10": 10, "imagenet": 1000, "adult": 2}
Digits = Annotated[str, Field(pattern="^[0-9a-f]{8,64}$")]
Relative = Annotated[str, Field(pattern=r"^(?!/)(?!.*(^|/)\.\.(/|$)).+$")]  # inside the models folder


class UnknownModel(LookupError):
    """No model has that name; the message lists the nearest ones."""


@dataclass(frozen=True)
class WeightFile:
    """One file of weights: its name, where to download it, its hash, and the part of the network it fills."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "regex_engine": "python-re"}

    file: Relative
    url: str | None = None
    sha256: Digits | None = None
    blob: Digits | None = None
    into: str = ""


@dataclass(frozen=True)
class ZooEntry:
    """Facts about one model; the top of zoo.toml explains the fields."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    code: str
    title: str
    architecture: str
    dataset: Literal["mnist", "cifar10", "imagenet", "adult"]
    threat_model: Literal["none", "L0", "L1", "L2", "Linf", "corruptions"]
    input_size: tuple[int, int, int] | tuple[int]
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    robustbench: str | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    clean_accuracy: float | None = None
    robust_accuracy: float | None = None
    implied_accuracy: float | None = None
    parameters: int | None = None
    weights: tuple[WeightFile, ...] = ()
    bundled: str | None = None
    strip_characters: int = 0
    drop: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    note: str = ""

    @property
    def classes(self) -> int:
        """Return the number of classes of the data set."""
        return CLASSES[self.dataset]

    def build(self) -> nn.Module:
        """Build the network with random weights, without its input normalisation."""
        return build(self.architecture, **self.options)

    def normalized(self, network: nn.Module) -> nn.Module:
        """Put the entry's normalisation, if it has one, in front of the network."""
        if self.mean is None or self.std is None:
            return network
        return nn.Sequential(Normalize(self.mean, self.std), network)


def parse(text: str) -> dict[str, ZooEntry]:
    """Read entries from TOML text; errors name the line."""
    tables = toml.parse(text, dict[str, dict[str, Any]], "zoo.toml")
    return {
        code: toml.check({"code": code, **table}, ZooEntry, text, "zoo.toml", code) for code, table in tables.items()
    }


@cache
def entries() -> Mapping[str, ZooEntry]:
    """Return all known models by code, in the order of zoo.toml."""
    return parse(resources.files("sigmazero.models").joinpath("zoo.toml").read_text("utf-8"))


def find(name: str) -> ZooEntry | None:
    """Look a model up by code or RobustBench name, "robustbench:" before it or not; None if there is no such model.

    >>> find("c5").robustbench, find("imagenet/Engstrom2019Robustness").code
    ('Standard', 'I2')
    """
    wanted = name.strip().casefold()
    published = wanted.removeprefix("robustbench:")
    found = []
    for entry in entries().values():
        known = (entry.robustbench or "").casefold()
        if entry.code.casefold() == wanted:
            return entry
        if known and published in (known, f"{entry.dataset}/{known}"):
            found.append(entry)
    if len(found) > 1:
        codes = " or ".join(f"{entry.code} ({entry.dataset})" for entry in found)
        raise ValueError(f"the model name {name!r} is ambiguous: use {codes}")
    return found[0] if found else None


def known_accuracy(name: str) -> float | None:
    """Return the clean accuracy, in percent, of a known model; None for any other."""
    entry = find(name)
    return None if entry is None else entry.clean_accuracy or entry.implied_accuracy


def get(name: str) -> ZooEntry:
    """Look a model up by code or RobustBench name, or fail with the nearest known names."""
    entry = find(name)
    if entry is None:
        raise UnknownModel(unknown(name))
    return entry


def unknown(name: str) -> str:
    """Say that a model is not known, and which names are near."""
    published = [entry.robustbench for entry in entries().values() if entry.robustbench]
    return f"unknown model {name!r}: {hint(name, [*entries(), *published])}"
