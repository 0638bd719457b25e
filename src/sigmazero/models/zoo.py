"""The table of known models: facts in zoo.toml, checked when read."""

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, ClassVar

from torch import nn

from sigmazero.models.architectures import ARCHITECTURES, build
from sigmazero.models.normalize import Normalize, check_statistics


class UnknownModel(LookupError):
    """No model has that name; the message lists the nearest ones."""


CLASSES = {"mnist": 10, "cifar10": 10, "imagenet": 1000, "adult": 2}
THREAT_MODELS = ("none", "L0", "L1", "L2", "Linf", "corruptions")


@dataclass(frozen=True)
class WeightFile:
    """One file of weights: its name, where to download it, its hash, and the part of the network it fills."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    file: str
    url: str | None = None
    sha256: str | None = None
    into: str = ""

    def __post_init__(self) -> None:
        """Refuse hashes that are not hashes and paths that leave the folder."""
        if self.sha256 is not None and not re.fullmatch("[0-9a-f]{8,64}", self.sha256):
            raise ValueError(f"sha256 must be 8 to 64 lower-case hex digits, not {self.sha256!r}")
        if self.file.startswith("/") or ".." in self.file.split("/"):
            raise ValueError(f"file must be a relative path inside the models folder, not {self.file!r}")


@dataclass(frozen=True)
class ZooEntry:
    """What is known about one model; the fields are explained at the top of zoo.toml."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    code: str
    title: str
    architecture: str
    dataset: str
    threat_model: str
    input_size: tuple[int, ...]
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

    def __post_init__(self) -> None:
        """Refuse values that cannot be right."""
        _one_of("architecture", self.architecture, ARCHITECTURES)
        _one_of("dataset", self.dataset, CLASSES)
        _one_of("threat_model", self.threat_model, THREAT_MODELS)
        if len(self.input_size) not in (1, 3):
            raise ValueError(f"input_size is channels, height, width, or features, not {list(self.input_size)}")
        if (self.mean is None) != (self.std is None):
            raise ValueError("mean and std come together")
        if self.mean is not None and self.std is not None:
            check_statistics(self.mean, self.std)
        if bool(self.weights) == bool(self.bundled):
            raise ValueError("give either weights (files to look up) or bundled (a file of this package)")

    @property
    def classes(self) -> int:
        """Number of classes of the data set."""
        return CLASSES[self.dataset]

    def build(self) -> nn.Module:
        """Build the network with random weights, without its input normalisation."""
        return build(self.architecture, **self.options)

    def normalized(self, network: nn.Module) -> nn.Module:
        """Put the entry's normalisation, if it has one, in front of the network."""
        if self.mean is None or self.std is None:
            return network
        return nn.Sequential(Normalize(self.mean, self.std), network)


def _one_of(name: str, value: str, known: Any) -> None:
    if value not in known:
        raise ValueError(f"{name} is one of {', '.join(known)}, not {value!r}")


def parse(text: str) -> dict[str, ZooEntry]:
    """Read entries from TOML text; errors name the line."""
    from sigmazero.core import toml  # loads pydantic, which nothing else here needs

    tables = toml.parse(text, dict[str, dict[str, Any]], "zoo.toml")
    return {
        code: toml.check({"code": code, **table}, ZooEntry, text, "zoo.toml", code) for code, table in tables.items()
    }


@cache
def entries() -> Mapping[str, ZooEntry]:
    """All known models by code, in the order of zoo.toml."""
    return parse(resources.files("sigmazero.models").joinpath("zoo.toml").read_text("utf-8"))


def names() -> Iterator[str]:
    """Every name that `find` understands."""
    for entry in entries().values():
        yield entry.code
        if entry.robustbench:
            yield entry.robustbench
            yield f"{entry.dataset}/{entry.robustbench}"


def find(name: str) -> ZooEntry | None:
    """Look a model up by code or RobustBench name, whatever the case; None if there is no such model.

    "robustbench:" may stand before a RobustBench name.

    >>> find("c5").robustbench
    'Standard'
    >>> find("imagenet/Engstrom2019Robustness").code
    'I2'
    >>> find("robustbench:Carmon2019Unlabeled").code
    'C1'
    """
    wanted = name.strip().casefold()
    published = wanted.removeprefix("robustbench:")
    for entry in entries().values():
        if entry.code.casefold() == wanted:
            return entry
    found = [
        entry
        for entry in entries().values()
        if entry.robustbench
        and published in (entry.robustbench.casefold(), f"{entry.dataset}/{entry.robustbench}".casefold())
    ]
    if len(found) > 1:
        codes = " or ".join(f"{entry.code} ({entry.dataset})" for entry in found)
        raise ValueError(f"the model name {name!r} is ambiguous: use {codes}")
    return found[0] if found else None


def get(name: str) -> ZooEntry:
    """Look a model up by code or RobustBench name, or fail with the nearest known names."""
    entry = find(name)
    if entry is None:
        raise UnknownModel(unknown(name))
    return entry


def unknown(name: str) -> str:
    """Say that a model is not known, and which names are near."""
    lower = {known.casefold(): known for known in names()}
    near = [lower[match] for match in difflib.get_close_matches(name.casefold(), lower, 4, 0.5)]
    advice = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(entries())}"
    return f"unknown model {name!r}: {advice}"
