"""A damaged store is copied as far as it can be read, and what was lost is said; the damaged one stays as it is."""

import random
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from sigmazero.store import Store, StoreError
from sigmazero.store.checksums import TABLES, blob_sum, is_whole, selected
from sigmazero.store.log import beside
from sigmazero.store.repair import repair
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import PLAN, contents, run
from tests.store.test_alterations import sound  # noqa: F401
from tests.store.test_log import moments  # noqa: F401

pytestmark = pytest.mark.slow

PAGE = 4096


def facts(path: Path) -> dict[str, dict[int, list[bytes]]]:
    """Everything known of each row, by cell and position."""
    found: dict[str, dict[int, list[bytes]]] = {}
    with Store(path) as store:
        for key in store.cell_keys():
            held = store.facts(key)
            found[key] = {
                int(place): [np.asarray(values).tobytes() for values in vars(held.take(slice(i, i + 1))).values()]
                for i, place in enumerate(store.positions(key))
            }
    return found


def readable(path: Path, copy: Path, batches: list[int]) -> set[int]:
    """The batches that SQLite itself can still read, whole."""
    raw = path.read_bytes()
    copy.write_bytes(raw.ljust(int.from_bytes(raw[28:32], "big") * PAGE if len(raw) > PAGE else 0, b"\0"))
    base, found = sqlite3.connect(copy), set()
    base.text_factory = lambda text: text.decode(errors="surrogateescape")
    for batch in batches:
        try:
            row = base.execute(f"SELECT {selected('batches')} FROM batches WHERE id = ?", (batch,)).fetchone()
            cell = base.execute(f"SELECT {selected('cells')} FROM cells WHERE id = ?", (row[1],)).fetchone()
            blobs = base.execute("SELECT columns, changes FROM facts WHERE batch = ?", (batch,)).fetchone()
        except (sqlite3.DatabaseError, TypeError, UnicodeDecodeError):
            continue
        if cell is None or blobs is None or not is_whole("cells", None, cell) or not is_whole("batches", cell[1], row):
            continue
        if tuple(map(blob_sum, blobs)) == row[-3:-1]:
            found.add(batch)
    base.close()
    return found


def cut(raw: bytearray, g: random.Random) -> None:
    del raw[g.randrange(PAGE, len(raw)) :]


def flip(raw: bytearray, g: random.Random) -> None:
    for _ in range(g.randrange(1, 30)):
        raw[g.randrange(len(raw))] ^= 1 << g.randrange(8)


def blank(raw: bytearray, g: random.Random) -> None:
    for _ in range(g.randrange(1, 4)):
        start = g.randrange(len(raw) // PAGE) * PAGE
        raw[start : start + PAGE] = bytes(PAGE)


def noise(raw: bytearray, g: random.Random) -> None:
    start = g.randrange(len(raw))
    raw[start : start + 2000] = g.randbytes(len(raw[start : start + 2000]))


def swap(raw: bytearray, g: random.Random) -> None:
    one, two = (PAGE * g.randrange(len(raw) // PAGE) for _ in range(2))
    raw[one : one + PAGE], raw[two : two + PAGE] = raw[two : two + PAGE], raw[one : one + PAGE]


def head(raw: bytearray, g: random.Random) -> None:
    raw[g.randrange(100)] = g.randrange(256)


def test_whatever_is_damaged_what_is_copied_is_right(sound, tmp_path):  # noqa: F811
    whole, known = sound.read_bytes(), facts(sound)
    base = sqlite3.connect(sound)
    owners = {
        batch: (key, range(start, stop))
        for batch, key, start, stop in base.execute(
            "SELECT batches.id, key, start, stop FROM batches JOIN cells ON cells.id = cell"
        )
    }
    base.close()
    damaged, new, copied, lost = tmp_path / "damaged.db", tmp_path / "new.db", 0, 0
    for seed in range(120):
        g = random.Random(seed)
        raw = bytearray(whole)
        (cut, flip, blank, noise, swap, head)[seed % 6](raw, g)
        damaged.write_bytes(raw)
        new.unlink(missing_ok=True)
        try:
            done = repair(damaged, new)
        except StoreError:  # no description of a cell is left
            assert not new.exists()
            assert not readable(damaged, tmp_path / "read.db", list(owners))
            lost += 1
            continue
        assert damaged.read_bytes() == raw
        with Store(new) as store:
            assert store.audit() == []
        held = facts(new)
        for key, rows in held.items():
            assert rows.items() <= known[key].items(), seed
        for batch in readable(damaged, tmp_path / "read.db", list(owners)):
            key, places = owners[batch]
            assert set(places) & known[key].keys() <= held[key].keys(), (seed, batch)
        assert {one.info.key: one.rows for one in done.cells} == {key: len(rows) for key, rows in held.items()}
        missing = sum(len(rows) for rows in known.values()) - sum(len(rows) for rows in held.values())
        assert not missing or not done.whole, seed
        copied += 1
    assert copied > 100 > lost
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged.db", "new.db", "read.db"]


def test_a_whole_store_is_copied_whole(sound, tmp_path):  # noqa: F811
    done = repair(sound, tmp_path / "new.db")
    assert done.whole, done.lost
    assert facts(tmp_path / "new.db") == facts(sound)
    tables = [table for table in TABLES if table not in ("writer", "progress")]
    kept = [
        {t: sorted(sqlite3.connect(path).execute(f"SELECT * FROM {t}")) for t in tables if t != "cells"}
        for path in (sound, tmp_path / "new.db")
    ]
    assert kept[0] == kept[1]


@pytest.mark.parametrize("table", [*TABLES, "facts", "seals"])
def test_without_a_table(sound, tmp_path, table):  # noqa: F811
    path = Path(shutil.copy(sound, tmp_path / "s.db"))
    base = sqlite3.connect(path)
    base.execute(f"DROP TABLE {table}")
    base.close()
    new = tmp_path / "new.db"
    with pytest.raises(StoreError, match=f"lacks the table {table}.*sigmazero repair"):
        Store(path)
    if table == "cells":
        with pytest.raises(StoreError, match="no description of a cell"):
            repair(path, new)
        return
    repair(path, new)  # a dropped table's pages may still be there, and are as good as ever
    with Store(new) as store:
        assert store.audit() == []
        assert len(store.cell_keys()) == 4


def test_the_first_page_holds_no_rows_and_nothing_is_lost_with_it(sound, tmp_path):  # noqa: F811
    (tmp_path / "s.db").write_bytes(bytes(PAGE) + sound.read_bytes()[PAGE:])
    assert repair(tmp_path / "s.db", tmp_path / "new.db").whole
    assert facts(tmp_path / "new.db") == facts(sound)


def test_with_the_log_of_a_killed_run(moments, tmp_path):  # noqa: F811
    for place, path in enumerate(moments[:8]):
        before = path.read_bytes(), beside(path).exists() and beside(path).read_bytes()
        new = tmp_path / f"new-{place}.db"
        assert repair(path, new).whole
        assert (path.read_bytes(), beside(path).exists() and beside(path).read_bytes()) == before
        assert facts(new) == facts(path)
    shutil.copy(beside(moments[1]), beside(moments[9]))  # of another copy: said, and nothing of the store is lost
    done = repair(moments[9], tmp_path / "other.db")
    assert "s.db-wal" in done.lost[0]
    beside(moments[9]).unlink()
    assert facts(tmp_path / "other.db") == facts(moments[9])


def test_altered_batches_are_not_copied_and_run_again(folder, sigmazero):  # noqa: F811
    cells, _, _ = run(PLAN, "s.db")
    whole = contents("s.db")
    base = sqlite3.connect("s.db")
    base.execute("UPDATE batches SET seconds = 1 WHERE id = (SELECT min(id) FROM batches WHERE cell = 2)")
    base.execute("UPDATE facts SET columns = changes WHERE batch = (SELECT max(id) FROM batches WHERE cell = 2)")
    base.commit()
    base.close()
    before = Path("s.db").read_bytes()
    done = sigmazero("repair", "s.db", "-o", "new.db")
    assert done.exit_code == 1, done.output
    assert f"of 24 rows of fmn against net.py:build on mine [{cells[1].info.key[:12]}]" in done.stderr
    assert "rows of 6 cells copied" in done.stdout
    assert Path("s.db").read_bytes() == before
    refused = sigmazero("repair", "s.db", "-o", "new.db")
    assert refused.exit_code == 2
    assert "new.db exists, and nothing is written over it" in refused.stderr
    run(PLAN, "new.db")
    again = contents("new.db")
    assert again.keys() == whole.keys()
    assert all(np.array_equal(again[key]["l0"], whole[key]["l0"]) for key in whole)
    healthy = sigmazero("repair", "new.db", "-o", "third.db")
    assert healthy.exit_code == 0, healthy.output
    assert healthy.stderr == ""


@pytest.mark.parametrize("content", [b"", b"a text", b"SQLite format 3\0", bytes(5000), b"\r" * 20000])
def test_what_is_no_store(tmp_path, content):
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(StoreError, match="no description of a cell with its checksum"):
        repair(tmp_path / "s.db", tmp_path / "new.db")
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]
    with pytest.raises(FileNotFoundError, match="there is no store"):
        repair(tmp_path / "none.db", tmp_path / "new.db")
