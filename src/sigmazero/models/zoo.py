"""The table of known models: facts in zoo.toml, checked when read."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib import resources
from typing import Any, get_type_hints

from torch import nn

from sigmazero.core.inputs import hint
from sigmazero.models.architectures import ARCHITECTURES, build
from sigmazero.models.normalize import Normalize, check_statistics


class UnknownModel(LookupError):
    """No model has that name; the message lists the nearest ones."""


CLASSES = {"mnist": 10, "cifar10": 10, "imagenet": 1000, "adult": 2}
THREAT_MODELS = ("none", "L0", "L1", "L2", "Linf", "corruptions")


@dataclass(frozen=True)
class WeightFile:
    """One file of weights: its name, where to download it, its hash, and the part of the network it fills."""

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


def _read(kind: type[Any], table: Mapping[str, Any]) -> Any:
    """Make a dataclass of a TOML table: every key known, every value of the declared type."""
    declared = get_type_hints(kind)
    unknown = sorted(set(table) - set(declared))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; {hint(unknown[0], declared)}")
    required = [f.name for f in fields(kind) if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in required if name not in table]
    if missing:
        raise ValueError(f"missing key {missing[0]!r}")
    return kind(**{name: _value(name, declared[name], value) for name, value in table.items()})


def _value(name: str, declared: Any, value: Any) -> Any:
    """Check one value against its declared type; TOML arrays become tuples."""
    if declared == tuple[WeightFile, ...] and isinstance(value, list):
        return tuple(_read(WeightFile, table) for table in value)
    text = str(declared)
    if isinstance(value, list) and "tuple" in text:
        kinds: tuple[type, ...] = (str,) if "str" in text else (int,) if "int" in text else (int, float)
        if all(isinstance(item, kinds) and not isinstance(item, bool) for item in value):
            return tuple(value)
    simple: dict[Any, Any] = {str: str, int: int, float: (int, float), Mapping[str, Any]: Mapping}
    for kind, accepted in simple.items():
        if declared in (kind, kind | None) and isinstance(value, accepted) and not isinstance(value, bool):
            return value
    raise ValueError(f"{name} must be {getattr(declared, '__name__', text)}, not {value!r}")


def parse(text: str) -> dict[str, ZooEntry]:
    """Read entries from TOML text; an error names the entry and the key."""
    entries = {}
    for code, table in tomllib.loads(text).items():
        if not isinstance(table, dict):
            raise ValueError(f"zoo: {code!r} must be a table")
        try:
            entries[code] = _read(ZooEntry, {"code": code, **table})
        except ValueError as error:
            raise ValueError(f"zoo entry {code}: {error}") from None
    return entries


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

    >>> find("c5").robustbench
    'Standard'
    >>> find("imagenet/Engstrom2019Robustness").code
    'I2'
    """
    wanted = name.strip().casefold()
    for entry in entries().values():
        if entry.code.casefold() == wanted:
            return entry
    found = [
        entry
        for entry in entries().values()
        if entry.robustbench
        and wanted in (entry.robustbench.casefold(), f"{entry.dataset}/{entry.robustbench}".casefold())
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
