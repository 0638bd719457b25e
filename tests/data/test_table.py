"""Tables: what comes back is what went in; files, notes, drafts; missing values; fitted pipelines on them."""

import datetime
import gzip

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import sigmazero as sz
from sigmazero.data import DataError, MissingData, Table, load
from sigmazero.data.table import draft

N = 60


def some_frame():
    g = np.random.default_rng(0)
    start = pd.Timestamp("2020-01-01")
    frame = pd.DataFrame(
        {
            "age": g.integers(18, 80, N),
            "rate": np.round(g.random(N), 2),
            "long": g.random(N),
            "job": g.choice(["a b", "+5 years", "São\xa0Paulo", "@home", "=1+1"], N),
            "flag": g.random(N) > 0.5,
            "size": pd.Categorical(g.choice(["lo", "hi"], N), ["lo", "mid", "hi"], ordered=True),
            "when": start + pd.to_timedelta(g.integers(0, 900, N), "D"),
            "stamp": (start + pd.to_timedelta(g.integers(0, 10**9, N), "ms")).tz_localize("Europe/Berlin"),
            "took": pd.to_timedelta(g.integers(0, 900, N), "s"),
            "id": [f"p{k}" for k in range(N)],
            "large": g.integers(1 << 60, 1 << 61, N),
            "gap": np.where(g.random(N) < 0.2, np.nan, g.integers(0, 9, N)),
            "word": pd.Series(g.choice(["x", "y"], N)).mask(g.random(N) < 0.2),
            "whole": pd.array([*range(N - 1), None], dtype="Int64"),
            "mixed": pd.Series([True, "b", None] * (N // 3), dtype=object),
            "single": g.random(N).astype(np.float32),
            7: g.integers(0, 3, N),
            "y": g.choice(["no", "yes"], N),
        }
    )
    frame.loc[4, "when"] = pd.NaT
    return frame.set_index(pd.RangeIndex(100, 100 + N))


def features_of(frame):
    return frame.drop(columns="y").reset_index(drop=True)


@pytest.mark.parametrize("change", [{}, {"gap": {"missing": True}, "word": {"missing": True}}])
def test_decoded_rows_are_the_original_frame(change):
    frame = some_frame()
    table = Table.from_frame(frame, "y", change=change)
    x = table.rows().images
    assert x.dtype == torch.float64
    assert x.isfinite().all()
    pd.testing.assert_frame_equal(table.decode(x), features_of(frame))
    table.space.domain(x)  # every row is legal
    assert (table.rows().labels.numpy() == (frame["y"] == "yes")).all()


def test_numbers_keep_their_digits():
    frame = pd.DataFrame({"rate": [0.1, 0.123456789012], "income": [16_777_217, 20_000_000], "y": [0, 1]})
    table = Table.from_frame(frame, "y")
    assert table.decode(table.encode(frame)).equals(frame.drop(columns="y"))
    # A float32 stands for the value of the table, else for the shortest decimal.
    x = torch.tensor([[0.1, 2], [0.123456789012, 2], [0.3, 2]])
    assert table.decode(x)["rate"].tolist() == [0.1, 0.123456789012, 0.3]


def test_words_that_are_no_texts():
    dates = [datetime.date(2020, 1, 1 + k % 3) for k in range(12)]
    frame = pd.DataFrame({"day": dates, "age": range(12), "y": [0, 1] * 6})
    table = Table.from_frame(frame, "y")
    pd.testing.assert_frame_equal(table.decode(table.rows().images), frame.drop(columns="y"))
    to_numbers = FunctionTransformer(lambda days: days.map(lambda day: day.toordinal()))
    model = make_pipeline(to_numbers, LogisticRegression()).fit(frame[["day"]], frame["y"])
    assert sz.evaluate(model, table, steps=10).records()[0]["samples"] == 12


def test_texts_of_which_there_are_too_many_stay_as_they_are():
    table = Table.from_frame(some_frame(), "y")
    columns = table.space.columns((len(table.features),))
    for name in ("id", "large"):
        assert not columns.rise[0][table.features.index(name)]


@pytest.mark.parametrize("change", [{}, {"age": {"missing": True}, "job": {"missing": True}}])
def test_missing_values_stay_missing_unless_allowed(change):
    frame = pd.DataFrame({"age": [20, 40, np.nan, 60] * 5, "job": ["a", "b", "b", None] * 5, "y": [0, 1, 1, 0] * 5})
    table = Table.from_frame(frame, "y", change=change)
    rows = table.rows()
    assert table.features == ("age", "age=<missing>", "job=a", "job=b", "job=<missing>")

    def model(x):
        return torch.stack([0 * x[:, 0], x[:, 0] - 30 + 50 * x[:, 3]], 1)

    result = sz.get("sparse-rs-min", steps=100).run(model, rows.images, rows.labels, space=rows.space)
    before, after = table.decode(rows.images), table.decode(result.x_adv)
    assert change or (before.isna() == after.isna()).all(axis=None)
    with pytest.raises(DataError, match="row 0, column 'age': 'nan' is missing"):
        Table.from_frame(frame.dropna(), "y").encode(pd.DataFrame({"age": [np.nan], "job": ["a"]}))


def test_rows_left_out_are_counted():
    frame = some_frame()
    with pytest.warns(UserWarning, match=r"of 60 rows have a missing value and are left out"):
        table = Table.from_frame(frame, "y", keep_missing=False)
    assert len(table) == len(frame.dropna())
    frame.loc[103, "y"] = None
    with pytest.warns(UserWarning, match="1 of 60 rows have no class"):
        assert 3 not in Table.from_frame(frame, "y").ids


def test_parquet_keeps_dtypes(tmp_path):
    frame = some_frame().drop(columns=["mixed", 7])
    frame.columns = frame.columns.astype("str")
    frame.to_parquet(tmp_path / "own.parquet")
    table = Table.read(tmp_path / "own.parquet", label="y")
    pd.testing.assert_frame_equal(table.decode(table.rows().images), features_of(frame))


# Files

CSV = """age,job,sex,gain,loan,split
30,clerk,F,0,no,train
52,nurse,M,10.5,yes,train
41,cook,F,0,no,test
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
@attribute job {clerk, nurse}
@ATTRIBUTE class {0,1}
@data
30, clerk, 0
?,nurse,1
41,?,1
"""


def put(folder, text, notes=NOTES, name="own.csv"):
    path = folder / name
    content = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    if notes is not None:
        (folder / "own.toml").write_text(notes)
    return path


@pytest.mark.parametrize(
    ("name", "separator"), [("own.csv", ","), ("own.csv.gz", ";"), ("own.CSV", "\t"), ("own.csv", "|")]
)
def test_csv(tmp_path, name, separator):
    rows = load(put(tmp_path, CSV.replace(",", separator), name=name))
    assert rows.names == ("age", "job=clerk", "job=cook", "job=nurse", "job=?", "sex=F", "sex=M")
    assert rows.images.tolist() == [[41, 0, 1, 0, 0, 1, 0], [19, 0, 0, 0, 1, 0, 1], [33, 1, 0, 0, 0, 0, 1]]
    assert (rows.labels.tolist(), rows.ids.tolist()) == ([0, 1, 1], [2, 3, 4])
    assert (rows.classes, rows.name) == (("no", "yes"), name)
    assert (rows.space.lower, rows.space.upper) == ({"age": 19}, {"age": 52})
    assert load(tmp_path / name, rows=[2, 0]).ids.tolist() == [4, 2]
    (tmp_path / "own.csv.gz").write_text(CSV)  # some browsers unpack a file and keep its name
    assert load(tmp_path / "own.csv.gz").ids.tolist() == [2, 3, 4]


@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("rate;place;y\n0,5;São\xa0Paulo;0\n1,25;+5 years;1\n", ("rate", "place=+5 years", "place=São\xa0Paulo")),
        ("rate, place, y\n0.5, a b, 0\n1.25, c, 1\n", ("rate", "place=a b", "place=c")),
    ],
)
def test_decimal_commas_and_blanks_after_commas(tmp_path, text, features):
    table = Table.read(put(tmp_path, text, None), label="y")
    assert table.features == features
    assert table.rows().images[:, 0].tolist() == [0.5, 1.25]


def test_other_encodings(tmp_path):
    path = put(tmp_path, "place,y\nM\xfcller,0\nb,1\n".encode("latin-1"), None)
    with pytest.raises(DataError, match=r"encoding = .latin-1."):
        Table.read(path, label="y")
    assert Table.read(path, label="y", read={"encoding": "latin-1"}).features == ("place=M\xfcller", "place=b")


def test_missing_texts(tmp_path):
    kept = load(put(tmp_path, CSV, 'missing = "?"\n' + NOTES))
    assert kept.table.decode(kept.images)["job"].isna().tolist() == [False, True, False]
    with pytest.warns(UserWarning, match="1 of 5 rows"):
        assert load(put(tmp_path, CSV, 'missing = "?"\nkeep_missing = false\n' + NOTES)).ids.tolist() == [2, 4]


def test_what_may_change(tmp_path):
    path = put(tmp_path, CSV, NOTES + '[change.sex]\ndirection = "none"\n[change.age]\naround = 5\n')
    assert load(path).space.columns((7,)).rise[0].tolist() == [True] * 5 + [False] * 2
    (tmp_path / "own.space.toml").write_text(draft(path).replace("around = 5", "around = 7"))
    with pytest.raises(DataError, match=r"own.toml"):
        load(path)
    assert load(put(tmp_path, CSV)).space.columns((7,)).around[0] == 7


@pytest.mark.parametrize("name", ["own.arff", "own.arff.gz"])
def test_arff(tmp_path, name):
    rows = load(put(tmp_path, ARFF, 'label = "class"', name))
    assert rows.names == ("age", "age=<missing>", "job=clerk", "job=nurse", "job=<missing>")
    assert rows.images.tolist() == [[30, 0, 1, 0, 0], [30, 1, 0, 1, 0], [41, 0, 1, 0, 1]]
    assert (rows.labels.tolist(), rows.classes) == ([0, 1, 1], ("0", "1"))


def test_a_draft_loads_and_says_what_the_table_shows(tmp_path):
    path = put(tmp_path, CSV.replace("19,?", "?,?"), None)
    with pytest.raises(MissingData, match=r"own.toml"):
        load(path)
    (tmp_path / "own.toml").write_text("")  # as a shell does for `> own.toml`
    text = draft(path)
    assert 'label = "loan"' in text
    assert 'missing = "?"' in text
    assert 'job = ["clerk", "cook", "nurse"]' in text.replace('"job"', "job")
    (tmp_path / "own.toml").write_text(text)
    (tmp_path / "own.space.toml").write_text("")
    assert draft(path).startswith('[feature."age"]\nkind = "integer"\nlower = 30\nupper = 52\n')
    assert load(path).ids.tolist() == [2, 3, 4]


def test_a_draft_suggests_to_read_dates(tmp_path):
    days = [f"{k % 28 + 1:02}" for k in range(60)]
    lines = [f"2020-01-{d},{f'2021-02-{d} 10:00' if k % 2 else ''},{k}-x,{k % 2}" for k, d in enumerate(days)]
    path = put(tmp_path, "\n".join(["opened,seen,id,y", *lines]), None)
    text = draft(path)
    assert '[read]\nparse_dates = ["opened", "seen"]' in text
    (tmp_path / "own.toml").write_text(text)
    assert [column.unit for column in load(path).table.columns] == ["D", "s", ""]
    path = put(tmp_path, "\n".join(["opened,y", "soon,0", *(f"2020-01-{k + 1:02},1" for k in range(9))]), None)
    (tmp_path / "own.toml").unlink()
    assert 'most of their texts are dates; once all are: [read] parse_dates = ["opened"]' in draft(path)
    assert "\n[read]" not in draft(path)


def test_classes_are_sorted_as_the_numbers_they_are(tmp_path):
    text = "age,class\n1,10\n2,9\n3,10\n"
    rows = load(put(tmp_path, text, 'label = "class"'))
    assert (rows.classes, rows.labels.tolist()) == (("9", "10"), [1, 0, 1])
    rows = load(put(tmp_path, text, 'label = "class"\nclasses = ["10", "9", "8"]'))
    assert (rows.classes, rows.labels.tolist()) == (("10", "9", "8"), [0, 1, 0])


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ("label = 3", "own.toml.*label"),
        ("drop = []", "own.toml.*label"),
        ('label = "loan"\nsplitt = 3', "own.toml:2.*splitt"),
        ('label = "laon"', "own.csv: there is no column 'laon'; did you mean 'loan'. there are age, job"),
        ('label = "loan"\ndrop = ["x"]', "there is no column 'x'"),
        ('label = "loan"\n[split]\ncolumn = "split"', "part"),
        ('label = "loan"\n[categories]\njob = 3', "job"),
        (NOTES.replace('"nurse", ', ""), "row 1, column 'job': 'nurse'"),
        (NOTES.replace('"?"', '"?", "cook"'), "two features are called 'job=cook'"),
        ('classes = ["no"]\n' + NOTES, "row 1, column 'loan': 'yes'"),
        (NOTES.replace('part = "test"', 'part = "x"'), "'x'"),
        ('label = "loan"\ndrop = ["age", "job", "sex", "gain", "split"]', "no column is left"),
        ("label =", "own.toml"),
        (NOTES + "[change.aeg]\ncost = 3", "own.toml: change: there is no column 'aeg'; did you mean 'age'"),
        (NOTES + "[change.age]\ncots = 3", "own.toml: change of 'age': there is no 'cots'; did you mean 'cost'"),
        (NOTES + '[change.age]\ndirection = "upp"', "own.toml: change: direction='upp' of feature 'age'"),
        (NOTES + "[change.age]\ncost = -3", "own.toml: change: cost=-3 of feature 'age'"),
    ],
)
def test_notes_that_cannot_be_right(tmp_path, notes, words):
    with pytest.raises(DataError, match=words):
        load(put(tmp_path, CSV, notes))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,loan\n", "no rows"),
        ("a,loan\n1,2,3\n", "cannot be read"),
        (b"a,loan\n\xff\xfe,2\n", "cannot be read"),
        ("", "empty"),
    ],
)
def test_damaged_tables(tmp_path, text, words):
    with pytest.raises(DataError, match=rf"own.csv.*{words}"):
        load(put(tmp_path, text))


# Pipelines


def test_a_model_that_was_fitted_on_an_array_is_asked_with_one():
    frame = pd.DataFrame({"a": range(12), "b": np.linspace(0, 1, 12), "y": [0, 1] * 6})
    array, table = frame[["a", "b"]].to_numpy(), Table.from_frame(frame, "y")
    model = LogisticRegression().fit(array, frame["y"])
    assert (sz.wrap(model, table=table)(table.rows().images).argmax(1).numpy() == model.predict(array)).all()


def test_classes_of_a_model_are_matched_by_name():
    table = Table.from_frame(pd.DataFrame({"a": [1, 2, 3], "y": ["no", "yes", "no"]}), "y", classes=["yes", "no"])
    assert table.places(["no", "yes"]) == [1, 0]
    assert table.places([0, 1]) == [0, 1]
    assert table.places(["maybe", "no", "yes"]) == [2, 1, 0]
    with pytest.raises(DataError, match="maybe"):
        table.places(["maybe", "no"])
