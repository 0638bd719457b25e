"""Tables: a pandas DataFrame, or a CSV, Parquet or ARFF file, as rows that an attack can change, and back.

Numbers keep their units; a category becomes one column of 0 and 1 for each word, called `job=clerk`. Everything is
float64. `decode` gives a DataFrame with the original columns and dtypes, so any model fitted on it can be asked.

>>> import pandas as pd
>>> frame = pd.DataFrame({"age": [30, 52], "job": ["clerk", "nurse"], "rate": [0.1, 0.7], "loan": ["no", "yes"]})
>>> table = Table.from_frame(frame, "loan")
>>> table.features
('age', 'job=clerk', 'job=nurse', 'rate')
>>> table.decode(table.rows().images).equals(frame.drop(columns="loan"))
True

A file needs notes beside it that say what its columns are, `adult.toml` for `adult.csv.gz` ([tables](tables.md)).
"""

from __future__ import annotations

import difflib
import gzip
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from sigmazero.core import toml
from sigmazero.core.extras import require
from sigmazero.core.inputs import hint
from sigmazero.core.messages import shown, warn_caller
from sigmazero.data.rows import Array, DataError, MissingData, MissingNotes, Rows, Source, class_places, reading
from sigmazero.spaces.rules import Rule
from sigmazero.spaces.space import MISSING, Space

CSV = (".csv", ".csv.gz")
ENDINGS = (*CSV, ".arff", ".arff.gz", ".parquet")
EXACT = 1 << 24  # whole numbers up to here have a float32 of their own
EXACT_DOUBLE = 1 << 53
MAX_WORDS = 1000
QUANTILES = tuple(k / 10 for k in range(1, 10))  # of the different values of a number, that a search tries
WIDE = 100  # whole numbers with a wider range have likely values
FEW_WORDS = 50  # that are a category in the smallest table, too
OPTIONS = ("kind", "lower", "upper", "around", "grid", "direction", "cost", "missing")
UNITS = ("D", "s", "ms", "us", "ns")  # of dates and spans of time
FIX = 'correct it, or write under [read] in its notes how pandas is to read it, such as encoding = "latin-1"'


class Standardize(nn.Module):
    """(x − mean) / deviation for each feature; a layer in front of a network. Both are part of its state dict."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise rows, in the number format of the network."""
        return (x.to(self.mean.dtype) - self.mean) / self.deviation


@dataclass(frozen=True)
class Column:
    """One column of a table, and how it becomes features.

    kind     "real" or "integer" numbers; "category", one feature per word; "fixed", one feature that says which of its
             values a row has and never changes: names, ids, texts of which there are too many
    unit     of dates and spans of time, which are whole numbers of it since 1970
    missing  whether some row has no value; then the last feature is 1 in such rows
    """

    name: Any
    dtype: Any
    kind: str
    lower: float = 0.0
    upper: float = 1.0
    mean: float = 0.0
    deviation: float = 1.0
    words: tuple[Any, ...] = ()
    unit: str = ""
    missing: bool = False
    none: bool = False  # whether None stands for a missing value, not NaN

    @property
    def features(self) -> tuple[str, ...]:
        """Name the features."""
        flag = (f"{self.name}={MISSING}",) if self.missing else ()
        words = tuple(f"{self.name}={_text(word)}" for word in self.words) if self.kind == "category" else ()
        return (words or (str(self.name),)) + flag

    def encode(self, values: Any, may_go: bool, where: str) -> Array:
        """Turn a Series into (rows, features); `may_go` lets a missing value be one word among others."""
        absent = values.isna().to_numpy()
        if absent.any() and not (self.missing or self.kind == "fixed"):
            raise _wrong(values, absent, where, "is missing, and no row had that when the table was made")
        if self.kind == "fixed":
            return self._places(values, absent, where)[:, None].astype(np.float64)
        if self.kind == "category":
            made = np.eye(len(self.words))[self._places(values, absent, where)]
            made[absent] = 0.0 if may_go else np.eye(len(self.words))[0]
        else:
            numbers = _numbers(values, self.unit)
            odd = ~absent & (~np.isfinite(numbers) | ((self.kind == "integer") & (numbers != np.rint(numbers))))
            if odd.any():
                kind = "whole" if self.kind == "integer" else "finite"
                raise _wrong(values, odd, where, f"is no {kind} number, as the others are")
            made = np.where(absent, self.lower, numbers)[:, None]
        return np.concatenate([made, absent[:, None].astype(np.float64)], 1) if self.missing else made

    def decode(self, features: Array, exact: Array) -> Any:
        """Turn features back into a Series of the column's dtype; `exact` are the numbers that the table shows."""
        pandas = _pandas()
        absent = features[:, -1] > 0.5 if self.missing else np.zeros(len(features), dtype=bool)
        blank = None if self.none else np.nan
        if self.kind in ("category", "fixed"):
            words = features[:, : len(self.words)]
            places = words.argmax(1) if self.kind == "category" else np.rint(words[:, 0]).astype(np.int64)
            found = np.array([*self.words, None], dtype=object)[np.clip(places, 0, len(self.words) - 1)]
            found[absent] = blank
            return pandas.Series(list(found), dtype=object).astype(self.dtype)
        first = features[:, 0]
        numbers = _widened(first, exact) if self.kind == "real" else np.rint(first.astype(np.float64))
        if self.unit:
            spans = numbers.astype(np.int64).astype(f"timedelta64[{self.unit}]")
            spans[absent] = np.timedelta64("NaT")
            series = pandas.Series(spans.astype(f"timedelta64[{self.unit.replace('D', 's')}]"))  # pandas knows no days
            return (series if "timedelta" in str(self.dtype) else series + _start(self.dtype)).astype(self.dtype)
        return pandas.Series(numbers).mask(absent).astype(self.dtype)

    def _places(self, values: Any, absent: Array, where: str) -> Array:
        """Return the places of words; that of the last one where a value is missing."""
        known = {word: place for place, word in enumerate(self.words) if not _blank(word)}
        found = np.array([known.get(value, -1) for value in values.astype(object)], dtype=np.int64)
        found[absent] = len(self.words) - 1
        if (found < 0).any():
            raise _wrong(values, found < 0, where, f"is not one of {_some(self.words)}")
        return found


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of features with the class of each. `frame` keeps the dtypes it came with; `Table.from_frame` makes one.

    labels    the class of each row, by number
    ids       the number of each row in what the table was made of
    parts     the part of each row, where the table has a column for it; `part` is the one that is loaded
    change    what may change, by column
    """

    frame: Any = field(repr=False)
    labels: Array = field(repr=False)
    ids: Array = field(repr=False)
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    name: str = "table"
    change: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    parts: Array | None = field(default=None, repr=False)
    part: str | None = None
    space_file: Space | None = field(default=None, repr=False)
    notes: str | None = field(default=None, repr=False)  # the file that says what may change

    def __post_init__(self) -> None:
        """Refuse changes of columns that are not there."""
        names = [str(column.name) for column in self.columns]
        for key, options in self.change.items():
            if key not in names:
                raise DataError(f"{self._where}: change: {_no_column(key, names)}")
            if wrong := [option for option in options if option not in OPTIONS]:
                raise DataError(
                    f"{self._where}: change of {key!r}: there is no {wrong[0]!r}; {hint(str(wrong[0]), OPTIONS)}"
                )

    @property
    def _where(self) -> str:
        """Name what says what may change, for errors."""
        return self.notes or self.name

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        label: Any,
        *,
        classes: Sequence[Any] | None = None,
        drop: Sequence[Any] = (),
        categories: Mapping[Any, Sequence[Any] | None] | Sequence[Any] = (),
        change: Mapping[str, Mapping[str, Any]] | None = None,
        keep_missing: bool = True,
        split: Mapping[str, str] | None = None,
        name: str = "table",
    ) -> Table:
        """Make a table of a DataFrame. Numbers, booleans and dates are numbers; everything else is a category.

        label         the column with the classes
        classes       their names in the order of their numbers; those of the column, sorted, unless given
        drop          columns that the model does not see
        categories    further columns that are categories, or {column: words in order}
        change        what may change, by column: {"age": {"direction": "up"}, "sex": {"direction": "none"}}
        keep_missing  keep rows with a missing value; it stays missing unless {"missing": True} is in `change`
        split         {"column": …, "part": …, "fit": …}: which rows are loaded, and which give means and deviations
        """
        at = dict(split or {})
        words = dict(categories) if isinstance(categories, Mapping) else dict.fromkeys(categories)
        for key in (label, *drop, *words, *([at["column"]] if at else [])):
            _check_column(frame, key, name)
        used = [key for key in frame.columns if key not in {label, *drop, at.get("column")}]
        if not used:
            raise DataError(f"{name}: no column is left besides the label; drop fewer")
        keep = frame[[label] if keep_missing else [label, *used]].notna().all(axis=1).to_numpy()
        _say_left_out(keep, "no class" if keep_missing else "a missing value", name)
        kept = frame.loc[keep]
        parts = None if not at else np.array([_text(part) for part in kept[at["column"]]], dtype=object)
        fitted = np.ones(len(kept), dtype=bool) if parts is None or "fit" not in at else parts == at["fit"]
        if not fitted.any():
            raise DataError(f"{name}: no row of column {at['column']!r} is {at['fit']!r}; it has {_some(parts)}")
        names, labels = _classes(kept[label], classes, name)
        columns = tuple(_column(kept[key], key in words, words.get(key), fitted, name) for key in used)
        return cls(kept[used], labels, np.flatnonzero(keep), names, columns, name, change or {}, parts, at.get("part"))

    @classmethod
    def read(cls, path: str | Path, notes: str | Path | None = None, **options: Any) -> Table:
        """Read a table file: with the notes beside it or in another file, or with the options of `from_frame`."""
        place = Path(path).expanduser()
        about = notes_of(place) if notes is None else Path(notes).expanduser()
        if not place.is_file():
            raise MissingData(f"{place}: no such file; check the path")
        if not has_text(about) and "label" not in options:
            raise MissingNotes(str(place), about.name)
        arguments = {**(_read_notes(about) if has_text(about) else {}), **options}
        change = arguments.pop("change", None) or {}
        frame = read_frame(place, arguments.pop("missing", None), arguments.pop("read", {}))
        table = cls.from_frame(frame, name=place.name, **arguments)
        space = space_beside(place)
        if space is not None and change:
            raise DataError(f"{about}: has change, and there is a space file too; say it in one place")
        return replace(table, change=change, space_file=space, notes=None if "change" in options else str(about))

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.labels)

    @property
    def features(self) -> tuple[str, ...]:
        """Name the features of the tensor."""
        return tuple(feature for column in self.columns for feature in column.features)

    def encode(self, frame: Any) -> Tensor:
        """Turn a DataFrame, or a list of mappings from column to value, into (rows, features), float64."""
        pandas = _pandas()
        frame = frame if isinstance(frame, pandas.DataFrame) else pandas.DataFrame(list(frame))
        parts = []
        for column in self.columns:
            _check_column(frame, column.name, self.name)
            parts.append(column.encode(frame[column.name], self._may_go(column), self.name))
        return torch.from_numpy(np.concatenate(parts, 1))

    def decode(self, x: Tensor | Array) -> Any:
        """Turn (rows, features) back into a DataFrame with the original columns and dtypes.

        A float32 number becomes the value of the table that it stands for, else the shortest decimal. The largest
        feature of a category names the word.
        """
        values = x.detach().cpu().numpy() if isinstance(x, Tensor) else x
        if values.ndim != 2 or values.shape[1] != len(self.features):
            raise DataError(f"shape {tuple(values.shape)} is not (rows, {len(self.features)}), as this table encodes")
        at, found = 0, []
        for column in self.columns:
            width = len(column.features)
            found.append(column.decode(values[:, at : at + width], self._shown.get(column.name, np.empty(0))))
            at += width
        frame = _pandas().concat(found, axis=1)
        frame.columns = self.frame.columns
        return frame

    @cached_property
    def _shown(self) -> dict[Any, Array]:
        """Return the different values of each number."""
        numbers = [column for column in self.columns if column.kind in ("real", "integer") and not column.unit]
        return {column.name: np.unique(_numbers(self.frame[column.name].dropna())) for column in numbers}

    @cached_property
    def space(self) -> Space:
        """Return what may change: the space file beside the table, or everything within what the table shows."""
        if self.space_file is not None:
            return self.space_file
        given: dict[str, Any] = {"kind": {}, "lower": {}, "upper": {}}
        one_hot, tied, rules = {}, dict[str, Any](), list[Rule]()
        for column in self.columns:
            key, names = str(column.name), list(column.features)
            flag = names.pop() if column.missing else None
            free, options = self._may_go(column), self._options(column)
            for option, value in options.items():
                given.setdefault(option, {}).update(dict.fromkeys(names, value))
            if column.kind == "category":
                one_hot[key] = (*names, flag) if flag and free else tuple(names)
            if flag is None:
                continue
            given["kind"][flag] = "binary"
            given.setdefault("cost", {})[flag] = options.get("cost", 1)
            given.setdefault("direction", {})[flag] = options.get("direction", "both") if free else "none"
            if column.kind == "category" and not free:
                rules.append(Rule({names[0]: 1, flag: -1}, ">=", 0))  # where it is missing the first word stands for it
            elif column.kind != "category":
                upper = float(options.get("upper", 1))
                rules.append(Rule({names[0]: 1, flag: upper - column.lower}, "<=", upper))  # and here the lower end
                if free:
                    tied[key] = (names[0], flag)
        try:
            return Space(names=self.features, one_hot=one_hot, tied=tied, rules=rules, likely=self._likely(), **given)
        except ValueError as error:
            raise DataError(f"{self._where}: change: {str(error).removeprefix('space: ')}") from None

    def _likely(self) -> dict[str, list[float]]:
        """Return values that the table shows of each number that has many: a search tries them."""
        found = {}
        for name, values in self._shown.items():
            if (values != np.rint(values)).any() or np.ptp(values) > WIDE:
                found[str(name)] = np.quantile(values, QUANTILES, method="nearest").tolist()
        return found

    def _may_go(self, column: Column) -> bool:
        """Tell whether a value of a column may become missing, and a missing one a value."""
        return bool(self.change.get(str(column.name), {}).get("missing", False))

    def _options(self, column: Column) -> dict[str, Any]:
        change = {key: value for key, value in self.change.get(str(column.name), {}).items() if key != "missing"}
        if column.kind == "fixed":
            return {"kind": "integer", "lower": 0, "upper": max(len(column.words) - 1, 1), "direction": "none"}
        two = column.kind == "integer" and (column.lower, column.upper) == (0, 1) and not column.unit
        if column.kind == "category" or (two and not column.missing):
            return {"kind": "binary", **change}
        lower, upper = (int(end) if end.is_integer() else end for end in (column.lower, column.upper))
        return {"kind": column.kind, "lower": lower, "upper": upper, **change}

    def rows(self, part: str | None = None, dtype: torch.dtype = torch.float64) -> Rows:
        """Return all rows of a part, such as "train"; the one that is loaded unless given."""
        source = self.source(part, dtype)
        return source.rows(list(range(len(source.labels))), self.name)

    def source(self, part: str | None = None, dtype: torch.dtype | None = None) -> Source:
        """Return a part as `data.load` takes it: float32, as networks do, where that holds its whole numbers."""
        chosen, wanted = np.arange(len(self)), self.part if part is None else part
        if wanted is not None:
            chosen = np.flatnonzero(self.parts == wanted) if self.parts is not None else chosen[:0]
            if not len(chosen):
                raise DataError(f"{self.name}: no row is of part {wanted!r}; there are {_some(self.parts)}")
        large = any(max(-c.lower, c.upper) > EXACT for c in self.columns if c.kind in ("integer", "fixed"))
        double = large if dtype is None else dtype == torch.float64

        def fetch(rows: list[int]) -> Array:
            values = self.encode(self.frame.iloc[chosen[rows]]).numpy()
            return values if double else values.astype(np.float32)

        given: dict[str, Any] = {"space": self.space, "names": self.features, "classes": self.classes, "table": self}
        return Source(self.labels[chosen], fetch, self.ids[chosen], **given)

    def without_missing(self) -> Table:
        """Leave out the rows that have a missing value, and say how many."""
        keep = self.frame.notna().all(axis=1).to_numpy()
        _say_left_out(keep, "a missing value", self.name)
        return replace(
            self,
            frame=self.frame.loc[keep],
            labels=self.labels[keep],
            ids=self.ids[keep],
            parts=None if self.parts is None else self.parts[keep],
            columns=tuple(replace(column, missing=False) for column in self.columns),
        )

    def places(self, model: Sequence[Any]) -> list[int]:
        """Return the columns of a model's answer in the order of the classes here; further classes follow.

        Classes are found by name. A model that numbers its classes 0, 1, … and has as many is taken at that.
        """
        found = class_places(model, self.classes)
        if found is None and [*model] == [*range(len(self.classes))]:
            found = list(range(len(model)))
        if found is None:
            some = ", ".join(shown(each) for each in model[:8])
            raise DataError(f"{self.name}: its classes {', '.join(self.classes[:8])} are not the model's ({some})")
        return [*found, *(k for k in range(len(model)) if k not in found)]

    def changes(self, x: Tensor, x_adv: Tensor, ids: Tensor | Sequence[int] | None = None) -> Any:
        """List what differs between rows, one line a cell: row, field, before, after, cost."""
        before, after = self.decode(x), self.decode(x_adv)
        moved = ~((before == after).fillna(False) | (before.isna() & after.isna())).to_numpy(bool)
        numbers = np.arange(len(before)) if ids is None else np.asarray(ids)
        lines = []
        for row, place in np.argwhere(moved):
            name = self.columns[place].name
            cost = float(self.change.get(str(name), {}).get("cost", 1))
            lines.append((int(numbers[row]), name, before.iat[row, place], after.iat[row, place], cost))
        return _pandas().DataFrame(lines, columns=["row", "field", "before", "after", "cost"])

    def scaler(self) -> Standardize:
        """Return a layer that standardises numbers and leaves categories as they are."""
        layer, at = Standardize(len(self.features)), 0
        for column in self.columns:
            if column.kind in ("real", "integer"):
                layer.mean[at], layer.deviation[at] = column.mean, column.deviation
            at += len(column.features)
        return layer


# How a column is understood


def _column(values: Any, is_category: bool, words: Sequence[Any] | None, fitted: Array, where: str) -> Column:
    """Decide how a Series becomes features; `fitted` marks the rows that give means and deviations."""
    types, absent = _pandas().api.types, values.isna().to_numpy()
    if absent.all():
        raise DataError(f"{where}: column {values.name!r} has no values; drop it")
    none = values.dtype == object and any(value is None for value in values[absent])
    about: dict[str, Any] = {"name": values.name, "dtype": values.dtype, "none": none, "missing": bool(absent.any())}
    timed = types.is_datetime64_any_dtype(values) or types.is_timedelta64_dtype(values)
    if not is_category and (timed or types.is_numeric_dtype(values) or types.is_bool_dtype(values)):
        unit = _unit(values) if timed else ""
        numbers = _numbers(values, unit)
        present, some = numbers[~absent], numbers[fitted & ~absent]
        if not np.isfinite(present).all():
            raise _wrong(values, ~absent & ~np.isfinite(numbers), where, "is no finite number; correct it")
        low, high = float(present.min()), float(present.max())
        kind = "integer" if bool((present == np.rint(present)).all()) else "real"
        if not (kind == "integer" and max(-low, high) > EXACT_DOUBLE):
            mean, deviation = (float(some.mean()), float(some.std())) if len(some) else (low, 1.0)
            if deviation <= 1e-9 * max(abs(low), abs(high)):  # rounding leaves a little where all are equal
                deviation = 1.0
            sums: dict[str, Any] = {"lower": low, "upper": high, "mean": mean, "deviation": deviation}
            return Column(**about, **sums, kind=kind, unit=unit)
    found = _words(values, absent)
    if is_category or hasattr(values, "cat") or len(found) <= min(MAX_WORDS, max(FEW_WORDS, len(values) // 2)):
        if words is not None:
            known = {_text(word): word for word in found}
            found = [known.get(_text(word), word) for word in words]
        made = Column(**about, kind="category", words=tuple(found))
        made._places(values, absent, where)
        return made
    gap = [None if none else np.nan] if absent.any() else []
    return Column(**{**about, "missing": False}, kind="fixed", words=(*found, *gap))


def _words(values: Any, absent: Array) -> list[Any]:
    """List the different values in their order: that of a pandas category, else sorted."""
    if hasattr(values, "cat"):
        return list(values.cat.categories)
    found = list(dict.fromkeys(values[~absent]))
    try:
        return sorted(found)
    except TypeError:  # of several kinds
        return sorted(found, key=lambda word: (type(word).__name__, str(word)))


def _classes(values: Any, classes: Sequence[Any] | None, where: str) -> tuple[tuple[str, ...], Array]:
    found = _words(values, np.zeros(len(values), dtype=bool))
    if classes is None and len(found) > MAX_WORDS:
        raise DataError(f"{where}: label {values.name!r} has {len(found)} different values; it is no class")
    if classes is None and not hasattr(values, "cat"):
        texts = [_text(word) for word in found]
        numbers = all(re.fullmatch(r"[+-]?\d+(\.\d+)?", text) for text in texts)
        found = sorted(found, key=lambda word: float(_text(word))) if numbers else found
    names = [_text(word) for word in (found if classes is None else classes)]
    known = {name: place for place, name in enumerate(names)}
    labels = np.array([known.get(_text(value), -1) for value in values])
    if (labels < 0).any():
        raise _wrong(values, labels < 0, where, f"is not one of the classes {_some(names)}")
    return tuple(names), labels.astype(np.int64)


def _numbers(values: Any, unit: str = "") -> Array:
    """Return a Series as float64, NaN where it is missing; dates and spans of time in a unit since 1970."""
    if unit:
        times: Array = _spans(values).astype(f"timedelta64[{unit}]")
        return np.where(np.isnat(times), np.nan, times.astype(np.int64).astype(np.float64))
    numbers: Array = values.to_numpy(dtype=np.float64, na_value=np.nan)
    return numbers


def _spans(values: Any) -> Array:
    """Return dates as the time since 1970, and spans of time as they are."""
    spans: Array = (values - _start(values.dtype) if values.dtype.kind == "M" else values).to_numpy()
    return spans


def _start(dtype: Any) -> Any:
    return _pandas().Timestamp(0, tz=getattr(dtype, "tz", None)).as_unit("s")


def _unit(values: Any) -> str:
    spans = _spans(values.dropna())
    return next(unit for unit in UNITS if (spans.astype(f"timedelta64[{unit}]").astype(spans.dtype) == spans).all())


def _widened(values: Array, exact: Array) -> Array:
    """Return float64 numbers: of float32 ones those that they stand for."""
    if values.dtype == np.float64:
        return values
    unique, inverse = np.unique(values, return_inverse=True)
    short = np.array([float(str(value)) for value in unique])  # the shortest decimal that is this float32
    if len(exact):
        place = np.clip(np.searchsorted(exact.astype(values.dtype), unique), 0, len(exact) - 1)
        short = np.where(exact[place].astype(values.dtype) == unique, exact[place], short)
    found: Array = short[inverse.reshape(-1)]
    return found


def date_shares(frame: Any) -> dict[str, float]:
    """Return, of each text column whose texts are mostly ISO dates, the share that are."""
    found = {}
    for name in frame.columns[[kind.kind not in "biufcMm" for kind in frame.dtypes]]:
        texts = frame[name].dropna().astype(str)
        written = texts[texts.str.fullmatch(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?")]
        dates = _pandas().to_datetime(written, errors="coerce", format="ISO8601").notna().sum()
        if 2 * dates > len(texts):
            found[str(name)] = float(dates / len(texts))
    return found


def _text(value: Any) -> str:
    """Write a value as people do: a whole number without its point.

    >>> _text(3.0), _text("clerk"), _text(True)
    ('3', 'clerk', 'True')
    """
    return str(int(value)) if isinstance(value, float | np.floating) and float(value).is_integer() else str(value)


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _some(words: Any) -> str:
    found = list(dict.fromkeys(map(str, words if words is not None else [])))
    return ", ".join(map(shown, found[:8])) + (", ..." if len(found) > 8 else "") if found else "none"


def _wrong(values: Any, bad: Array, where: str, why: str) -> DataError:
    """Make the error about the first value that is wrong."""
    place = int(np.flatnonzero(bad)[0])
    return DataError(f"{where}: row {values.index[place]}, column {values.name!r}: {shown(values.iloc[place])!r} {why}")


def _say_left_out(keep: Array, why: str, where: str) -> None:
    """Warn of rows that are left out; refuse a table that has no others."""
    if not keep.any():
        raise DataError(f"{where}: every row has {why}; drop the columns that are not needed")
    if not keep.all():
        warn_caller(f"{where}: {int((~keep).sum())} of {len(keep)} rows have {why} and are left out")


def _check_column(frame: Any, name: Any, where: str) -> None:
    if name not in frame.columns:
        raise DataError(f"{where}: {_no_column(name, list(map(shown, frame.columns)))}")


def _no_column(name: Any, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(str(name), names, 1)
    guess = f"did you mean {near[0]!r}? " if near else ""
    return f"there is no column {name!r}; {guess}there are {', '.join(names[:20])}"


def _pandas() -> Any:
    return require("pandas", "data", "reading tables")


# Files


def is_table(name: str | Path) -> bool:
    """Tell whether a name is that of a table file."""
    return str(name).lower().endswith(ENDINGS)


def stem(path: Path) -> str:
    """Return the name of a file without its endings: `adult` for `adult.csv.gz`."""
    name = path.name.removesuffix(".gz")
    return name[: name.rfind(".")] if "." in name[1:] else name


def notes_of(path: Path) -> Path:
    """Return where the notes about a table are."""
    return path.with_name(f"{stem(path)}.toml")


def has_text(path: Path) -> bool:
    """Tell whether a file is there and not empty, as one is that a shell makes before a draft is written to it."""
    return path.is_file() and path.stat().st_size > 0


def space_beside(path: Path) -> Space | None:
    """Read the space in the file beside a data file, `mine.space.toml` for `mine.npz`; None where there is none."""
    place = path.with_name(f"{stem(path)}.space.toml")
    if not has_text(place):
        return None
    try:
        return Space.from_toml(place)
    except ValueError as error:
        raise DataError(str(error)) from None


def read_frame(path: Path, missing: str | None = None, options: Mapping[str, Any] | None = None) -> Any:
    """Read a table file as pandas does; semicolons, tabs and decimal commas of a CSV file are noticed.

    missing  a text that stands for a missing value, besides what pandas takes for one
    options  of pandas.read_csv
    """
    pandas, name = _pandas(), path.name.lower()
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"  # the content decides: some browsers unpack .gz and keep the name
    with reading(path, FIX):
        if name.endswith(".parquet"):
            frame = pandas.read_parquet(path)
        elif name.removesuffix(".gz").endswith(".arff"):
            frame = _arff(path, packed)
        else:
            with gzip.open(path) if packed else path.open("rb") as file:
                given = _csv_options(file.read(1 << 16))
            given |= {"compression": "gzip" if packed else None, **(options or {})}
            given |= {} if missing is None else {"na_values": [missing]}
            with warnings.catch_warnings():
                warnings.simplefilter("error", pandas.errors.ParserWarning)  # lines longer than the header
                frame = pandas.read_csv(path, index_col=False, low_memory=False, **given)
    if not len(frame):
        raise DataError(f"{path}: holds no rows under its header; choose another file")
    return frame if missing is None else frame.mask(frame == missing)


def _csv_options(head: bytes) -> dict[str, Any]:
    """Find the separator of a CSV file, whether blanks follow it, and whether a comma stands for the decimal point."""
    lines = head.decode("utf-8-sig", errors="replace").splitlines()
    first = next((line for line in lines if line.strip()), "")
    bare = re.sub(r'"[^"]*"', "", first)
    separator = max(",;\t|", key=bare.count)
    cells = [cell.strip('" ') for line in lines[1:100] for cell in line.split(separator)]
    commas = separator != "," and any(re.fullmatch(r"[+-]?\d+,\d+", cell) for cell in cells)
    points = any(re.fullmatch(r"[+-]?\d+\.\d+", cell) for cell in cells)
    decimal = "," if commas and not points else "."
    return {"sep": separator, "decimal": decimal, "skipinitialspace": f"{separator} " in bare}


def _arff(path: Path, packed: bool) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") if packed else path.open(encoding="utf-8") as text:
        read, _ = require("scipy.io.arff", "data", f"the table {path.name}").loadarff(text)
    frame = _pandas().DataFrame(read)
    for name in frame.columns:
        if frame[name].dtype == object:  # words, of which "?" is a missing one
            words = frame[name].str.decode("utf-8")
            frame[name] = words.mask(words == "?")
    return frame


class Split(toml.Table):
    """Say which column names a row's part, which part is loaded, and which gives means and deviations."""

    column: toml.Text
    part: toml.Text
    fit: toml.Text | None = None


class TableNotes(toml.Table):
    """Hold what the file beside a table says: options of `Table.from_frame`, and how pandas is to read the table.

    missing  a text that stands for a missing value, besides an empty cell
    read     options of pandas.read_csv: sep, decimal, encoding, skipinitialspace
    """

    label: toml.Text
    classes: list[str | int | float | bool] | None = None
    drop: list[str] = Field(default_factory=list)
    missing: str | None = None
    keep_missing: bool = True
    read: dict[str, Any] = Field(default_factory=dict)
    split: Split | None = None
    categories: dict[str, list[str | int | float | bool]] | list[str] = Field(default_factory=dict)
    change: dict[str, dict[str, Any]] = Field(default_factory=dict)


def _read_notes(path: Path) -> dict[str, Any]:
    try:
        return toml.parse(toml.read(path), TableNotes, str(path)).model_dump(exclude_unset=True)
    except toml.TomlError as error:
        raise DataError(str(error)) from None


def _date_lines(dates: list[str], partly: list[str]) -> list[str]:
    """Suggest that columns are read as dates; a comment for those that have other texts too."""
    wanted = [f"parse_dates = {json.dumps(names, ensure_ascii=False)}" for names in (dates, partly)]
    lines = ["", "[read]", f"{wanted[0]}  # leave it out if the model takes these dates as texts"] if dates else []
    return [*lines, "", f"# most of their texts are dates; once all are: [read] {wanted[1]}"] if partly else lines


def draft(path: str | Path) -> str:
    """Write a TOML to correct: the notes about a table that has none beside it, else the space of one that has."""
    place = Path(path).expanduser()
    if has_text(notes_of(place)):
        return Table.read(place).space.to_toml()
    frame = read_frame(place)
    marked = any((frame[name] == "?").any() for name in frame if frame[name].dtype.kind not in "biufMm")
    frame = read_frame(place, "?") if marked else frame

    def text(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, default=str)

    parts = {"train", "test", "valid", "validation", "val"}
    split = next((name for name in frame if {str(word).lower() for word in frame[name].unique()} <= parts), None)
    names = [name for name in frame if name != split]
    label = ([name for name in names if str(name).lower() in ("label", "class", "target", "y")] or names)[-1]
    lines = [f"label = {text(label)}  # is this the class?", "drop = []"]
    lines += ['missing = "?"'] if marked else []
    if frame[names].isna().to_numpy().any():
        lines.append("keep_missing = true  # false leaves out the rows that have one")
    if split is not None:
        parts_here = sorted(map(str, frame[split].unique()))
        fit = [f"fit = {text(part)}" for part in parts_here if part.lower().startswith("train")]
        tested = next((part for part in parts_here if part.lower() == "test"), parts_here[-1])
        lines += ["", "[split]", f"column = {text(split)}", f"part = {text(tested)}", *fit]
    shares = date_shares(frame[names].drop(columns=label)) if place.name.lower().endswith(CSV) else {}
    dates = [name for name, share in shares.items() if share == 1]
    lines += _date_lines(dates, [name for name in shares if name not in dates])
    lines += ["", "[categories]"]
    every = np.ones(len(frame), dtype=bool)
    for name in names:
        if name != label and name not in dates and not frame[name].isna().all():
            column = _column(frame[name], False, None, every, str(place))
            if column.kind == "category":
                lines.append(f"{text(str(name))} = {text([_text(word) for word in column.words])}")
            elif column.kind == "fixed":
                lines.append(f"# {text(str(name))} has {len(column.words)} different texts: it stays as it is")
    return "\n".join(lines) + "\n"
