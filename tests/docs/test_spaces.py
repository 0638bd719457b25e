"""The examples of docs/spaces.md and docs/tables.md."""

import doctest
from pathlib import Path

import sigmazero as sz

PAGE = Path(__file__).parents[2] / "docs" / "spaces.md"


def test_the_page_runs():
    done = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert done.attempted > 15
    assert done.failed == 0


def test_the_page_about_tables_runs():
    place = str(PAGE.with_name("tables.md"))
    done = doctest.testfile(place, module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert done.attempted > 15
    assert done.failed == 0


def test_who_refuses_is_said():
    """The last line of the table names the attacks that cannot honour a space."""
    line = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if "refuse by name" in line)
    refusing = {name.removesuffix("-paper") for name, attack in sz.ATTACKS.items() if not attack.spaces}
    assert {word for word in line.split("|")[1].replace("`", "").replace(",", "").split()} == refusing
