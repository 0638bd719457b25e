"""The samples of a page: how many fit, what is packed of them, and changes in words."""

import numpy as np
import pytest

from sigmazero.report.pages import samples
from sigmazero.report.runs import groups, load
from sigmazero.store import Store
from tests.helpers import loans
from tests.plans import clean, run

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A store of an attack on a table with costs, one-hot groups and wicked names."""
    folder = tmp_path_factory.mktemp("loans")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        loans.write(folder, classes=[EVIL, "granted"])
        run(loans.WITH_SPACE, folder / "r.db")
        with Store(folder / "r.db") as opened:
            yield opened


def test_changes_of_a_table_are_words(table):
    found = groups(load(table))
    made = samples.build(found, clean(table))
    (first,) = made.data["groups"][0]["runs"][:1]
    assert made.data["sets"][0]["classes"] == [EVIL, "granted"]
    assert ("job", "clerk", "nurse", "1") in {tuple(change) for row in first["words"] for change in row}
    assert first["cost"] == [None if np.isinf(each) else each for each in found[0].runs[0].facts.cost]
    assert "index" not in first


def test_inputs_that_are_gone_are_named_and_the_numbers_stay(table):
    def gone(info):
        raise FileNotFoundError("no such file")

    made = samples.build(groups(load(table)), gone)
    assert made.notes == ["Changes are not shown: no such file"]
    assert "words" not in made.data["groups"][0]["runs"][0]
