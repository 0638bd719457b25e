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
from itertools import islice, pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.files import replacing
from sigmazero.core.messages import harmless
from sigmazero.core.result import Outcome
from sigmazero.store.facts import COLUMNS, KINDS
from sigmazero.store.store import Store

# Columns that are the same on every line of a cell.
CELL = (
    *("cell", "model", "dataset", "attack", "parameters", "version", "steps", "unit", "goal", "budget", "seed"),
    *("precision", "space", "model_sha256", "data_hash"),
)
LEAST = "least"  # the changes that are proved to be needed, where there is a proof
CHANGES = ("index", "value")
OUTCOMES = [outcome.name.lower() for outcome in Outcome]
BATCH = 10_000  # samples that are written to a Parquet file at a time
Records = Iterator[dict[str, Any]]


def export(store: Store, path: str | PathLike[str], perturbations: bool = False) -> int:
    """Write every stored sample to a .csv, .jsonl or .parquet file, whole or not at all; return their number.

    With `perturbations` there are two more columns, `index` and `value`: the changed features and their new values
    (lists; in CSV numbers with spaces between).
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
        count = write(part, _records(store, perturbations), names(perturbations))
        if not count:
            raise ValueError(f"{store.path} holds no samples yet, so there is nothing to export; run its plan first")
    return count


def names(perturbations: bool = False) -> list[str]:
    """Return the columns of an export, in order."""
    return [*CELL, *COLUMNS, LEAST, *(CHANGES if perturbations else ())]


def _records(store: Store, perturbations: bool) -> Records:
    """Yield every sample as plain Python values by column."""
    for info in store.cells():
        facts = store.facts(info.key, perturbations)
        if not len(facts):
            continue
        same = {name: getattr(info, "key" if name == "cell" else name) for name in CELL}
        same["parameters"] = _finite(info.parameters)
        columns: dict[str, list[Any]] = {name: getattr(facts, name).tolist() for name in COLUMNS}
        columns["outcome"] = [OUTCOMES[number] for number in columns["outcome"]]
        least = store.proved(info.key)
        columns[LEAST] = [None] * len(facts) if least is None else [bound or None for bound in least.tolist()]
        for name in CHANGES if perturbations else ():
            flat = getattr(facts, name).tolist()
            columns[name] = [flat[start:end] for start, end in pairwise(facts.offsets.tolist())]
        for line in zip(*columns.values(), strict=True):
            yield same | dict(zip(columns, line, strict=True))


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Write the numbers that JSON lacks as texts."""
    lacking = {name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)}
    return values | {name: str(values[name]) for name in lacking}


def _csv(path: Path, records: Records, header: list[str]) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for record in records:
            writer.writerow(map(_cell, record.values()))
            count += 1
    return count


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, list):
        return " ".join(map(repr, value))
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value


def _jsonl(path: Path, records: Records, header: list[str]) -> int:
    del header
    count = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for record in records:
            file.write(f"{json.dumps(_finite(record), allow_nan=False)}\n")
            count += 1
    return count


def _parquet(path: Path, records: Records, header: list[str]) -> int:
    try:
        # By name, as it is an extra that type checkers need not know.
        pa, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ImportError("parquet files need pyarrow: pip install pyarrow, or export to csv or jsonl") from error
    whole = {"version", "steps", "budget", "seed", LEAST, *(name for name, kind in KINDS.items() if kind == np.int64)}
    kinds = {name: pa.int64() if name in whole else pa.float64() if name in KINDS else pa.string() for name in header}
    kinds |= {"outcome": pa.string(), "index": pa.list_(pa.int64()), "value": pa.list_(pa.float64())}
    schema = pa.schema([(name, kinds[name]) for name in header])
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        while some := list(islice(records, BATCH)):
            for record in some:
                record["parameters"] = json.dumps(record["parameters"], sort_keys=True)
            writer.write_table(pa.Table.from_pylist(some, schema))
            count += len(some)
    return count
