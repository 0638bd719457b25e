"""The examples of docs/models-of-any-kind.md."""

import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "models-of-any-kind.md"


def test_the_page_runs():
    done = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert done.attempted > 12
    assert done.failed == 0
