"""A store and the log beside it: both, one alone, and two that do not belong together."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from sigmazero.store import Store, StoreError
from sigmazero.store.log import beside, lacks_log, misfit, read_log
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import PLAN, run
from tests.store.test_store import cell, made

pytestmark = pytest.mark.slow

ROWS = 30


@pytest.fixture
def moments(tmp_path):
    """A store as its two files are on disk after each step of three runs, as if the run had been killed there."""
    path = tmp_path / "live" / "s.db"
    found: list[Path] = []

    def note() -> None:
        found.append(tmp_path / str(len(found)) / "s.db")
        found[-1].parent.mkdir()
        for source, target in ((path, found[-1]), (beside(path), beside(found[-1]))):
            if source.exists():
                shutil.copy(source, target)

    for session in range(3):
        with Store(path, write=True) as store:
            store.register([cell()])
            number = store.begin({"session": session})
            for step in range(4):
                store.append("k", (4 * session + step) * ROWS, made(ROWS, step), run=number)
                note()
        note()
    return found


def held(path: Path) -> int:
    with Store(path) as store:
        assert store.audit() == []
        return len(store.facts("k"))


def test_killed_at_any_moment_both_files_have_everything(moments):
    counts = [held(path) for path in moments]
    assert counts == [ROWS * n for n in (1, 2, 3, 4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 12, 12)]
    assert [beside(path).exists() for path in moments] == [True, True, True, True, False] * 3
    for path in moments:
        with Store(path, write=True):
            pass
        assert not beside(path).exists()
    assert [held(path) for path in moments] == counts


def test_opening_for_writing_folds_the_log_in(moments, tmp_path):
    store = Store(moments[3], write=True)
    alone = Path(shutil.copy(moments[3], tmp_path / "alone.db"))  # as if it had been killed now
    store.close()
    assert held(alone) == 4 * ROWS


def test_a_copy_without_its_log_says_so(moments, sigmazero):  # noqa: F811
    open_ones = [path for path in moments if beside(path).exists()]
    for path in open_ones:
        beside(path).unlink()
        assert lacks_log(path)
        with Store(path) as store:  # it knows what is to be run
            assert [one.cell.rows for one in store.status()] == [1000]
            assert any("no s.db-wal is here; if this is a copy" in note for note in store.notes())
        assert lacks_log(path)  # SQLite may have made an empty one
    for command in ("status", "verify"):
        assert "no s.db-wal is here; if this is a copy, that log has the last rows" in (
            sigmazero(command, open_ones[0]).stderr.replace("\n", " ")
        )
    assert "of 1000 rows" in sigmazero("status", open_ones[0]).stdout
    with Store(moments[4]) as store:
        assert not store.notes()


def test_a_file_that_was_never_folded_is_not_called_empty_alone(tmp_path):
    """All that was written is in the log."""
    path = tmp_path / "s.db"
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("PRAGMA journal_mode=WAL")
    base.execute("CREATE TABLE cells (id)")
    copy = Path(shutil.copy(path, tmp_path / "copy.db"))
    base.close()
    with pytest.raises(StoreError, match=r"is empty: its writer did not end in order, and no copy\.db-wal is here"):
        Store(copy)


def test_a_log_beside_another_copy_hides_nothing_unnoticed(moments, tmp_path):
    """Every file beside every other log: refused, noticed by checksums, or all that either of them has is there."""
    counts, folder = [held(path) for path in moments], tmp_path / "pair"
    refused = seen = 0
    alone = [held(Path(shutil.copy(path, tmp_path / f"{place}.db"))) for place, path in enumerate(moments)]
    pairs = [(file, log) for file in moments for log in moments if beside(log).exists()]
    for file, log in pairs:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        here = Path(shutil.copy(file, folder / "s.db"))
        shutil.copy(beside(log), beside(here))
        before = here.read_bytes(), beside(here).read_bytes()
        why = misfit(here)
        if why is None:
            with Store(here) as store:
                if store.audit():
                    seen += 1
                    continue
            assert held(here) == max(alone[moments.index(file)], counts[moments.index(log)]), (file, log)
            continue
        refused += 1
        for write in (False, True):
            with pytest.raises(StoreError, match="belongs to another copy of the store") as caught:
                Store(here, write=write)
            assert "move s.db-wal away" in str(caught.value)
        assert (here.read_bytes(), beside(here).read_bytes()) == before
        beside(here).unlink()
        with Store(here) as store:
            assert store.audit() == []
    assert refused > len(pairs) / 2
    assert seen < len(pairs) / 10
    assert not any(misfit(path) for path in moments)


def test_a_log_is_read_as_far_as_sqlite_reads_it(moments):
    path = moments[2]
    log, raw = read_log(path), beside(path).read_bytes()
    assert log is not None
    end = 32 + len(log.pages) * (24 + log.page_size)  # pages of an older log may follow
    for cut in (0, 31, 32, 500, end // 2, end - 1):
        beside(path).write_bytes(raw[:cut])
        less = read_log(path)
        assert less is None or less.pages == log.pages[: len(less.pages)] != log.pages
    for at in (0, 9, 17, 25, 40, 100, end // 2):
        flipped = bytearray(raw)
        flipped[at] ^= 4
        beside(path).write_bytes(flipped)
        less = read_log(path)
        assert less is None or len(less.pages) < len(log.pages)


def test_unfinished_cells_are_counted_by_a_check(folder, sigmazero):  # noqa: F811
    cells, _, _ = run(PLAN, "s.db")
    done = sigmazero("verify", "s.db", "--trust-code")
    assert done.exit_code == 0, done.output
    assert "rows are not stored" not in done.stderr
    with Store("s.db", write=True) as store:
        store.register([type(cells[0].info)(**{**vars(cells[0].info), "key": "f" * 64, "identity": {}})])
    done = sigmazero("verify", "s.db", "--trust-code")
    assert done.exit_code == 0, done.output
    assert "note: sigma-zero against net.py:build on mine [ffffffffffff]: 24 of 24 rows are not stored yet" in (
        done.stderr
    )
    assert "144 of 168 rows" in sigmazero("status", "s.db").stdout
