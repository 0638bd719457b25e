"""Tables as tensors and back: numbers as they are, a category as one column of 0 and 1 for each of its words.

An encoder is fitted to a table once and saved as JSON, so that the order of columns and words never depends on the rows
at hand. Tensors stay in the user's units: scaling is a layer in front of the network (`Encoder.scaler`), and only
categories have to be decoded.

>>> rows = [{"age": 30, "job": "clerk"}, {"age": 52, "job": "nurse"}]
>>> encoder = Encoder.fit(RawTable.of(rows, ["age", "job"]), categories={"job": None})
>>> encoder.names
('age', 'job=clerk', 'job=nurse')
>>> encoder.encode(rows)
tensor([[30.,  1.,  0.],
        [52.,  0.,  1.]])
>>> encoder.decode(encoder.encode(rows)) == rows
True
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.core.files import replacing
from sigmazero.core.text import one_line, shown
from sigmazero.data.encoded import EncodedColumn
from sigmazero.data.errors import DataError
from sigmazero.data.source import Array
from sigmazero.data.table import RawTable
from sigmazero.spaces.space import Space

FORMAT = "sigmazero encoder 1"
OPTIONS = ("kind", "lower", "upper", "around", "grid", "direction", "cost")


class Standardize(nn.Module):
    """(x − mean) / deviation for each feature; a layer in front of a network. Both are part of its state dict."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(features))
        self.register_buffer("deviation", torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """Standardise rows."""
        return (x - self.mean) / self.deviation


@dataclass(frozen=True)
class Encoder:
    """Columns of a table in their order. `fit` makes one, `save` and `read` keep it as JSON."""

    columns: tuple[EncodedColumn, ...]

    @classmethod
    def fit(
        cls,
        table: RawTable,
        *,
        categories: Mapping[str, Sequence[str] | None] | None = None,
        leave_out: Sequence[str] = (),
        fitted: Array | None = None,
    ) -> Encoder:
        """An encoder for the columns of a table.

        categories  the columns of words, each with its words in order, or None for those in the table
        leave_out   columns that are not encoded, such as the label
        fitted      places of the rows that give means and deviations, such as those trained on; all unless given
        """
        named = categories or {}
        for name in (*named, *leave_out):
            table.column(name)
        rows = np.arange(len(table)) if fitted is None else fitted
        columns = [
            EncodedColumn.category(column, named[name]) if name in named else EncodedColumn.number(column, rows)
            for name, column in table.columns.items()
            if name not in leave_out
        ]
        if not columns:
            raise DataError(f"{table.where}: no column is left to encode; drop fewer")
        return cls(tuple(columns))

    @property
    def names(self) -> tuple[str, ...]:
        """The features of the tensor."""
        return tuple(name for column in self.columns for name in column.names)

    def encode(self, rows: RawTable | Sequence[Mapping[str, Any]]) -> Tensor:
        """A table, or rows as mappings from column to value, as a tensor (rows, features)."""
        names = [column.name for column in self.columns]
        table = rows if isinstance(rows, RawTable) else RawTable.of(rows, names)
        values = [column.encode(table.column(column.name)).astype(np.float32) for column in self.columns]
        return torch.from_numpy(np.concatenate(values, 1))

    def decode(self, x: Tensor) -> list[dict[str, Any]]:
        """Rows in the user's words: whole numbers, numbers, and the words of categories."""
        if x.ndim != 2 or x.shape[1] != len(self.names):
            raise DataError(
                f"a tensor of shape {tuple(x.shape)} is not (rows, {len(self.names)}), as this encoder makes"
            )
        values, at, found = x.detach().cpu().double().numpy(), 0, []
        for column in self.columns:
            found.append(column.decode(values[:, at : at + len(column.names)]))
            at += len(column.names)
        names = [column.name for column in self.columns]
        return [dict(zip(names, cells, strict=True)) for cells in zip(*found, strict=True)]

    def space(self, change: Mapping[str, Mapping[str, Any]] | None = None, **more: Any) -> Space:
        """What may change: kinds and ends as the table has them, categories as one-hot groups.

        change  by column, what a Space says by feature: {"sex": {"direction": "none"}, "age": {"around": 5}}
        more    further arguments of the Space, by feature
        """
        given: dict[str, Any] = {"kind": {}, "lower": {}, "upper": {}}
        for column in self.columns:
            flag = (column.kind, column.lower, column.upper) == ("integer", 0, 1)
            kind = "binary" if flag or column.words else column.kind
            said = {"kind": kind, **({} if kind == "binary" else {"lower": column.lower, "upper": column.upper})}
            for option, value in {**said, **(change or {}).get(column.name, {})}.items():
                if option not in OPTIONS:
                    raise DataError(f"change of {column.name!r}: there is no {option!r}; allowed: {', '.join(OPTIONS)}")
                given.setdefault(option, {}).update(dict.fromkeys(column.names, _plain(value)))
        for name in change or {}:
            if name not in [column.name for column in self.columns]:
                raise DataError(f"change: there is no column {name!r}; the columns are those of the encoder")
        groups = {column.name: column.names for column in self.columns if column.words}
        try:
            return Space(names=self.names, one_hot=groups, **given, **more)
        except ValueError as error:
            raise DataError(f"change: {error}") from None

    def scaler(self) -> Standardize:
        """A layer that standardises numbers and leaves categories as they are."""
        layer = Standardize(len(self.names))
        layer.mean[:] = torch.tensor([column.mean for column in self.columns for _ in column.names])
        layer.deviation[:] = torch.tensor([column.deviation for column in self.columns for _ in column.names])
        return layer

    def save(self, path: str | Path) -> None:
        """Write the encoder as JSON."""
        held = {"format": FORMAT, "columns": [asdict(column) for column in self.columns]}
        with replacing(Path(path)) as part:
            part.write_text(json.dumps(held, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: str | Path) -> Encoder:
        """An encoder that `save` wrote."""
        try:
            held = json.loads(Path(path).read_text(encoding="utf-8"))
            if held["format"] != FORMAT:
                raise DataError(f"its format is {shown(held['format'])!r}, not {FORMAT!r}")
            columns = [EncodedColumn(**{**column, "words": tuple(column["words"])}) for column in held["columns"]]
            names = [name for column in columns for name in column.names]
            if len(set(names)) < len(names) or not names or not all(isinstance(name, str) for name in names):
                raise DataError("its columns are not called each in its own way")
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DataError(
                f"{path}: no encoder can be read from it ({one_line(error)}); save one with save()"
            ) from None
        return cls(tuple(columns))


def _plain(value: Any) -> Any:
    """A whole number without its point, as people write it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
