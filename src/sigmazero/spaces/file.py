"""Spaces as TOML files, and first drafts of them from data.

    [feature.age]                     a table per feature, in their order; options left out have defaults
    kind = "integer"
    lower = 17
    upper = 90
    direction = "up"

    [group.job]                       one-hot or tied features, by name
    one_hot = ["job=clerk", "job=nurse"]

    [[rule]]                          a sum of features, and at_most, at_least or equals
    terms = {length = 1, host = -1}
    at_least = 0
    when = {terms = {path = 1}, at_least = 1}   where this holds; always, where it is left out

    [derived.total]                   follows from others: a sum, and a constant
    terms = {host = 1, path = 1}
    constant = 3

A space without names has `kind`, `lower`, `grid` and so on at the top, one value for all features or a list.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
from pydantic import Field, model_validator
from torch import Tensor

from sigmazero.core import toml
from sigmazero.core.toml import Table
from sigmazero.spaces.rules import Formula, Rule
from sigmazero.spaces.space import Space

SETS = ("values", "likely")
OPTIONS = ("kind", *SETS, "lower", "upper", "around", "grid", "direction", "cost")
DEFAULTS: dict[str, Any] = {
    each.name: each.default for each in fields(Space) if each.name in OPTIONS and each.name not in SETS
}
LARGE = 1e15  # whole numbers up to here are written without a dot
EIGHT_BITS = 1e-4  # how far 255 times a value may be from a whole number: float32 rounds
_SENSES = {"at_most": "<=", "at_least": ">=", "equals": "="}


class SpaceOptions(Table):
    """Options of a feature, or of all features; `Space` checks their values."""

    kind: Any = None
    values: Any = None
    likely: Any = None
    lower: Any = None
    upper: Any = None
    around: Any = None
    grid: Any = None
    direction: Any = None
    cost: Any = None

    def given(self) -> dict[str, Any]:
        """Return the options that are written, as `Space` takes them."""
        return {name: _plain(getattr(self, name)) for name in OPTIONS if name in self.model_fields_set}


class GroupTable(Table):
    """`[group.NAME]`."""

    one_hot: list[Any] | None = None
    tied: list[Any] | None = None


class DerivedTable(Table):
    """`[derived.NAME]`."""

    terms: dict[str, Any] = Field(default={})
    constant: Any = 0.0


class RuleTable(Table):
    """`[[rule]]`."""

    terms: dict[str, Any] = Field(default={})
    at_most: Any = None
    at_least: Any = None
    equals: Any = None
    when: "RuleTable | None" = None

    @model_validator(mode="after")
    def _one_sense(self) -> Self:
        if len(self.model_fields_set & _SENSES.keys()) != 1:
            raise ValueError(f"give one of {', '.join(_SENSES)}")
        return self


class SpaceFile(SpaceOptions):
    """The tables of a space file."""

    smallest: bool | None = None
    feature: dict[str, SpaceOptions] = Field(default={})
    group: dict[str, GroupTable] = Field(default={})
    rule: list[RuleTable] = Field(default=[])
    derived: dict[str, DerivedTable] = Field(default={})


def read(path: str | Path) -> Space:
    """Read a space from a TOML file; errors name the line."""
    try:
        text = toml.read(path)
    except OSError as error:
        raise ValueError(f"{path}: no space can be read from it ({error})") from None
    return parse(text, path)


def parse(text: str, path: str | Path = "space") -> Space:
    """Return the space in the text of such a file; `path` is its name in errors."""
    values = toml.load(text, str(path))
    if "label" in values:
        beside = Path(path).with_suffix(".space.toml").name
        fix = f"give {beside}, which `sigmazero space draft` of the table drafts"
        raise ValueError(f"{path}: holds the notes of a table, not a space; {fix}")
    tables = toml.check(values, SpaceFile, text, str(path))
    try:
        return build(tables)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def build(tables: SpaceFile) -> Space:
    """Return the space of the tables of such a file."""
    given: dict[str, Any] = tables.given()
    named = bool(tables.feature)
    if named:
        given["names"] = list(tables.feature)
    for name, options in tables.feature.items():
        for option, value in options.given().items():
            if not isinstance(given.setdefault(option, {}), dict):
                raise ValueError(f"{option} is given for all features and for {name!r}; say it in one place")
            given[option][name] = value
    for name, members in tables.group.items():
        for kind in members.model_fields_set:
            given.setdefault(kind, {})[name] = getattr(members, kind)
    given["smallest"] = tables.smallest
    given["rules"] = [_rule(rule, named) for rule in tables.rule]
    for name, formula in tables.derived.items():
        place = next(iter(_terms({name: 1}, named)))
        given.setdefault("derived", {})[place] = Formula(_terms(formula.terms, named), _plain(formula.constant))
    return Space(**given)


def written(space: Space) -> str:
    """Return a space as TOML; refuse what a file cannot hold."""
    _refuse_functions(space)
    lines = [] if space.smallest is None else [f"smallest = {str(space.smallest).lower()}", ""]
    lines += _options_of_all(space) if space.names is None else _options_by_feature(space, space.names)
    tied = space.tied if isinstance(space.tied, Mapping) else {f"tied {k}": g for k, g in enumerate(space.tied)}
    for kind, named in (("one_hot", space.one_hot), ("tied", tied)):
        for name, members in named.items():
            lines += [f"[group.{_quoted(str(name))}]", f"{kind} = {_text(list(members))}", ""]
    lines += _laws(space)
    return "\n".join(lines).rstrip("\n") + "\n"


def _options_of_all(space: Space) -> list[str]:
    """Return the options of a space without names."""
    for option in OPTIONS:
        given = getattr(space, option)
        if isinstance(given, Mapping) and (given or option not in SETS):
            raise ValueError(f"space: a file needs names for features with {option} of their own; pass names=")
    options = {option: _collapsed(getattr(space, option)) for option in DEFAULTS}
    return [f"{option} = {_text(value)}" for option, value in options.items() if _differs(option, value)]


def _options_by_feature(space: Space, names: Sequence[str]) -> list[str]:
    """Return the table of every feature, with the options that are not the default."""
    n = len(names)
    columns = space.columns((n,))
    if len(columns.rise) > 1:
        raise ValueError("space: a file cannot hold directions per sample; give one per feature")
    options = {option: space._each(option, getattr(space, option), DEFAULTS[option], (n,)) for option in DEFAULTS}
    sets = {option: {space.place(k, n): v for k, v in getattr(space, option).items()} for option in SETS}
    lines: list[str] = []
    for place, name in enumerate(names):
        lines.append(f"[feature.{_quoted(name)}]")
        own = place in columns.tables or place in columns.laws.at  # its default ends are others
        for option, values in options.items():
            value, default, ends = values[place], DEFAULTS[option], option in ("lower", "upper")
            if ends and columns.kind[place] == "binary":
                value = float(getattr(columns, option)[place])
            given = space._given(getattr(space, option), default, place, n) if ends and own else value != default
            lines += [f"{option} = {_text(value)}"] if given else []
        lines += [f"{option} = {_text(list(some[place]))}" for option, some in sets.items() if place in some]
        lines.append("")
    return lines


def draft(x: Any, names: Sequence[str] | None) -> Space:
    """Draft a space: kinds and ends as the rows show them; neighbours that always sum to 1 are a one-hot group.

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
    """Draft a space in which all pixels are alike; values of 8 bits have a grid."""
    low, high = float(rows.min()), float(rows.max())
    if low < 0 or high > 1:
        return Space(lower=low, upper=high)
    bits = np.abs(rows * 255 - np.round(rows * 255)).max() < EIGHT_BITS
    return Space.image8() if bits else Space()


def _one_hot_from(rows: Any, binary: Any, first: int) -> int:
    """Count the binary features from this one on that sum to 1 in every row; 0 if none do, or one alone."""
    total = np.zeros(len(rows))
    for k in range(first, rows.shape[1]):
        total += rows[:, k]
        if not binary[k] or (total > 1).any():
            return 0
        if (total == 1).all():
            return k + 1 - first if k > first else 0
    return 0


def _refuse_functions(space: Space) -> None:
    if space.accept is not None:
        raise ValueError("space: a file cannot hold accept; leave it out here and pass it again in Python")
    for name, how in space.derived.items():
        if callable(how):
            words = "a file cannot hold the function of derived feature"
            raise ValueError(f"space: {words} {name!r}; write it as a Formula, or pass it again in Python")


def _laws(space: Space) -> list[str]:
    """Return the tables of rules and derived features."""
    lines: list[str] = []
    for rule in space.rules:
        lines += ["[[rule]]", *_rule_lines(space, rule)]
        lines += [] if rule.when is None else [f"when = {{{', '.join(_rule_lines(space, rule.when))}}}"]
        lines += [""]
    for name, how in space.derived.items():
        formula = how if isinstance(how, Formula) else Formula(cast(Mapping[Any, float], how))
        lines += [f"[derived.{_quoted(_key(space, name))}]", f"terms = {_table(space, formula.terms)}"]
        lines += [*([f"constant = {_text(formula.constant)}"] if formula.constant else []), ""]
    return lines


def _rule_lines(space: Space, rule: Rule) -> list[str]:
    word = next(word for word, sense in _SENSES.items() if sense == rule.sense)
    return [f"terms = {_table(space, rule.terms)}", f"{word} = {_text(rule.bound)}"]


def _rule(table: RuleTable, named: bool) -> Rule:
    """Return a rule as `Space` takes it."""
    word = next(word for word in _SENSES if word in table.model_fields_set)
    when = None if table.when is None else _rule(table.when, named)
    return Rule(_terms(table.terms, named), _SENSES[word], _plain(getattr(table, word)), when)


def _terms(terms: Mapping[str, Any], named: bool) -> Any:
    """Return terms by name, or by index where features have no names."""
    return {name if named or not name.isdigit() else int(name): _plain(factor) for name, factor in terms.items()}


def _key(space: Space, feature: Any) -> str:
    """Name a feature in a rule: by its name, or its index where there are no names."""
    return str(feature) if space.names is None else space.names[space.place(feature, len(space.names))]


def _table(space: Space, terms: Mapping[Any, float]) -> str:
    return f"{{{', '.join(f'{_quoted(_key(space, name))} = {_text(factor)}' for name, factor in terms.items())}}}"


def _collapsed(value: Any) -> Any:
    """Return one value for a list of equal ones, so that two spellings of a space have one text."""
    flat = value.flatten().tolist() if isinstance(value, np.ndarray | Tensor) else value
    alike = isinstance(flat, list | tuple) and len(flat) > 0 and all(one == flat[0] for one in flat)
    return flat[0] if alike and not isinstance(flat[0], list | tuple) else value


def _differs(option: str, value: Any) -> bool:
    return isinstance(value, np.ndarray | Tensor | list | tuple) or bool(value != DEFAULTS[option])


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
    """Read a fraction such as "1/255"; other values stay."""
    if isinstance(value, str) and "/" in value:
        try:
            return float(Fraction(value))
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"space: {value!r} is no fraction such as 1/255") from None
    return value
