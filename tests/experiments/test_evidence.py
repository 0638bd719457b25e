"""The pages of docs/evidence are those that their CSV files make, and every larger difference has a cause."""

import csv
import io

import pytest

from experiments import evidence
from sigmazero.store import Store
from tests.helpers.stores import BOXES, write_store


@pytest.mark.parametrize("name", evidence.PAGES)
def test_the_pages_are_current(name):
    there = (evidence.FOLDER / name).read_text(encoding="utf-8")
    assert there == evidence.PAGES[name](), "run python -m experiments.evidence page"


def test_every_larger_difference_has_a_cause():
    found = [row for name in evidence.FILES for row in evidence.read(evidence.FOLDER / name)]
    every = evidence.compared(found)
    assert len(every) == 728
    unknown = [
        (each.table, each.printed["model"], each.printed["attack"])
        for each in every
        if each.line and each.far() and not each.cause()
    ]
    assert unknown == []


def test_the_lines_of_a_store_are_its_figures(tmp_path):
    with Store(write_store(tmp_path / "runs.db", BOXES)) as store:
        made = evidence.lines(store)
    file = io.StringIO()
    evidence.write(made, file)
    rows = {(row["model"], row["attack"]): row for row in csv.DictReader(file.getvalue().splitlines())}
    line = rows["first", "ead-paper"]
    assert [float(line[f"asr_{k}"]) for k in (10, 24, 50, "inf")] == [0.5, 0.5, 0.625, 0.75]
    assert [float(line[f"returned_asr_{k}"]) for k in (24, 50, "inf")] == [0.5, 0.625, 0.625]
    assert float(line["median_l0"]) == 22.5
    assert float(line["kqueries"]) == pytest.approx((1 + 7 * 340) / 8 / 1000, rel=1e-4)
    assert float(rows["first", "sigma-zero"]["mean_l0"]) == float("inf")  # one sample was not fooled
    assert all(row["cell"] for row in rows.values())
