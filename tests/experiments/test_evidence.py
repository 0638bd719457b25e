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
    assert there == evidence.filled(there, evidence.PARTS), "run python -m experiments.evidence page"
    assert "<!-- end -->" in there


def test_every_larger_difference_has_a_cause():
    every = evidence.compared(evidence.everything())
    assert len(every) == 728
    assert all(each.line for each in every if each.printed["model"] in ("M1", "M2"))
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


def line(**other):
    return dict.fromkeys(evidence.COLUMNS, "") | {"model": "M1", "samples": "8", "rows": "8", "asr_10": "0.1"} | other


def test_new_lines_replace_those_with_the_same_question_and_no_more_samples():
    before = [line(), line(unit="pixel"), line(attack="bb", samples="20", rows="20")]
    new = [line(asr_10="0.2"), line(attack="bb"), line(attack="fmn")]
    made = evidence.merged(before, new)
    assert [(row["attack"], row["unit"], row["samples"], row["asr_10"]) for row in made] == [
        ("", "", "8", "0.2"),
        ("", "pixel", "8", "0.1"),
        ("bb", "", "20", "0.1"),
        ("fmn", "", "8", "0.1"),
    ]


def test_lines_are_added_to_a_file_and_interrupted_cells_left_out(tmp_path, capsys):
    store, there, out = (tmp_path / name for name in ("runs.db", "there.csv", "out.csv"))
    write_store(store, BOXES)
    with there.open("w", encoding="utf-8", newline="") as file:
        evidence.write([line(attack="fmn"), line(attack="bb", samples="5")], file)
    with Store(store) as held:
        cells = [run.info.key for run in evidence.runs.load(held)]
    evidence.main(["csv", str(store), "--out", str(out)])
    evidence.main(["csv", str(there), "--add", "--out", str(out)])
    made = evidence.read(out)
    assert [row["cell"] for row in made] == [*cells, ""]
    assert made[-1]["attack"] == "fmn"
    evidence.main(["csv", str(there), "--out", str(out)])
    assert [row["attack"] for row in evidence.read(out)] == ["fmn"]


def test_an_interrupted_cell_has_no_line(tmp_path):
    with Store(write_store(tmp_path / "whole.db", BOXES)) as whole, Store(tmp_path / "part.db", write=True) as part:
        first, second, *_ = whole.cells()
        part.register([first, second])
        run = part.begin({})
        part.append(first.key, 0, whole.facts(first.key), run=run)
        part.append(second.key, 0, whole.facts(second.key).take(slice(5)), run=run)
        assert [row["cell"] for row in evidence.lines(part)] == [first.key]


def test_a_file_without_a_column_is_refused(tmp_path):
    (tmp_path / "old.csv").write_text("model,samples,rows\nM1,8,8\n")
    with pytest.raises(SystemExit, match=r"old\.csv.*unit"):
        evidence.finished(tmp_path / "old.csv")
