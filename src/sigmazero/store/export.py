"""Write a store as one flat file: a line for each sample, with what identifies its cell on every line.

Numbers come back exactly: floats are written as their shortest exact text, failures as inf. JSON knows neither
infinity nor NaN, so there they are the texts "inf", "-inf" and "nan", which `float` reads.
"""

from __future__ import annotations

import csv
import importlib
import json
import math
from collections.abc import Iterator
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.files import replacing
from sigmazero.core.messages import harmless
from sigmazero.core.result import Outcome
from sigmazero.store.facts import COLUMNS, KINDS
from sigmazero.store.store import Store

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
LEAST = "least"  # the changes that are proved to be needed, where there is a proof
CHANGES = ("index", "value")
OUTCOMES = [outcome.name.lower() for outcome in Outcome]
Part = tuple[dict[str, Any], dict[str, list[Any]]]  # the columns of a cell, and those of its samples


def export(store: Store, path: str | PathLike[str], perturbations: bool = False) -> int:
    """Write every stored sample to a .csv, .jsonl or .parquet file, whole or not at all; return their number.

    With `perturbations` there are two more columns, `index` and `value`: the changed features and their new values
    (lists; in CSV numbers with spaces between). Memory holds one cell at a time.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder; name a file in it, such as {target / 'samples.csv'}")
    if target.exists() and target.samefile(store.path):
        raise ValueError(f"{target} is the store itself; name another file")
    write = {"": _csv, ".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}.get(target.suffix)
    if write is None:
        raise ValueError(f"cannot export to {target.name}: name a file that ends in .csv, .jsonl or .parquet")
    with replacing(target) as part:
        count = write(part, _parts(store, perturbations), names(perturbations))
        if not count:
            raise ValueError(f"{store.path} holds no samples yet, so there is nothing to export; run its plan first")
    return count


def names(perturbations: bool = False) -> list[str]:
    """Return the columns of an export, in order."""
    return [*CELL, *COLUMNS, LEAST, *(CHANGES if perturbations else ())]


def _parts(store: Store, perturbations: bool) -> Iterator[Part]:
    """Yield the columns of every cell that has samples, as plain Python values."""
    for info in store.cells():
        facts = store.facts(info.key, perturbations)
        if not len(facts):
            continue
        same = {name: getattr(info, "key" if name == "cell" else name) for name in CELL}
        same["parameters"] = json.dumps(_finite(info.parameters), sort_keys=True, allow_nan=False)
        columns: dict[str, list[Any]] = {name: getattr(facts, name).tolist() for name in COLUMNS}
        columns["outcome"] = [OUTCOMES[number] for number in columns["outcome"]]
        least = store.proved(info.key)
        columns[LEAST] = [None] * len(facts) if least is None else [bound or None for bound in least.tolist()]
        for name in CHANGES if perturbations else ():
            flat = getattr(facts, name).tolist()
            columns[name] = [flat[start:end] for start, end in pairwise(facts.offsets.tolist())]
        yield same, columns


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Write the numbers that JSON lacks as texts."""
    lacking = {name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)}
    return values | {name: str(values[name]) for name in lacking}


def _csv(path: Path, parts: Iterator[Part], header: list[str]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for same, columns in parts:
            for name in CHANGES & columns.keys():
                columns[name] = [" ".join(map(repr, each)) for each in columns[name]]
            first = [harmless(value) if isinstance(value, str) else value for value in same.values()]
            writer.writerows([*first, *line] for line in zip(*columns.values(), strict=True))
            count += len(columns[LEAST])
    return count


def _jsonl(path: Path, parts: Iterator[Part], header: list[str]) -> int:
    del header
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for same, columns in parts:
            first = json.dumps({**same, "parameters": json.loads(same["parameters"])}, allow_nan=False)[:-1]
            for line in zip(*columns.values(), strict=True):
                sample = _finite(dict(zip(columns, line, strict=True)))
                file.write(f"{first}, {json.dumps(sample, allow_nan=False)[1:]}\n")
            count += len(columns[LEAST])
    return count


def _parquet(path: Path, parts: Iterator[Part], header: list[str]) -> int:
    try:
        # By name, as it is an extra that type checkers need not know.
        pa, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError("parquet files need pyarrow: pip install pyarrow, or export to csv or jsonl") from error
    kinds = {name: pa.type_for_alias(kind) for name, kind in CELL.items()}
    kinds |= {name: pa.float64() if kind is np.float64 else pa.int64() for name, kind in KINDS.items()}
    kinds |= {"outcome": pa.string(), LEAST: pa.int64(), "index": pa.list_(pa.int64()), "value": pa.list_(pa.float64())}
    schema = pa.schema([(name, kinds[name]) for name in header])
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for same, columns in parts:
            size = len(columns[LEAST])
            arrays = {name: pa.repeat(pa.scalar(value, kinds[name]), size) for name, value in same.items()}
            arrays |= {name: pa.array(values, kinds[name]) for name, values in columns.items()}
            writer.write_table(pa.table(arrays, schema=schema))
            count += size
    return count
