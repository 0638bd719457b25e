"""Turn command-line arguments into Python objects: models, rows, attacks, constraints, targets."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sigmazero.cli.console import warn

if TYPE_CHECKING:
    from torch import nn

    import sigmazero as sz
    from sigmazero.bench.loader import Loader
    from sigmazero.bench.plan import ModelSpec
    from sigmazero.data import Rows
    from sigmazero.report.runs import Run


def loader(trust_code: bool, device: str = "auto") -> Loader:
    """Return a loader for the models and rows of plans and stores; it runs their code only if that is trusted."""
    from sigmazero.bench.loader import EVERYTHING, Loader

    return Loader(device, trust=EVERYTHING if trust_code else ())


def model_spec(
    name: str, weights: Path | None, normalize: str | None, data: str, trust_code: bool = False
) -> ModelSpec:
    """Return the model spec that a store keeps; refuse a pickle without --trust-code, because loading it runs code."""
    from sigmazero.bench.plan import DataSpec, ModelSpec
    from sigmazero.models.load import is_pickle

    if is_pickle(name) and not trust_code:
        raise ValueError(f"loading {name} may run code of the person who made it; if you trust it, add --trust-code")
    spec = ModelSpec(name, name, weights=None if weights is None else str(weights), normalize=normalize)
    return spec.on(DataSpec(data, data))


def load_rows(name: str, rows: str | None, limit: int | None, bounds: tuple[float, float] | None = None) -> Rows:
    """Load the chosen rows; say so if 8-bit values of a user's own file were scaled."""
    from sigmazero import data

    chosen = data.load(name, rows=rows, limit=limit, bounds=bounds)
    if chosen.scaled and name not in data.DATASETS:
        warn(f"{chosen.name} holds 8-bit values; they were divided by 255")
    return chosen


def load_model(spec: ModelSpec, device: str) -> nn.Module:
    """Load a model that the command line names, which is consent to run its code."""
    from sigmazero.bench.loader import Loader

    return Loader(device, trust=[spec.spec]).model(spec)


def attack(name: str, steps: int | None, pairs: list[str] | None) -> sz.Attack:
    """Return an attack by name, ours or another library's, with the parameters of --steps and --set.

    >>> attack("sigma-zero", 100, ["threshold=0.2"]).parameters()["threshold"]
    0.2
    """
    import sigmazero as sz
    from sigmazero.adapters.foreign import is_foreign
    from sigmazero.bench.plan_file import parameter

    given = assignments(pairs)
    if is_foreign(name):
        made = sz.foreign(name, **given)
        return made if steps is None else replace(made, steps=steps)
    if steps is not None:
        given["steps"] = steps
    usual = sz.get(name)
    return sz.get(name, **{key: parameter(usual, key, value) for key, value in given.items()})


def assignments(pairs: list[str] | None) -> dict[str, Any]:
    """Read each --set KEY=VALUE. A value is written as in a plan; a text needs no quotes.

    >>> assignments(["threshold=0.2", "projection=false", "start=pool"])
    {'threshold': 0.2, 'projection': False, 'start': 'pool'}
    """
    found: dict[str, Any] = {}
    for pair in pairs or ():
        key, equals, text = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair} has no value; write --set {key}=VALUE")
        try:
            found[key] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            found[key] = text
    return found


def constraints(space: Path | None, bounds: tuple[float, float] | None) -> dict[str, Any]:
    """Return what may change, as keyword arguments of `sz.evaluate` and `sz.gate`."""
    from sigmazero.spaces.space import Space

    if space is not None and bounds is not None:
        raise ValueError(f"--bounds and --space are both given; leave --bounds out and say in {space} what may change")
    if space is not None:
        return {"space": Space.from_toml(space)}
    return {} if bounds is None else {"bounds": bounds}


def target(text: str | None, rows: Rows) -> str | int | None:
    """Return the class to reach: a number, the name of a class, "next" or "random"."""
    if text is None or text in ("next", "random"):
        return text
    if text in (rows.classes or ()):
        return (rows.classes or ()).index(text)
    if text.isdecimal():
        return int(text)
    known = f"its names are {', '.join(rows.classes)}" if rows.classes else f"{rows.name} does not name its classes"
    raise ValueError(f"--target {text} is not a class; {known}; numbers start at 0")


def allowed_codes(codes: list[str] | None) -> list[str]:
    """Return the codes that --allow names; refuse an unknown one.

    >>> allowed_codes(["sz003", "SZ004"]), allowed_codes(None)
    (['SZ003', 'SZ004'], [])
    """
    from sigmazero.core.findings import gating

    found = [code.upper() for code in codes or ()]
    gating([], found)
    return found


def numbers(texts: list[str] | None) -> list[float] | None:
    """Return the values of --k: numbers of changes, or costs.

    >>> numbers(["24,50", "100"]), numbers(None)
    ([24.0, 50.0, 100.0], None)
    """
    parts = [part for text in texts or () for part in text.split(",")]
    try:
        return [float(part) for part in parts] or None
    except ValueError:
        raise ValueError(f"--k {','.join(parts)}: give numbers, such as --k 24,50") from None


def priced(runs: Sequence[Run]) -> list[Run]:
    """Return the runs that count cost instead of changes; refuse a store without costs."""
    from sigmazero.report.runs import by_cost

    found = by_cost(runs)
    if runs and not found:
        raise ValueError("--cost: no run in the store has a space with costs and no budget; leave it out")
    return found
