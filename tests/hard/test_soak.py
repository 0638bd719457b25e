"""Killed anywhere, as often as you like: the same command again ends with the facts and files of one never killed.

Here a dozen kills; `make nightly` makes 200, at other points each night.
"""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from sigmazero.core import faults
from tests.hard import soak
from tests.hard.soak import COMMANDS, Place
from tests.helpers.downloads import serving
from tests.helpers.trial import NIGHTLY

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

KILLS = 200 if NIGHTLY else 12
SEED = int(os.environ.get("SIGMAZERO_SEED", "0"))


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A folder to begin with, and a server that has the weights."""
    with serving(soak.CONTENT) as server:
        place = Place(tmp_path_factory.mktemp("soak") / "template", server.server_port)
        soak.prepare(place)
        yield place


def copied(template: Place, folder: Path) -> Place:
    shutil.copytree(template.folder, folder)
    return Place(folder, template.port)


@pytest.fixture(scope="module")
def whole(template, tmp_path_factory):
    """Of each command, never killed: what it leaves, and how often it comes to which point."""
    found = {}
    for name in COMMANDS:
        place, passed = copied(template, tmp_path_factory.mktemp("whole") / name), Counter[str]()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(faults, "reach", lambda point, passed=passed: passed.update([point]))
            soak.command(place, *COMMANDS[name])
        found[name] = soak.left(place.folder), passed
    return found


def test_the_commands_pass_the_points_of_files_and_sites(whole):
    """tests/system has those of stores and batches, tests/hard/engine_kills.py of workers, tests/board of entries."""
    elsewhere = ("store.", "batch.", "unit.", "worker.", "entry.")
    points = {point for point in faults.POINTS if not point.startswith(elsewhere)}
    assert {point for _, passed in whole.values() for point in passed} == points


def test_killed_again_and_again_the_end_is_the_same(template, whole, children, tmp_path):
    draw, begun = random.Random(SEED), soak.left(template.folder)
    kills: Counter[str] = Counter()
    while kills.total() < KILLS:
        for name in COMMANDS:
            wanted, passed = whole[name]
            place = copied(template, tmp_path / f"{kills.total()}-{name}")
            for _ in range(draw.randint(1, 3)):
                point = draw.choice(sorted(passed))
                armed = f"{point}:{draw.randint(1, passed[point])}"
                if children.killed(armed, soak.command, place, *COMMANDS[name]):
                    kills[point] += 1
                held = soak.left(place.folder).items()
                half = {file for file, holds in held if holds not in (begun.get(file), wanted.get(file))}
                assert not half, f"{name} killed at {armed} left {half} half done"
            soak.command(place, *COMMANDS[name])
            assert soak.left(place.folder) == wanted, f"{name}, killed at {armed} last"
            shutil.rmtree(place.folder)
    print(f"{kills.total()} kills: {dict(sorted(kills.items()))}")
