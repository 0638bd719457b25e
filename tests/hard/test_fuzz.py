"""A sample of the changed files; `python -m tests.hard.fuzz` reads ten thousand for each reader."""

import random

import pytest

from tests.hard.fuzz import fuzz
from tests.hard.mutate import CHANGES, mutate
from tests.hard.readers import READERS

COUNT = 150


@pytest.mark.parametrize("name", sorted(READERS))
def test_changed_files_are_read_or_refused_in_one_line(name):
    assert fuzz(name, range(COUNT)) == []


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
