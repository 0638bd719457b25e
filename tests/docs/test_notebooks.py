"""The notebooks run, and show what they show in their files; the gallery has the pictures that its script makes."""

import re

import matplotlib as mpl
import pytest
from scripts import gallery, notebooks

from tests.docs.blocks import DOCS

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted(notebooks.FOLDER.glob("*.ipynb"))
NUMBER = re.compile(r"(?<![\w=-])(\d+(\.\d+)?|inf|nan)(?![\w-])")


def shape(texts):
    """The outputs without their numbers, whose last digits differ between processors."""
    return [re.sub(r"\s+", " ", NUMBER.sub("#", text)) for text in texts]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_shows_when_it_is_run(path):
    pytest.importorskip("pandas", reason="frames of results need the extra notebook")
    mpl.use("agg")
    held = notebooks.read(path)
    assert path.stat().st_size < 200_000
    code = [cell for cell in held["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] for cell in code[1:])
    assert shape(notebooks.texts(notebooks.run(held))) == shape(notebooks.texts(held))


def test_a_notebook_that_shows_something_else_is_noticed():
    cell = {"cell_type": "code", "source": ["print('one')\n", "1 + 1"], "outputs": []}
    done = notebooks.run({"cells": [cell]})
    assert notebooks.texts(done) == ["one\n", "2"]
    assert done["cells"][0]["outputs"][1]["execution_count"] == 1
    assert notebooks.texts(notebooks.run({"cells": [{**cell, "source": ["print('two')"]}]})) == ["two\n"]


def test_all_notebooks_and_pictures_are_on_the_page():
    page = (DOCS / "examples.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) >= 3
    assert all(path.name in page for path in NOTEBOOKS)
    shown = set(re.findall(r"\]\(gallery/(\w+)\.png\)", page))
    assert shown == {path.stem for path in gallery.FOLDER.glob("*.png")}
    assert all(path.stat().st_size < 60_000 for path in gallery.FOLDER.glob("*.png"))
