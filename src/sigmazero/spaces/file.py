"""Spaces as TOML files, and first drafts of them from data.

    [feature.age]                     a table per feature, in their order; what is not said is the usual
    kind = "integer"
    lower = 17
    upper = 90
    direction = "up"

    [group.job]                       one-hot or tied features, by name
    one_hot = ["job=clerk", "job=nurse"]

    [[rule]]                          a sum of features, and at_most, at_least or equals
    terms = {length = 1, host = -1}
    at_least = 0

    [derived.total]                   follows from others: a sum, and a constant
    terms = {host = 1, path = 1}
    constant = 3

A space without names has `kind`, `lower`, `grid` and so on at the top, one value for all features or a list.
"""

import json
import math
import tomllib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import Tensor

from sigmazero.core.source import code_hash
from sigmazero.spaces.rules import Formula, Rule
from sigmazero.spaces.space import Columns, FeatureGroup, Space

OPTIONS = ("kind", "values", "lower", "upper", "around", "grid", "direction", "cost")
_USUAL: dict[str, Any] = {
    "kind": "real",
    "lower": 0.0,
    "upper": 1.0,
    "around": math.inf,
    "grid": 0.0,
    "direction": "both",
    "cost": 1.0,
}
LARGE = 1e15  # whole numbers up to here are written without a dot
EIGHT_BITS = 1e-4  # how far 255 times a value may be from a whole number: float32 rounds
_SENSES = {"at_most": "<=", "at_least": ">=", "equals": "="}


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
    _check_tables(held, path)
    features, groups = held.pop("feature", {}), held.pop("group", {})
    tied = {"rules": held.pop("rule", []), "derived": held.pop("derived", {})}
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
    given["rules"] = [_rule(rule, bool(features), f"{path}: rule {k}") for k, rule in enumerate(tied["rules"])]
    for name, formula in tied["derived"].items():
        _known(formula, ("terms", "constant"), f"{path}: derived {name!r}")
        terms = _terms(formula.get("terms", {}), bool(features))
        place = next(iter(_terms({name: 1}, bool(features))))
        given.setdefault("derived", {})[place] = Formula(terms, _plain(formula.get("constant", 0.0)))
    try:
        return Space(**given)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _check_tables(held: Mapping[str, Any], path: str | Path) -> None:
    """Refuse what is no table where one is wanted."""
    for word, kind in (("feature", "feature"), ("group", "group"), ("derived", "derived feature")):
        tables = held.get(word, {})
        if not isinstance(tables, Mapping):
            raise ValueError(f"{path}: {word} = {tables!r} is no table; write [{word}.NAME]")
        for name, one in tables.items():
            if not isinstance(one, Mapping):
                raise ValueError(f"{path}: {kind} {name!r} is {one!r}, which is no table; write [{word}.{name}]")
    rules = held.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(rule, Mapping) for rule in rules):
        raise ValueError(f"{path}: rule = {rules!r} is no list of tables; write [[rule]]")


def identity(space: Space, shape: Sequence[int]) -> str:
    """All that a space allows inputs of a shape, as text: however it was said, and functions by their code."""
    columns = space.columns(shape)
    found = {name: _plainest(value) for name, value in vars(columns).items() if name not in ("labels", "laws")}
    found |= {f"laws {name}": _plainest(value) for name, value in vars(columns.laws).items() if name != "labels"}
    functions: dict[str, Any] = {} if space.accept is None else {"accept": space.accept}
    for k, function in zip(columns.laws.at, columns.laws.functions, strict=True):
        functions |= {} if function is None else {f"derived feature {columns.labels[k]}": function}
    for name, function in functions.items():
        if (code := code_hash(function)) is None:
            raise ValueError(f"space: the code of {name} cannot be read; write it as a function in a file")
        found[name] = code
    return json.dumps(found, sort_keys=True)


def _plainest(value: Any) -> Any:
    """Arrays and groups as JSON has them; functions say no more than that they are there."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): _plainest(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plainest(one) for one in value]
    if isinstance(value, FeatureGroup):
        return [value.one_hot, list(value.members)]
    return "function" if callable(value) else value


def written(space: Space) -> str:
    """A space as TOML; what a file cannot hold is refused."""
    _refuse_functions(space)
    columns = space.columns((len(space.names),)) if space.names is not None else None
    if columns is not None and len(columns.rise) > 1:
        raise ValueError("space: a file cannot hold directions per sample; give one per feature")
    lines: list[str] = []
    if space.names is None:
        if space.values:
            raise ValueError("space: a file needs names for features with values; pass names=")
        held = {name: _collapsed(getattr(space, name)) for name in OPTIONS if name != "values"}
        lines += [f"{name} = {_text(value)}" for name, value in held.items() if _said(name, value)]
    else:
        for place, name in enumerate(space.names):
            assert columns is not None
            lines += [f"[feature.{_quoted(name)}]", *_feature(space, columns, place), ""]
    tied = space.tied if isinstance(space.tied, Mapping) else {f"tied {k}": g for k, g in enumerate(space.tied)}
    for kind, named in (("one_hot", space.one_hot), ("tied", tied)):
        for name, members in named.items():
            lines += [f"[group.{_quoted(str(name))}]", f"{kind} = {_text(list(members))}", ""]
    lines += _laws(space)
    return "\n".join(lines).rstrip("\n") + "\n"


def draft(x: Any, names: Sequence[str] | None) -> Space:
    """A first draft: kinds and ends as the rows show them; neighbours that always sum to 1 are a one-hot group.

    Images get one line for all pixels.
    """
    rows = np.asarray(x.detach().cpu() if isinstance(x, Tensor) else x, dtype=np.float64)
    if rows.ndim < 2 or not rows.size:
        raise ValueError(f"space: data of shape {rows.shape}; a draft needs rows of features, (N, features)")
    shape, rows = rows.shape, rows.reshape(len(rows), -1)
    if not np.isfinite(rows).all():
        row, k = (int(v) for v in np.argwhere(~np.isfinite(rows))[0])
        raise ValueError(f"space: feature {names[k] if names else k} of row {row} is NaN or Inf; clean the data first")
    if len(shape) > 2 and names is None:
        return _draft_of_images(rows)
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
    lower, upper = np.where(binary, 0.0, rows.min(0)).tolist(), np.where(binary, 1.0, rows.max(0)).tolist()
    return Space(kind=kind, lower=lower, upper=upper, one_hot=groups, names=labels)


def _draft_of_images(rows: Any) -> Space:
    """One line for all pixels: they have one unit. Values of 8 bits have a grid."""
    low, high = float(rows.min()), float(rows.max())
    if low < 0 or high > 1:
        return Space(lower=low, upper=high)
    bits = np.abs(rows * 255 - np.round(rows * 255)).max() < EIGHT_BITS
    return Space.image8() if bits else Space()


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


def _feature(space: Space, columns: Columns, place: int) -> list[str]:
    """What is said of one feature."""
    lines, n = [], len(columns.kind)
    own = place in columns.tables or place in columns.laws.at  # whose ends are others where none are said
    for option in OPTIONS[:1] + OPTIONS[2:]:
        value = space._each(option, getattr(space, option), _USUAL[option], (n,))[place]
        ends = option in ("lower", "upper")
        if ends and columns.kind[place] == "binary":
            value = float(getattr(columns, option)[place])
        said = space._given(getattr(space, option), _USUAL[option], place, n) if ends and own else _said(option, value)
        if said:
            lines.append(f"{option} = {_text(value)}")
    sets = {space.place(feature, n): values for feature, values in space.values.items()}
    return lines + ([f"values = {_text(list(sets[place]))}"] if place in sets else [])


def _refuse_functions(space: Space) -> None:
    if space.accept is not None:
        raise ValueError("space: a file cannot hold accept; leave it out here and pass it again in Python")
    for name, how in space.derived.items():
        if callable(how):
            words = "a file cannot hold the function of derived feature"
            raise ValueError(f"space: {words} {name!r}; write it as a Formula, or pass it again in Python")


def _laws(space: Space) -> list[str]:
    """Rules and derived features."""
    lines: list[str] = []
    said = {sense: word for word, sense in _SENSES.items()}
    for rule in space.rules:
        lines += ["[[rule]]", f"terms = {_table(space, rule.terms)}", f"{said[rule.sense]} = {_text(rule.bound)}", ""]
    for name, how in space.derived.items():
        formula = how if isinstance(how, Formula) else Formula(cast(Mapping[Any, float], how))
        lines += [f"[derived.{_quoted(_key(space, name))}]", f"terms = {_table(space, formula.terms)}"]
        lines += [*([f"constant = {_text(formula.constant)}"] if formula.constant else []), ""]
    return lines


def _rule(held: Any, named: bool, where: str) -> Rule:
    """A rule as a file has it."""
    _known(held, ("terms", *_SENSES), where)
    said = [word for word in _SENSES if word in held]
    if len(said) != 1:
        raise ValueError(f"{where}: give one of {', '.join(_SENSES)}")
    return Rule(_terms(held.get("terms", {}), named), _SENSES[said[0]], _plain(held[said[0]]))


def _terms(held: Any, named: bool) -> Any:
    """Terms by name, or by index where features have no names."""
    if not isinstance(held, Mapping):
        return held
    return {name if named or not name.isdigit() else int(name): _plain(factor) for name, factor in held.items()}


def _key(space: Space, feature: Any) -> str:
    """What a file calls a feature in a rule: its name, or its index where there are no names."""
    return str(feature) if space.names is None else space.names[space.place(feature, len(space.names))]


def _table(space: Space, terms: Mapping[Any, float]) -> str:
    return f"{{{', '.join(f'{_quoted(_key(space, name))} = {_text(factor)}' for name, factor in terms.items())}}}"


def _collapsed(value: Any) -> Any:
    """One value for a list of equal ones: two spellings of a space have one text."""
    flat = value.flatten().tolist() if isinstance(value, np.ndarray | Tensor) else value
    alike = isinstance(flat, list | tuple) and len(flat) > 0 and all(one == flat[0] for one in flat)
    return flat[0] if alike and not isinstance(flat[0], list | tuple) else value


def _said(option: str, value: Any) -> bool:
    return isinstance(value, np.ndarray | Tensor | list | tuple) or bool(value != _USUAL[option])


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray | Tensor):
        value = value.flatten().tolist()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(one) for one in value)}]"
    if isinstance(value, str):
        return _quoted(value)
    number = float(value)  # one spelling of 90 and 90.0, so that a space has one text
    return str(int(number)) if number.is_integer() and abs(number) < LARGE else repr(number)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


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
