"""Spaces as TOML files, and first drafts of them from data.

    [feature.age]                     a table per feature, in their order; what is not said is the usual
    kind = "integer"
    lower = 17
    upper = 90
    direction = "up"

    [group.job]                       one-hot or tied features, by name
    one_hot = ["job=clerk", "job=nurse"]

A space without names has `kind`, `lower`, `grid` and so on at the top, one value for all features or a list.
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from sigmazero.core.space import Space

OPTIONS = ("kind", "values", "lower", "upper", "around", "grid", "direction", "cost")
_USUAL = {"kind": "real", "lower": 0.0, "upper": 1.0, "around": math.inf, "grid": 0.0, "direction": "both", "cost": 1.0}


def read(path: str | Path) -> Space:
    """A space from a TOML file; every unknown word is named."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: no space can be read from it ({error})") from None
    return parse(text, path)


def parse(text: str, path: str | Path = "space") -> Space:
    """A space from the text of such a file; `path` is what errors call it."""
    try:
        held = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: no space can be read from it ({error})") from None
    return build(held, path)


def build(values: Mapping[str, Any], path: str | Path = "space") -> Space:
    """A space from the tables of such a file."""
    held = dict(values)
    features, groups = held.pop("feature", {}), held.pop("group", {})
    given: dict[str, Any] = {name: _plain(value) for name, value in held.items()}
    _known(given, OPTIONS, f"{path}")
    if features:
        given["names"] = list(features)
    for name, options in features.items():
        _known(options, OPTIONS, f"{path}: feature {name!r}")
        for option, value in options.items():
            if not isinstance(given.setdefault(option, {}), dict):
                raise ValueError(f"{path}: {option} is given for all features and for {name!r}; say it in one place")
            given[option][name] = _plain(value)
    for name, members in groups.items():
        _known(members, ("one_hot", "tied"), f"{path}: group {name!r}")
        for kind, some in members.items():
            given.setdefault(kind, {})[name] = some
    try:
        return Space(**given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def written(space: Space) -> str:
    """A space as TOML; what a file cannot hold is refused."""
    if space.accept is not None:
        raise ValueError("space: a file cannot hold accept; leave it out here and pass it again in Python")
    columns = space.columns((len(space.names),)) if space.names is not None else None
    if columns is not None and len(columns.rise) > 1:
        raise ValueError("space: a file cannot hold directions per sample; give one per feature")
    lines: list[str] = []
    if space.names is None:
        if space.values:
            raise ValueError("space: a file needs names for features with values; pass names=")
        held = {name: getattr(space, name) for name in OPTIONS if name != "values"}
        lines += [f"{name} = {_text(value)}" for name, value in held.items() if _said(name, value)]
    else:
        for place, name in enumerate(space.names):
            lines += [f"[feature.{json.dumps(name)}]", *_feature(space, place, len(space.names)), ""]
    tied = space.tied if isinstance(space.tied, Mapping) else {f"tied {k}": g for k, g in enumerate(space.tied)}
    for kind, named in (("one_hot", space.one_hot), ("tied", tied)):
        for name, members in named.items():
            lines += [f"[group.{json.dumps(str(name))}]", f"{kind} = {_text(list(members))}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def draft(x: Any, names: Sequence[str] | None) -> Space:
    """A first draft: kinds and ends as the rows show them; neighbours that always sum to 1 are a one-hot group."""
    rows = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=np.float64)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"space: data of shape {rows.shape}; a draft needs rows of flat features, (N, features)")
    if not np.isfinite(rows).all():
        row, k = (int(v) for v in np.argwhere(~np.isfinite(rows))[0])
        raise ValueError(f"space: feature {names[k] if names else k} of row {row} is NaN or Inf; clean the data first")
    labels = [f"x{k}" for k in range(rows.shape[1])] if names is None else list(names)
    binary = ((rows == 0) | (rows == 1)).all(0)
    whole = (rows == np.round(rows)).all(0)
    kind = np.where(binary, "binary", np.where(whole, "integer", "real")).tolist()
    groups: dict[str, list[str]] = {}
    k = 0
    while k < len(labels):
        size = _one_hot_from(rows, binary, k)
        if size:
            groups[f"group {len(groups)}"] = labels[k : k + size]
        k += max(size, 1)
    return Space(kind=kind, lower=rows.min(0).tolist(), upper=rows.max(0).tolist(), one_hot=groups, names=labels)


def _one_hot_from(rows: Any, binary: Any, first: int) -> int:
    """How many binary features from this one on sum to 1 in every row; 0 if none do, or one alone."""
    total = np.zeros(len(rows))
    for k in range(first, rows.shape[1]):
        total += rows[:, k]
        if not binary[k] or (total > 1).any():
            return 0
        if (total == 1).all():
            return k + 1 - first if k > first else 0
    return 0


def _feature(space: Space, place: int, n: int) -> list[str]:
    """What is said of one feature."""
    lines = []
    for option in OPTIONS[:1] + OPTIONS[2:]:
        value = space._each(option, getattr(space, option), _USUAL[option], (n,))[place]
        if _said(option, value):
            lines.append(f"{option} = {_text(value)}")
    sets = {space.place(feature, n): values for feature, values in space.values.items()}
    return lines + ([f"values = {_text(list(sets[place]))}"] if place in sets else [])


def _said(option: str, value: Any) -> bool:
    return isinstance(value, np.ndarray | Tensor | list | tuple) or bool(value != _USUAL[option])


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray | Tensor):
        value = value.flatten().tolist()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(one) for one in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return repr(float(value)) if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """A number may be written as a fraction, "1/255"."""
    if isinstance(value, str) and "/" in value:
        try:
            return float(Fraction(value))
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"space: {value!r} is no fraction such as 1/255") from None
    return value


def _known(given: Mapping[str, Any], words: Sequence[str], where: str) -> None:
    for word in given:
        if word not in words:
            raise ValueError(f"{where}: there is no {word!r}; allowed: {', '.join(words)}")
