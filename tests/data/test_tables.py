"""Tables in files: what is read, what is said about it, drafts, and errors with row, column and fix."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
import torch

from sigmazero.bench.plan import parse_plan
from sigmazero.data import DataError, MissingData, load, open_table
from sigmazero.data.tables import draft

CSV = """age,job,sex,gain,loan,split
30,clerk,F,0,no,train
52,nurse,M,10.5,yes,train
41, cook ,F,0,no,test
19,?,M,3,yes,test

33,"clerk",M,0.25,yes,test
"""
NOTES = """label = "loan"
drop = ["gain"]
[split]
column = "split"
part = "test"
fit = "train"
[categories]
job = ["clerk", "cook", "nurse", "?"]
sex = ["F", "M"]
"""
ARFF = """% a comment
@RELATION 'my table'
@attribute age numeric
@attribute 'a job' {clerk, 'night nurse', "o'cook"}
@ATTRIBUTE class {0,1}

@data
30, clerk, 0
% another
52,'night nurse',1
41,"o'cook",1
19,'o\\'cook',0
"""


def put(folder: Path, text: str | bytes, notes: str | None = NOTES, name: str = "own.csv") -> Path:
    path = folder / name
    data = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    if notes is not None:
        (folder / "own.toml").write_text(notes)
    return path


@pytest.mark.parametrize("name", ["own.csv", "own.csv.gz", "own.CSV"])
def test_csv(tmp_path: Path, name: str) -> None:
    rows = load(put(tmp_path, CSV, name=name))
    assert rows.names == ("age", "job=clerk", "job=cook", "job=nurse", "job=?", "sex=F", "sex=M")
    assert rows.images.tolist() == [[41, 0, 1, 0, 0, 1, 0], [19, 0, 0, 0, 1, 0, 1], [33, 1, 0, 0, 0, 0, 1]]
    assert (rows.labels.tolist(), rows.ids.tolist()) == ([0, 1, 1], [2, 3, 4])
    assert (rows.classes, rows.name) == (("no", "yes"), name)
    assert rows.space is not None
    assert (rows.space.lower, rows.space.upper) == ({"age": 19}, {"age": 52})
    assert load(tmp_path / name, rows=[2, 0]).ids.tolist() == [4, 2]


def test_parts_and_what_they_give(tmp_path: Path) -> None:
    table = open_table(put(tmp_path, CSV))
    assert table.rows("train").images[:, 0].tolist() == [30, 52]
    assert (table.encoder.columns[0].mean, table.encoder.columns[0].deviation) == (41, 11)  # of the part that fits
    assert torch.equal(table.rows().images, load(tmp_path / "own.csv").images)
    with pytest.raises(DataError, match="no row of column 'split' is 'val'; it has train, test"):
        table.rows("val")


def test_rows_with_something_missing_are_left_out(tmp_path: Path) -> None:
    assert load(put(tmp_path, CSV, 'missing = "?"\n' + NOTES)).ids.tolist() == [2, 4]
    path = put(tmp_path, CSV.replace("41, cook", ", cook"))
    with pytest.raises(DataError, match="row 2, column 'age': '' is empty; fill it, or write missing = \"\""):
        load(path)
    assert load(put(tmp_path, path.read_bytes(), 'missing = ""\n' + NOTES)).ids.tolist() == [3, 4]


def test_a_saved_encoder_takes_the_place_of_a_fit(tmp_path: Path) -> None:
    open_table(put(tmp_path, CSV)).encoder.save(tmp_path / "own.json")
    shorter = "\n".join(CSV.splitlines()[:1] + CSV.splitlines()[3:])
    notes = 'label = "loan"\nencoder = "own.json"\ndrop = ["gain", "split"]\n'
    rows = load(put(tmp_path, shorter, notes))
    assert rows.images.tolist() == load(put(tmp_path, CSV)).images.tolist()
    with pytest.raises(DataError, match="row 0, column 'job': 'baker' is none of its words"):
        load(put(tmp_path, shorter.replace(" cook ", "baker"), notes))


def test_what_may_change(tmp_path: Path) -> None:
    path = put(tmp_path, CSV, NOTES + '[change.sex]\ndirection = "none"\n[change.age]\naround = 5\n')
    space = load(path).space
    assert space is not None
    assert space.columns((7,)).rise[0].tolist() == [True] * 5 + [False] * 2
    (tmp_path / "own.space.toml").write_text(draft(path).replace("around = 5", "around = 7"))
    with pytest.raises(DataError, match=r"own.toml: has change, and there is a space file too; say it in one place"):
        load(path)
    space = load(put(tmp_path, CSV)).space
    assert space is not None
    assert space.columns((7,)).around[0] == 7


def test_arff(tmp_path: Path) -> None:
    notes = 'label = "class"\ncategories = ["a job"]\n'
    for name in ("own.arff", "own.arff.gz"):
        rows = load(put(tmp_path, ARFF, notes, name))
        assert rows.names == ("age", "a job=clerk", "a job=night nurse", "a job=o'cook")
        assert rows.images.tolist() == [[30, 1, 0, 0], [52, 0, 1, 0], [41, 0, 0, 1], [19, 0, 0, 1]]
        assert rows.labels.tolist() == [0, 1, 1, 0]


def test_parquet(tmp_path: Path) -> None:
    arrow, parquet = (
        pytest.importorskip(name, reason="Parquet needs pyarrow") for name in ("pyarrow", "pyarrow.parquet")
    )
    columns = {
        "age": [30, 52, 41],
        "rate": [0.1, 1e-30, 3.0],
        "ok": [True, False, True],
        "job": arrow.array(["a", "b", "a"]).dictionary_encode(),
        "word": ["x", "y", "x"],
        "class": ["no", "yes", "no"],
    }
    parquet.write_table(arrow.table(columns), tmp_path / "own.parquet")
    (tmp_path / "own.toml").write_text('label = "class"\ncategories = ["job", "word"]\n')
    rows = load(tmp_path / "own.parquet")
    assert rows.names == ("age", "rate", "ok", "job=a", "job=b", "word=x", "word=y")
    expected = [[30, 0.1, 1, 1, 0, 1, 0], [52, 1e-30, 0, 0, 1, 0, 1], [41, 3, 1, 1, 0, 1, 0]]
    assert torch.equal(rows.images, torch.tensor(expected))
    parquet.write_table(arrow.table({"age": [30, None], "class": ["no", "yes"]}), tmp_path / "own.parquet")
    (tmp_path / "own.toml").write_text('label = "class"')
    with pytest.raises(DataError, match="row 1, column 'age': '' is empty"):
        load(tmp_path / "own.parquet")


def test_a_draft_loads_and_says_what_the_table_shows(tmp_path: Path) -> None:
    path = put(tmp_path, CSV.replace("19,?", "?,?"), None)
    with pytest.raises(MissingData, match=r"needs own.toml beside it, .* data.tables.draft"):
        load(path)
    (tmp_path / "own.toml").write_text("")  # as a shell does for `> own.toml`
    (tmp_path / "own.toml").write_text(draft(path))
    (tmp_path / "own.space.toml").write_text("")
    assert draft(path).startswith('[feature."age"]\nkind = "integer"\nlower = 30\nupper = 52\n')
    held = open_table(path)
    assert (held.notes.label, held.notes.missing, held.notes.split["part"]) == ("loan", "?", "test")
    assert held.notes.categories == {"job": ["clerk", "cook", "nurse"], "sex": ["F", "M"]}
    assert load(path).ids.tolist() == [2, 4]


def test_classes_are_sorted_as_the_numbers_they_are(tmp_path: Path) -> None:
    path = put(tmp_path, "age,class\n1,10\n2,9\n3,10\n", 'label = "class"')
    assert load(path).classes == ("9", "10")
    assert load(path).labels.tolist() == [1, 0, 1]
    rows = load(put(tmp_path, "age,class\n1,10\n2,9\n3,10\n", 'label = "class"\nclasses = ["10", "9", "8"]'))
    assert (rows.classes, rows.labels.tolist()) == (("10", "9", "8"), [0, 1, 0])


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ("label = 3", "own.toml: label = 3 is not a text"),
        ("drop = []", "own.toml: does not say which column has the classes"),
        ('label = "loan"\nsplitt = 3', "own.toml: there is no 'splitt'; allowed: label, classes"),
        ('label = "laon"', "own.csv: there is no column 'laon'; it has age, job"),
        ('label = "loan"\ndrop = ["x"]', "there is no column 'x'"),
        ('label = "loan"\ndrop = [1]', r"drop = \[1\] is not a list of texts"),
        ('label = "loan"', "row 0, column 'job': 'clerk' is no number; correct it, name it as missing, or make"),
        ('label = "loan"\n[split]\ncolumn = "split"', "split has column and part"),
        ('label = "loan"\n[categories]\njob = 3', "the words of category 'job' are no list of texts"),
        (NOTES.replace('"nurse", ', ""), "row 1, column 'job': 'nurse' is none of its words"),
        ('classes = ["no"]\n' + NOTES, "row 1, column 'loan': 'yes' is none of its words"),
        ('missing = "no"\n' + NOTES.replace('part = "test"', 'part = "x"'), "no row of column 'split' is 'x'"),
        ('label = "loan"\ndrop = ["age", "job", "sex", "gain", "split"]', "no column is left to encode"),
        ("label =", "own.toml: cannot be read"),
        (NOTES + "[change.x]\ncost = 3", "change: there is no column 'x'"),
    ],
)
def test_notes_that_cannot_be_right(tmp_path: Path, notes: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        load(put(tmp_path, CSV, notes))


def test_a_plan_may_name_a_table() -> None:
    text = '[[grid]]\nmodels = ["adult-mlp"]\ndata = ["own.csv"]\nattacks = ["corner"]\n'
    assert parse_plan(text).questions[0].data.source == "own.csv"
    with pytest.raises(ValueError, match=r"unknown data 'own.xls'.* or a path ending in .npz or .csv"):
        parse_plan(text.replace("own.csv", "own.xls"))
