"""A store as one flat file: a line per sample, with what identifies its cell on every line.

Numbers come back exactly: floats are written as their shortest exact text, failures as inf. JSON knows neither
infinity nor NaN, so there they are the texts "inf", "-inf" and "nan", which `float` reads.
"""

from __future__ import annotations

import csv
import importlib
import json
import math
from collections.abc import Iterator
from itertools import pairwise, repeat
from os import PathLike
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from sigmazero.core.files import replacing
from sigmazero.core.messages import harmless
from sigmazero.core.result import Outcome
from sigmazero.store.facts import COLUMNS, KINDS, CellInfo, Facts, Integers
from sigmazero.store.store import Store

Format = Literal["csv", "jsonl", "parquet"]
FORMATS: tuple[str, ...] = get_args(Format)

# Columns that are the same on every line of a cell, with their types in Parquet; `parameters` is a JSON text.
CELL = {
    "cell": "string",
    "model": "string",
    "dataset": "string",
    "attack": "string",
    "parameters": "string",
    "version": "int64",
    "steps": "int64",
    "unit": "string",
    "goal": "string",
    "budget": "int64",
    "seed": "int64",
    "precision": "string",
    "space": "string",
    "model_sha256": "string",
    "data_hash": "string",
}
LEAST = "least"  # the changes that are proved to be needed, if somebody proved something
CHANGES = ("index", "value")
OUTCOMES = [outcome.name.lower() for outcome in Outcome]
Sampled = tuple[CellInfo, Facts, Integers | None]
FLOATS = [name for name, kind in KINDS.items() if kind is np.float64]


def export(store: Store, path: str | PathLike[str], to: Format = "csv", perturbations: bool = False) -> int:
    """Write every stored sample to a file, which appears whole or not at all; returns how many there were.

    With `perturbations` there are two columns more, `index` and `value`: the changed features and what they became
    (lists; in CSV numbers with spaces between). One cell is held in memory at a time.
    """
    write = {"csv": _csv, "jsonl": _jsonl, "parquet": _parquet}[known(to)]
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it, such as {target / f'samples.{to}'}")
    if target.exists() and target.samefile(store.path):
        raise ValueError(f"{target} is the store itself; name another file")
    cells = (
        (info, facts, store.proved(info.key))
        for info in store.cells()
        if len(facts := store.facts(info.key, perturbations))
    )
    with replacing(target) as part:
        count = write(part, cells, perturbations)
        if not count:
            raise ValueError(f"{store.path} holds no samples yet, so there is nothing to export; run its plan first")
    return count


def known(to: str) -> Format:
    """The name of a format, if it is one."""
    if to not in FORMATS:
        raise ValueError(f"cannot export to {to!r}: choose one of {', '.join(FORMATS)}")
    return cast("Format", to)


def names(perturbations: bool = False) -> list[str]:
    """The columns of an export, in order."""
    return [*CELL, *COLUMNS, LEAST, *(CHANGES if perturbations else ())]


def _cell(info: CellInfo) -> dict[str, Any]:
    fields = {name: getattr(info, "key" if name == "cell" else name) for name in CELL}
    return fields | {"parameters": json.dumps(_worded(info.parameters), sort_keys=True, allow_nan=False)}


def _worded(values: dict[str, Any]) -> dict[str, Any]:
    """The same with words for the numbers that JSON lacks."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }


def _columns(facts: Facts, least: Integers | None, perturbations: bool) -> dict[str, list[Any]]:
    """The columns of the samples as plain Python values."""
    columns = {name: getattr(facts, name).tolist() for name in COLUMNS}
    columns["outcome"] = [OUTCOMES[code] for code in columns["outcome"]]
    columns[LEAST] = [None] * len(facts) if least is None else [bound or None for bound in least.tolist()]
    if perturbations:
        ends = facts.offsets.tolist()
        for name in CHANGES:
            flat = getattr(facts, name).tolist()
            columns[name] = [flat[start:end] for start, end in pairwise(ends)]
    return columns


def _csv(path: Path, cells: Iterator[Sampled], perturbations: bool) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names(perturbations))
        for info, facts, least in cells:
            columns = _columns(facts, least, perturbations)
            for name in CHANGES if perturbations else ():
                columns[name] = [" ".join(map(repr, each)) for each in columns[name]]
            same = [harmless(value) if isinstance(value, str) else value for value in _cell(info).values()]
            writer.writerows(zip(*map(repeat, same), *columns.values(), strict=False))
            count += len(facts)
    return count


def _jsonl(path: Path, cells: Iterator[Sampled], perturbations: bool) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for info, facts, least in cells:
            # The cell's part of the line is the same on all, and so is written once.
            start = json.dumps({**_cell(info), "parameters": _worded(info.parameters)}, allow_nan=False)[:-1]
            columns = _columns(facts, least, perturbations)
            for values in zip(*columns.values(), strict=True):
                sample = _worded(dict(zip(columns, values, strict=True)))
                file.write(f"{start}, {json.dumps(sample, allow_nan=False)[1:]}\n")
            count += len(facts)
    return count


def _parquet(path: Path, cells: Iterator[Sampled], perturbations: bool) -> int:
    try:
        # By name, as it is an extra that type checkers need not know.
        pa, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError("parquet files need pyarrow: pip install pyarrow, or export to csv or jsonl") from error
    kinds = {name: pa.type_for_alias(kind) for name, kind in CELL.items()}
    kinds |= {name: pa.int64() for name in COLUMNS} | {"outcome": pa.string()}
    kinds |= {**dict.fromkeys(FLOATS, pa.float64()), LEAST: pa.int64()}
    if perturbations:
        kinds |= {"index": pa.list_(pa.int64()), "value": pa.list_(pa.float64())}
    schema = pa.schema([(name, kinds[name]) for name in names(perturbations)])
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for info, facts, least in cells:
            same = {name: pa.repeat(pa.scalar(value, kinds[name]), len(facts)) for name, value in _cell(info).items()}
            own = {
                name: pa.array(values, kinds[name]) for name, values in _columns(facts, least, perturbations).items()
            }
            writer.write_table(pa.table({**same, **own}, schema=schema))
            count += len(facts)
    return count
