"""Whatever is altered in a store behind its back, or taken out of it, is noticed."""

import json
import random
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sigmazero.bench.cells import Loader
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.verify import verify
from sigmazero.core.result import Outcome
from sigmazero.store import Store, StoreError
from sigmazero.store.facts import COLUMNS
from sigmazero.store.pack import pack, unpack
from sigmazero.store.proofs import Proof, ProofKey, row_digests
from sigmazero.store.trace import Trace
from tests.helpers.networks import linear_problem

pytestmark = pytest.mark.slow

Change = Callable[[sqlite3.Connection], object]


def contents(path: Path) -> dict[str, Any]:
    """Everything that a store holds, as it gives it out."""
    with Store(path) as store:
        cells = store.cells()
        return {
            "cells": [info.text() for info in cells],
            "status": [(one.done, one.seconds, one.error, one.state) for one in store.status()],
            "provenance": [json.dumps(info.provenance) for info in cells],
            "facts": [{n: v.tobytes() for n, v in vars(store.facts(info.key)).items()} for info in cells],
            "positions": [store.positions(info.key).tolist() for info in cells],
            "traces": [
                store.trace(info.key, int(i)).pack() for info in cells for i in np.flatnonzero(store.traced(info.key))
            ],
            "findings": store.findings(),
            "failures": [vars(one) for one in store.failures()],
            "inputs": [store.inputs(info.data_hash) for info in cells],
            "proofs": [store.proofs(key) for key in store.proof_keys()],
            "proved": [None if (least := store.proved(info.key)) is None else least.tolist() for info in cells],
            "answers": [None if (a := store.answers(info.key)) is None else a.tolist() for info in cells],
        }


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A store with facts, failures, traces, findings, inputs, answers and a batch with gaps."""
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    model, x, y = linear_problem((3, 4, 5), 10)
    y[1] = (y[1] + 1) % 4
    two, clean = np.arange(2), np.random.default_rng(0).random((40, 50))
    trace = Trace(clean, np.array([1.0, -0.5]), two, two == 1, np.array([0, 0, 2]), two, np.zeros(2))
    done = evaluate(model.float(), (x.float(), y), ["sigma-zero", "fmn", "vfga"], store=path, steps=8, batch_size=4)
    with Store(path, write=True) as store:
        for key in done.keys:
            store.keep_answers(key, torch.rand(3, 4))
            store.append_trace(key, 2, trace)
        store.fail(done.keys[2], "RuntimeError: at the end")
        info = store.cell(done.keys[0])
        store.register([type(info)(**{**vars(info), "key": "f" * 64, "attack": "gaps"})])
        facts = store.facts(done.keys[0]).take(np.array([1, 4, 9]))
        facts.outcome[:] = Outcome.NOT_FOUND  # whatever they are, they must come back
        store.append("f" * 64, [1, 4, 9], facts, run=1, peak_device=12)
        about = ProofKey.of_cell(info)
        assert about is not None
        digests = row_digests(x.float(), y)
        store.keep_digests(info.data_hash, digests)
        store.prove(about, {row: Proof(1, "by hand", 1, 0.25) for row in (digests[0], digests[2])})
        assert store.audit() == []
    return path


@pytest.fixture
def altered(sound, tmp_path):
    """A copy of it with a change; the flaws that are found."""

    def alter(change: Change) -> list[str]:
        path = Path(shutil.copy(sound, tmp_path / "altered.db"))
        base = sqlite3.connect(path)
        change(base)
        base.commit()
        base.close()
        with Store(path) as store:
            told = [flaw.what for flaw in store.audit()]
            assert [str(one) for one in verify(store, Loader()).disagreements], "verify says nothing"
        return told

    return alter


def column(name: str, change: Callable[[Any], None]) -> Change:
    """Change one column of the first batch in which there is something to change."""

    def apply(base: sqlite3.Connection) -> None:
        for batch, blob in base.execute("SELECT batch, columns FROM facts"):
            parts = dict(zip(COLUMNS, (np.array(part) for part in unpack(blob)), strict=True))
            values = parts[name].astype(np.float64 if parts[name].dtype.kind == "f" else np.int64)
            change(values)
            parts[name] = values
            new = pack(list(parts.values()))
            if new != blob:
                base.execute("UPDATE facts SET columns = ? WHERE batch = ?", (new, batch))
                return
        raise AssertionError("there was nothing to change")

    return apply


def to(value: Any, old: Any = None) -> Callable[[Any], None]:
    """Set every entry, or those with the old value."""

    def change(values: Any) -> None:
        values[slice(None) if old is None else values == old] = value

    return change


def more(values: Any) -> None:
    values += 1


FACTS = {
    "forwards": column("forwards", more),
    "backwards": column("backwards", more),
    "seconds": column("seconds", to(0.25)),
    "step_found": column("step_found", more),
    "margin NaN": column("margin", to(np.nan)),
    "margin infinite": column("margin", to(np.inf)),
    "found as already": column("outcome", to(Outcome.ALREADY, Outcome.FOUND)),
    "already as found": column("outcome", to(Outcome.FOUND, Outcome.ALREADY)),
    "failure of another kind": column("outcome", to(Outcome.NO_START, Outcome.NOT_FOUND)),
    "success as failure": column("outcome", to(Outcome.NOT_FOUND, Outcome.FOUND)),
    "l0": column("l0", more),
    "label": column("label", more),
    "prediction": column("prediction", more),
}


@pytest.mark.parametrize("what", FACTS)
def test_facts(altered, what):
    assert any("the facts of rows" in one and "not as it was written" in one for one in altered(FACTS[what]))


def described(name: str, value: Any) -> Change:
    def apply(base: sqlite3.Connection) -> None:
        key, info = base.execute("SELECT key, info FROM cells").fetchone()
        held = json.loads(info)
        assert held[name] != value
        base.execute("UPDATE cells SET info = ? WHERE key = ?", (json.dumps(held | {name: value}, sort_keys=True), key))

    return apply


FIELDS: dict[str, Any] = {
    **{"attack": "x", "steps": 9, "model": "x", "dataset": "x", "unit": "pixel", "budget": 1, "seed": 1, "goal": "x"},
    **{"precision": "fp64", "parameters": {"steps": 8}, "version": 5, "rows": 9, "model_sha256": "x", "data_hash": "x"},
    **{"bounds": [0.0, 2.0], "identity": {}, "origin": {}, "key": "x"},
}


@pytest.mark.parametrize("name", FIELDS)
def test_descriptions(altered, name):
    assert any("the description of cell" in one for one in altered(described(name, FIELDS[name])))


ROWS = {
    "facts of two cells exchanged": (
        "UPDATE facts SET (columns, changes) = (SELECT columns, changes FROM facts AS other WHERE other.batch = "
        "CASE facts.batch WHEN 1 THEN 4 ELSE 1 END) WHERE batch IN (1, 4)"
    ),
    "batches of two cells exchanged": "UPDATE batches SET cell = -cell WHERE cell IN (1, 2) AND start = 0; "
    "UPDATE batches SET cell = 3 + cell WHERE cell < 0",
    "facts moved within a cell": "UPDATE batches SET start = 100 - start, stop = 104 - start WHERE id = 2",
    "another run": "UPDATE batches SET run = 7 WHERE id = 2",
    "a deleted batch": "DELETE FROM batches WHERE id = 2; DELETE FROM facts WHERE batch = 2",
    "the last batch deleted": "DELETE FROM facts WHERE batch = (SELECT max(id) FROM batches); DELETE FROM batches "
    "WHERE id = (SELECT max(id) FROM batches)",
    "a deleted cell": "DELETE FROM facts WHERE batch IN (SELECT id FROM batches WHERE cell = 2); DELETE FROM batches "
    "WHERE cell = 2; DELETE FROM traces WHERE cell = 2; DELETE FROM doctor WHERE cell = 2; DELETE FROM answers WHERE "
    "cell = 2; DELETE FROM cells WHERE id = 2",
    "a cell with nothing stored deleted": "DELETE FROM cells WHERE id = 4",
    "a deleted trace": "DELETE FROM traces WHERE cell = 1",
    "deleted findings": "DELETE FROM doctor WHERE cell = 1",
    "deleted answers": "DELETE FROM answers WHERE cell = 1",
    "deleted inputs": "DELETE FROM inputs",
    "a deleted run": "DELETE FROM runs",
    "facts without their batch": "INSERT INTO facts SELECT 99, columns, changes FROM facts WHERE batch = 1",
    "a batch without its facts": "DELETE FROM facts WHERE batch = 1",
    "a sum that is missing": "DELETE FROM seals WHERE name = 'batches'",
    "a sum too many": "INSERT INTO seals VALUES ('other', 0, x'00')",
    "a failure hidden": "DELETE FROM failures",
    "a failure made smaller": "UPDATE failures SET stop = 1",
    "answers of another cell": "UPDATE answers SET cell = -cell; UPDATE answers SET cell = 3 + cell WHERE cell > -3",
    "a proof that says more": "UPDATE proofs SET least = 2",
    "a proof of another model": "UPDATE proofs SET model = 'x'",
    "a deleted proof": "DELETE FROM proofs",
    "other rows proved": "UPDATE digests SET rows = zeroblob(160)",
    "traces exchanged": "UPDATE traces SET position = 3 WHERE cell = 1",
}


@pytest.mark.parametrize("what", ROWS)
def test_rows(altered, what):
    assert altered(lambda base: base.executescript(ROWS[what]))


def test_rows_of_an_older_copy_are_noticed(altered):
    """A batch that was replaced by itself as it once was: whole in itself, but not what was written last."""

    def restore(base: sqlite3.Connection) -> None:
        base.execute("UPDATE seals SET total = x'00000000000000000000000000000001' WHERE name = 'batches'")

    assert altered(restore) == ["the table batches has other rows than those written last"]


def test_reading_says_which_rows_of_which_cell(sound, tmp_path):
    path = Path(shutil.copy(sound, tmp_path / "a.db"))
    with Store(path) as store:
        keys = store.cell_keys()
    base = sqlite3.connect(path)
    FACTS["forwards"](base)
    (left,) = base.execute("SELECT sum(count) FROM batches WHERE cell = 2 AND start > 0").fetchone()
    base.execute("DELETE FROM batches WHERE cell = 2 AND start = 0")
    base.commit()
    base.close()
    with Store(path) as store:
        for perturbations in (True, False):
            with pytest.raises(
                StoreError, match=rf"cell {keys[0][:12]}: the facts of rows 0 up to \d+: not as .*; restore a copy"
            ):
                store.facts(keys[0], perturbations)
        with pytest.raises(StoreError, match=rf"cell {keys[1][:12]}: its facts: 10 rows were stored, there are {left}"):
            store.facts(keys[1])
        assert len(store.facts(keys[2])) == 10


def flipped(value: Any, bit: int) -> Any:
    """A value of a column with one bit changed; None becomes something."""
    if value is None:
        return 1
    if isinstance(value, int):
        return value ^ (1 << bit % 40)
    if isinstance(value, float):
        (bits,) = struct.unpack("<Q", struct.pack("<d", value))
        return struct.unpack("<d", struct.pack("<Q", bits ^ (1 << bit % 64)))[0]
    raw = bytearray(value)
    raw[bit // 8 % len(raw)] ^= 1 << bit % 8
    return bytes(raw)


def flips(path: Path, blobs: bool, most: int) -> list[tuple[str, str, int, int]]:
    """Table, column, row and bit of changes to make, at several places of every column of every table."""
    g, found = random.Random(0), []
    base = sqlite3.connect(path)
    tables = [name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
    for table in tables:
        rows = [row for (row,) in base.execute(f"SELECT rowid FROM {table}")]
        for name, kind in base.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall():
            if rows and (kind == "BLOB" or not blobs):
                found += [(table, name, g.choice(rows), g.randrange(10**6)) for _ in range(most)]
    base.close()
    return found


@pytest.mark.parametrize(("blobs", "most"), [(False, 4), (True, 25)])
def test_every_flipped_bit_in_every_column_is_noticed(sound, tmp_path, blobs, most):
    tried = 0
    for table, name, row, bit in flips(sound, blobs, most):
        path = Path(shutil.copy(sound, tmp_path / "a.db"))
        base = sqlite3.connect(path)
        base.text_factory = bytes
        base.execute("PRAGMA synchronous=OFF")
        kind, value = base.execute(f"SELECT typeof({name}), {name} FROM {table} WHERE rowid = ?", (row,)).fetchone()
        if kind == "blob" and not value:
            continue
        change = f"UPDATE {table} SET {name} = {'CAST(? AS TEXT)' if kind == 'text' else '?'} WHERE rowid = ?"
        try:
            base.execute(change, (flipped(value, bit), row))
            base.commit()
        except sqlite3.IntegrityError:  # what SQLite itself does not let happen
            continue
        finally:
            base.close()
        tried += 1
        with Store(path) as store:
            assert store.audit(), f"{table}.{name} of row {row}: bit {bit}"
    assert tried > 100


def test_flipped_bits_of_the_file_change_nothing_unnoticed(sound, tmp_path):
    held, whole, g, noticed = contents(sound), sound.read_bytes(), random.Random(1), 0
    for _ in range(150):
        raw = bytearray(whole)
        raw[g.randrange(len(raw))] ^= 1 << g.randrange(8)
        path = tmp_path / "a.db"
        path.write_bytes(raw)
        try:
            with Store(path) as store:
                wrong = bool(store.audit())
        except StoreError:
            wrong = True
        noticed += wrong
        assert wrong or contents(path) == held
    assert noticed > 50
