"""A store of each schema there ever was opens, for reading without being written to, and for writing."""

import json
import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from sigmazero.bench.adopt import adopt
from sigmazero.bench.cells import Loader, expand
from sigmazero.bench.inputs import clean_rows
from sigmazero.bench.plan import read_plan
from sigmazero.bench.run import execute
from sigmazero.bench.verify import verify
from sigmazero.store import Store, StoreError, batches, migrations
from sigmazero.store.facts import COLUMNS, DEFAULTS
from sigmazero.store.migrations import SCHEMA
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.store.make_fixture import FIXTURES
from tests.store.test_store import cell, made

SCHEMAS = sorted(int(path.stem.removeprefix("schema-")) for path in FIXTURES.glob("schema-*.db"))


@pytest.fixture
def kept(tmp_path):
    """A copy of a store of some schema."""

    def copy(schema: int) -> Path:
        return Path(shutil.copy(FIXTURES / f"schema-{schema}.db", tmp_path / "kept.db"))

    return copy


def raw(path: Path, question: str):
    base = sqlite3.connect(path)
    try:
        return base.execute(question).fetchall()
    finally:
        base.close()


def contents(path: Path):
    """All that a store says, as it says it."""
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


def test_there_is_a_store_of_every_schema():
    assert list(range(1, SCHEMA + 1)) == SCHEMAS, "after raising the schema: python -m tests.store.make_fixture"
    for schema in SCHEMAS:
        assert raw(FIXTURES / f"schema-{schema}.db", "PRAGMA user_version") == [(schema,)]


def test_a_new_store_has_the_tables_of_its_schema(tmp_path):
    Store(tmp_path / "new.db", write=True).close()
    tables = "SELECT name, sql FROM sqlite_master ORDER BY name"
    same = raw(tmp_path / "new.db", tables) == raw(FIXTURES / f"schema-{SCHEMA}.db", tables)
    assert same, "the tables changed: add a step to the migrations, do not edit one"


@pytest.mark.parametrize("schema", SCHEMAS)
def test_it_is_read_without_being_written_to(kept, schema):
    path = kept(schema)
    before = path.read_bytes()
    held = contents(path)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["kept.db"]
    assert sum(len(one) for one in held["positions"]) >= 25
    assert len(held["traces"]) == 1
    assert len(held["findings"]) >= 5
    assert sum(one is not None for one in held["inputs"]) == (1 if schema < 4 else 2)
    if schema == SCHEMA:
        assert [1, 2, 4] in held["positions"]
        assert sum(one is not None for one in held["answers"]) == 7
        assert len(held["proofs"]) == 1
    assert ([1, 0, 0, 0, 0] in held["proved"]) == (schema >= 5)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_it_is_read_where_nothing_may_be_written(kept, monkeypatch, schema):
    path = kept(schema)
    held = contents(path)
    path.parent.chmod(0o555)
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda p, mode, **k: mode != os.W_OK and allowed(p, mode, **k))  # root may
    try:
        assert contents(path) == held
    finally:
        path.parent.chmod(0o755)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_it_is_migrated_once_when_it_is_written_to(kept, schema):
    path = kept(schema)
    held = contents(path)
    for _ in range(2):
        with Store(path, write=True) as store:
            assert store.audit() == []
            notes = store.notes()
    assert raw(path, "PRAGMA user_version") == [(SCHEMA,)]
    assert contents(path) == held
    assert len(notes) == (schema < 2)
    if notes:
        assert "the first 10 batches were taken when the store was migrated to schema 2" in notes[0]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_it_can_be_verified_and_reported(kept, sigmazero, schema):  # noqa: F811
    pytest.importorskip("mlxtend")
    path = kept(schema)
    with Store(path) as store:
        done = verify(store, Loader())
        given = next(info for info in store.cells() if info.dataset == "given")
        assert clean_rows(store, given, Loader()).content_hash == given.data_hash
    assert done.rows >= 21
    assert sum("checksums" in note for note in done.notes) == (schema < 2)
    assert not list(map(str, done.disagreements))
    assert [one.cell.model for one in done.skipped if one.cell] == ["given-net"] * (1 if schema < 4 else 2)
    for command in (["report", str(path), "--to", "markdown"], ["status", str(path)]):
        said = sigmazero(*command)
        assert said.exit_code == 0, said.output
        assert "sigma-zero" in said.stdout


def test_the_same_plan_goes_on_with_what_the_version_before_stored(kept):
    pytest.importorskip("mlxtend")
    path, loader = kept(1), Loader()
    old = contents(path)
    cells, missing = expand(read_plan(FIXTURES / "plan.toml").questions, loader)
    assert not missing
    with Store(path, write=True) as store:
        adopted = adopt(cells, store)
        assert adopted == 2  # of the zoo; the code of other models was not covered by the keys of those days
        assert adopt(cells, store) == 0
        assert execute(cells, store, loader).rows == 11
        assert execute(cells, store, loader).rows == 0
        assert store.audit() == []
        for cell, facts in zip(cells[:2], old["facts"][:2], strict=True):
            assert {n: v.tobytes() for n, v in vars(store.facts(cell.info.key)).items()} == facts
        assert len(store.cells()) == 9
        assert not verify(store, loader).disagreements


def test_stores_from_before_traces_and_kept_inputs(kept):
    path = kept(1)
    base = sqlite3.connect(path)
    for table in ("traces", "doctor", "inputs"):
        base.execute(f"DROP TABLE {table}")
    base.commit()
    base.close()
    for write in (False, True):
        with Store(path, write=write) as store:
            info = store.cells()[0]
            assert not store.traced(info.key).any()
            with pytest.raises(KeyError, match=r"no trace of row 1 .* trace = true"):
                store.trace(info.key, 1)
            assert store.inputs(info.data_hash) is None
            assert store.findings() == {}
            assert len(store.facts(info.key)) == 5


def test_a_migration_that_is_cut_off_leaves_the_store_as_it_was(kept, monkeypatch):
    path, (first, second, *_) = kept(1), migrations.STEPS
    held = contents(path)

    def fails(base):
        second(base)
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "STEPS", (first, fails))
        with pytest.raises(StoreError, match="disk"):
            Store(path, write=True)
    assert raw(path, "PRAGMA user_version") == [(1,)]
    assert contents(path) == held


def test_a_description_that_no_version_could_read_does_not_hide_the_others(kept):
    path = kept(1)
    base = sqlite3.connect(path)
    base.execute("UPDATE cells SET info = '{]' WHERE id = 2")
    base.commit()
    base.close()
    with Store(path) as store:
        keys = store.cell_keys()
        assert len(store.facts(keys[0])) == 5
        with pytest.raises(StoreError, match="its description: cannot be read"):
            store.cell(keys[1])
        assert any("cannot be read" in str(one) for one in verify(store, Loader(), keys=keys[:0]).disagreements)


def test_a_column_that_came_later_has_its_default(tmp_path, monkeypatch):
    """As if `step_found` were a new column: batches from before it are not damaged."""
    few, some = tuple(name for name in COLUMNS if name != "step_found"), made(8)
    with Store(tmp_path / "s.db", write=True) as store:
        store.register([cell()])
        run = store.begin({})
        with monkeypatch.context() as patched:
            patched.setattr(batches, "COLUMNS", few)
            store.append("k", 0, some, run=run)
        store.append("k", 8, some, run=run)
        with pytest.raises(StoreError, match="lacks the column step_found"):
            store.facts("k")
        monkeypatch.setitem(DEFAULTS, "step_found", -1)
        found = store.facts("k")
    assert found.step_found.tolist() == [-1] * 8 + some.step_found.tolist()
    assert found.margin.tolist() == some.margin.tolist() * 2


def test_spaces_and_costs_came_with_schema_4(kept):
    with Store(kept(3)) as before:
        assert {info.space_text for info in before.cells()} == {None}
        assert all(np.isnan(before.facts(key).cost).all() for key in before.cell_keys())
        keys = set(before.cell_keys())
    with Store(kept(4)) as now:
        assert keys <= set(now.cell_keys())  # a question without a space has the key it always had
        (info,) = (info for info in now.cells() if info.space_text is not None)
        facts = now.facts(info.key)
    assert info.about["names"] == ["a", "b", "c", "d"]
    assert info.space_text is not None
    assert '[feature."d"]\ndirection = "none"' in info.space_text
    assert (facts.cost[facts.success] >= facts.l0[facts.success]).all()
    assert np.isfinite(facts.cost[facts.success]).all()
