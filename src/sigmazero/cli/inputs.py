"""Make Python objects of what the command line says: devices, models, rows, attacks, constraints, targets."""

from __future__ import annotations

import ast
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sigmazero.cli.console import warn

if TYPE_CHECKING:
    from torch import nn

    import sigmazero as sz
    from sigmazero.bench.plan import DataSpec, ModelSpec
    from sigmazero.data import Rows
    from sigmazero.report.runs import Run

TRUTH = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def device(name: str) -> str:
    """Return a device that exists here.

    >>> device("cpu")
    'cpu'
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(name).type
    except RuntimeError:
        raise ValueError(f"there is no device called {name!r}; use cpu, cuda or auto") from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("torch sees no CUDA device here; use --device cpu")
    return name


def trust(everything: bool) -> Container[str]:
    """Return which code of plans and stores may run: all or none."""
    from sigmazero.bench.loader import EVERYTHING

    return EVERYTHING if everything else ()


def model_spec(
    name: str, weights: Path | None, normalize: str | None, data: str, trust_code: bool = False
) -> ModelSpec:
    """Return a model as a store remembers it; a pickle runs code that nobody named, so it needs trust."""
    from sigmazero.bench.plan import DataSpec, ModelSpec
    from sigmazero.models.load import is_pickle

    if is_pickle(name) and not trust_code:
        raise ValueError(f"{name} may run code of the person who made it when it is loaded; to trust it: --trust-code")
    spec = ModelSpec(name, name, weights=None if weights is None else str(weights), normalize=normalize)
    return spec.on(DataSpec(data, data))


def load_rows(
    name: str,
    rows: str | None,
    limit: int | None,
    shuffle: int | None,
    bounds: tuple[float, float] | None = None,
) -> Rows:
    """Load the chosen rows, in the units of the bounds; say so if 8-bit values of a user's own file were scaled."""
    from sigmazero import data

    chosen = data.load(name, rows=rows, limit=limit, seed=shuffle, bounds=bounds)
    if chosen.scaled and name not in data.DATASETS:
        warn(f"{chosen.name} holds 8-bit values: they were divided by 255")
    return chosen


def data_spec(name: str, rows: str | None, limit: int | None, shuffle: int | None) -> DataSpec:
    """Return rows as a store remembers them."""
    from sigmazero.bench.plan import DataSpec

    return DataSpec(Path(name).name or name, name, rows, limit, shuffle)


def load_model(spec: ModelSpec, where: str) -> nn.Module:
    """Load a model that the command line names."""
    from sigmazero.bench.loader import Loader

    return Loader(where, trust=[spec.spec]).model(spec)


def attack(name: str, steps: int | None, pairs: list[str]) -> sz.Attack:
    """Return an attack by name, ours or another library's, with the parameters that --steps and --set change.

    >>> attack("sigma-zero", 100, ["threshold=0.2"]).parameters()["threshold"]
    0.2
    """
    import sigmazero as sz
    from sigmazero.adapters.foreign import is_foreign

    if is_foreign(name):
        made = sz.foreign(name, **_pairs(pairs, lambda key, text: value(key, text, None)))
        return made if steps is None else replace(made, steps=steps)
    return sz.get(name, **settings(name, steps, pairs))


def settings(name: str, steps: int | None, pairs: list[str]) -> dict[str, Any]:
    """Return the parameters of an attack that --steps and --set change.

    >>> settings("sigma-zero", 100, ["threshold=0.2", "projection=off"])
    {'steps': 100, 'threshold': 0.2, 'projection': False}
    """
    import sigmazero as sz
    from sigmazero.core.parameters import NamedModel, takes_model

    known = sz.get(name).parameters()

    def read(key: str, text: str) -> Any:
        if key in known and takes_model(type(sz.get(name)), key):
            return NamedModel(text)
        return value(key, text, known.get(key))

    chosen = _pairs(pairs, read)
    if steps is not None and "steps" in chosen:
        raise ValueError("steps is given twice")
    return chosen if steps is None else {"steps": steps, **chosen}


def _pairs(pairs: list[str], read: Callable[[str, str], Any]) -> dict[str, Any]:
    """Read each --set KEY=VALUE."""
    chosen: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip().replace("-", "_")
        if not equals:
            raise ValueError(f"--set {pair} has no value; write --set {key}=VALUE")
        if key == "name":
            raise ValueError(f"--set {pair}: the name of an attack is not a parameter")
        if key in chosen:
            raise ValueError(f"{key} is given twice")
        chosen[key] = read(key, text.strip())
    return chosen


def value(key: str, text: str, like: object) -> Any:
    """Read a text as the kind of value that a parameter has by default; an attack inside another goes by its name."""
    import sigmazero as sz

    if isinstance(like, bool):
        if text.lower() not in TRUTH:
            raise ValueError(f"{key}={text} must be true or false")
        return TRUTH[text.lower()]
    if isinstance(like, int | float):
        try:
            return type(like)(text)
        except ValueError:
            kind = "a whole number" if isinstance(like, int) else "a number"
            raise ValueError(f"{key}={text} must be {kind}") from None
    if isinstance(like, str):
        return text
    if isinstance(like, sz.Attack):
        return sz.get(text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # the attack says what it needs


def constraints(space: Path | None, bounds: tuple[float, float] | None, mask: Path | None = None) -> dict[str, Any]:
    """Return what may change, as keyword arguments of `sz.evaluate` and `sz.gate`."""
    for name, given in (("--bounds", bounds), ("--mask", mask)):
        if space is not None and given is not None:
            raise ValueError(f"{name} and --space are both given; say in {space} what may change, and leave {name} out")
    found: dict[str, Any] = {} if bounds is None else {"bounds": bounds}
    if mask is not None:
        found["mask"] = _mask(mask)
    if space is not None:
        found["space"] = read_space(space)
    return found


def read_space(path: Path) -> sz.Space:
    """Read a constraint file."""
    from sigmazero.spaces.space import Space

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; sigmazero space draft DATA prints one to begin with")
    return Space.from_toml(path)


def _mask(path: Path) -> Any:
    import numpy as np
    import torch

    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; it should hold one boolean per input value")
    try:
        read = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not an array of booleans ({error}); write it with numpy.save") from None
    if not isinstance(read, np.ndarray) or read.dtype != np.bool_:
        kind = read.dtype if isinstance(read, np.ndarray) else "several arrays"
        raise ValueError(f"{path}: holds {kind}; give booleans, true where a value may change")
    return torch.from_numpy(read)


def target(text: str | None, rows: Rows) -> str | int | None:
    """Return the class to reach: a number, a name of the data, or "next" or "random"."""
    if text is None or text in ("next", "random"):
        return text
    if text in (rows.classes or ()):
        return (rows.classes or ()).index(text)
    if text.isdecimal():
        return int(text)
    known = f"its names are {', '.join(rows.classes)}" if rows.classes else f"{rows.name} does not name its classes"
    raise ValueError(f"--target {text} is not a class; {known}, and numbers count from 0")


def accuracy(model: str, claimed: float | None = None) -> float | None:
    """Return the accuracy that a model should have, in percent: as claimed, else as the zoo knows it."""
    from sigmazero import models

    if claimed is not None and not 0 <= claimed <= 100:
        raise ValueError(f"--claimed {claimed:g} must be a percentage, 0 to 100")
    entry = models.find(model)
    known = None if entry is None else entry.clean_accuracy or entry.implied_accuracy
    return known if claimed is None else claimed


def allowed_codes(codes: list[str] | None) -> list[str]:
    """Return the codes that --allow names; refuse an unknown one.

    >>> allowed_codes(["sz003,SZ004"]), allowed_codes(None)
    (['SZ003', 'SZ004'], [])
    """
    from sigmazero.core.findings import gating

    found = [code.strip().upper() for text in codes or () for code in text.split(",") if code.strip()]
    gating([], found)
    return found


def numbers(texts: list[str] | None, cost: bool = False) -> list[float] | None:
    """Return the numbers of changes, or the costs, that --k gives.

    >>> numbers(["24,50", "100"]), numbers(None), numbers(["0.5,2"], cost=True)
    ([24.0, 50.0, 100.0], None, [0.5, 2.0])
    """
    found = []
    for text in (part.strip() for given in texts or () for part in given.split(",")):
        if not (text.replace(".", "", 1) if cost else text).isdecimal():
            kind = "costs such as --k 0.5,2" if cost else "whole numbers of changes, such as --k 24,50"
            raise ValueError(f"--k {text}: give {kind}")
        found.append(float(text))
    return found or None


def priced(runs: Sequence[Run]) -> list[Run]:
    """Return runs with changes counted by what they cost; refuse a store where nothing has a cost."""
    from sigmazero.report.runs import by_cost

    found = by_cost(runs)
    if runs and not found:
        raise ValueError("--cost: no run in the store has a space with costs and no budget; leave it out")
    return found
