"""A sample of the changed files; `python -m tests.hard.fuzz` reads ten thousand for each reader."""

import os
import random
import signal
import time

import pytest

from tests.hard.bounded import ROOM
from tests.hard.fuzz import SECONDS, fuzz
from tests.hard.mutate import CHANGES, mutate
from tests.hard.readers import READERS, Reader, Seed

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

SEED = int(os.environ.get("SIGMAZERO_SEED", "0"))
COUNT = 10_000 if os.environ.get("HYPOTHESIS_PROFILE") == "nightly" else 150


def linger(path):
    end = time.process_time() + 1.2 * SECONDS
    while time.process_time() < end:
        pass


def complain(text):
    def read(path):
        raise ValueError(text)

    return read


def slip(path):
    try:
        assert not path
    except AssertionError as error:
        raise ValueError("the file is damaged") from error


# What a reader may not do, and what is said of it.
BAD = {
    "another error": (lambda path: os.environ["NO SUCH NAME"], "KeyError: 'NO SUCH NAME'"),
    "two lines": (complain("one\ntwo"), "says 'one\\ntwo'"),
    "a control character": (complain("\x1b[31m"), "says '\\x1b[31m'"),
    "memory": (lambda path: bytearray(2 * ROOM), "MemoryError"),
    "memory, in its own words": (complain("Unable to allocate 2 GiB"), "says 'Unable"),
    "its own mistake": (slip, "calls its own mistake damage"),
    "a program": (lambda path: os.system("true"), "did os.system"),
    "time": (linger, "took 1."),
    "the end of the process": (lambda path: os.kill(os.getpid(), signal.SIGKILL), "the process ended with status"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_a_reader_may_not_do_is_noticed(kind, monkeypatch):
    read, said = BAD[kind]
    monkeypatch.setitem(READERS, "bad", lambda: Reader([Seed("f", b"some bytes")], read, (ValueError,), {}))
    faults = fuzz("bad", range(2))
    assert [fault["file"] for fault in faults] == [0, 1]
    assert all(fault["fault"].startswith(said) for fault in faults), faults


@pytest.mark.parametrize("name", sorted(READERS))
def test_changed_files_are_read_or_refused_in_one_line(name):
    assert fuzz(name, range(SEED * COUNT, (SEED + 1) * COUNT)) == []


@pytest.mark.parametrize("name", sorted(READERS))
def test_the_good_files_are_read(name, tmp_path):
    reader = READERS[name]()
    for number, seed in enumerate(reader.seeds):
        folder = tmp_path / str(number)
        folder.mkdir()
        for other, content in reader.beside.items():
            if not seed.name.startswith(other):
                (folder / other).write_bytes(content)
        (folder / seed.name).write_bytes(seed.wrap(seed.data))
        reader.read(folder / seed.name)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_every_change_changes_something_and_survives_an_empty_file(change):
    data = bytes(range(256)) * 4
    results = set()
    for seed in range(20):
        changed = bytearray(data)
        change(changed, random.Random(seed))
        results.add(bytes(changed))
        change(bytearray(), random.Random(seed))
    assert len(results) > 5
    assert mutate(data, random.Random(3)) == mutate(data, random.Random(3))
