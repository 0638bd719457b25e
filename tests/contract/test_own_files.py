"""Files as people have them: folders of named classes, values from 0 to 255, a fitted pipeline beside its table."""

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder
from torch import nn

import sigmazero as sz
from tests.helpers.commands import run_command

NAMES = ("cat", "dog", "emu")


class ByColour(nn.Module):
    """Score each class by the mean of one channel."""

    def __init__(self, order, scale=1.0):
        super().__init__()
        self.order, self.scale = order, nn.Parameter(torch.tensor(scale), requires_grad=False)

    def forward(self, x):
        return x.mean((2, 3))[:, self.order] / self.scale


@pytest.fixture
def photos(tmp_path):
    """Twelve pictures of each class; the class decides which channel is bright."""
    rng = np.random.default_rng(0)
    for channel, name in enumerate(NAMES):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(12):
            pixels = rng.integers(0, 100, (6, 6, 3)).astype(np.uint8)
            pixels[..., channel] += 100
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    return str(tmp_path / "photos")


def test_labels_of_a_folder_follow_the_names_of_the_model(photos):
    named = ByColour([2, 0, 1])
    named.classes = ["Emu", "cat", "dog"]
    found = sz.evaluate(named, photos, steps=20)
    assert found.records()[0]["clean_accuracy"] == 1
    assert not found.verify().disagreements
    rows = sz.data.load(photos)
    assert sz.evaluate(named, rows, steps=20).records()[0]["asr_inf"] == found.records()[0]["asr_inf"]


def test_labels_numbered_otherwise_than_the_model_end_the_run(photos):
    with pytest.warns(RuntimeWarning, match=r"SZ034.*label 0 is the model's 1"):
        found = sz.evaluate(ByColour([2, 0, 1]), photos, steps=20)
    assert found.failed
    assert found.records() == []


@pytest.mark.parametrize("kind", ["uint8", "float32"])
def test_values_from_0_to_255(tmp_path, monkeypatch, kind):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 100, (12, 6, 6, 3))
    labels = np.arange(12) % 3
    for image, label in zip(images, labels, strict=True):
        image[..., label] += 100
    np.savez(tmp_path / "mine.npz", images=images.astype(kind), labels=labels)
    monkeypatch.chdir(tmp_path)
    model = ByColour([0, 1, 2], scale=255.0)
    asked = []
    model.register_forward_pre_hook(lambda _, given: asked.append(float(given[0].detach().max())))
    found = sz.evaluate(model, "mine.npz", steps=30, bounds=(0, 255), store="a.db")
    assert found.records()[0]["clean_accuracy"] == 1
    assert max(asked) > 199
    x = images.astype(kind).transpose(0, 3, 1, 2)
    result = sz.get("sigma-zero", steps=30).run(model, x, labels, bounds=(0, 255))
    assert result.success.any()
    assert result.x_adv.dtype == torch.float32
    assert torch.equal(sz.check(model, x, labels, result.x_adv, bounds=(0, 255)).success, result.success)
    if kind == "float32":
        with pytest.raises(ValueError, match=r"from 0 to 199; .*bounds=\(0, 199\)"):
            sz.evaluate(model, "mine.npz", steps=5)


class Anchored(ByColour):
    """A model that must stay where it is."""

    def to(self, *_, **__):
        raise AssertionError("the caller's own module was moved")


def test_a_device_does_not_move_the_model_of_the_caller():
    x = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    model = Anchored([0, 1, 2])
    found = sz.evaluate(model, (x, model(x).argmax(1)), steps=5, device="cpu")
    assert found.records()[0]["samples"] == 6


def people(tmp_path, model):
    """A table with words, booleans and missing values, and a pipeline fitted on it, as files."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, 90),
            "job": rng.choice(["clerk", "cook", "nurse"], 90),
            "member": rng.random(90) < 0.5,
            "income": np.where(rng.random(90) < 0.2, np.nan, rng.random(90).round(3)),
        }
    )
    steps = ColumnTransformer([("words", OneHotEncoder(), ["job"])], remainder="passthrough")
    loan = np.where((frame["age"] > 45) ^ (frame["job"] == "nurse"), "yes", "no")
    fit = frame if model is not LogisticRegression else frame.fillna(0)
    joblib.dump(make_pipeline(steps, model()).fit(fit[["income", "job", "age", "member"]], loan), tmp_path / "m.joblib")
    frame.assign(loan=loan).to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "people.toml").write_text('label = "loan"\n[change.age]\ndirection = "up"\n')
    return frame, loan


def test_a_pickled_pipeline_and_the_file_of_its_table(tmp_path, monkeypatch):
    frame, _ = people(tmp_path, HistGradientBoostingClassifier)
    monkeypatch.chdir(tmp_path)
    found = sz.evaluate("m.joblib", "people.csv", "query-swap", limit=12, steps=100, store="a.db")
    assert not found.verify().disagreements
    result, pipeline, table = found["query-swap"], joblib.load("m.joblib"), sz.data.Table.read("people.csv")
    before, after = (table.decode(each) for each in (result.x, result.x_adv))
    ids = result.ids.tolist()
    pd.testing.assert_frame_equal(before, frame.iloc[ids].reset_index(drop=True), check_dtype=False)
    moved = pipeline.predict(after) != pipeline.predict(before)
    assert result.success.any()
    assert (moved == (result.success & (result.l0 > 0)).numpy()).all()
    assert (after["age"] >= before["age"]).all()
    fields = result.to_pandas(table)
    assert list(fields) == ["row", "field", "before", "after", "cost"]
    assert fields.groupby("row").size().reindex(ids, fill_value=0).tolist() == result.changes.int().tolist()
    assert (after["income"].isna() == before["income"].isna()).all()
    assert run_command("export", "a.db", "--fields", "people.csv", "-o", "fields.csv").code == 0
    written = pd.read_csv("fields.csv")
    fooled = fields[
        fields["row"].isin([number for number, hit in zip(ids, result.success.tolist(), strict=True) if hit])
    ]
    pd.testing.assert_frame_equal(written.drop(columns="attack").astype(str), fooled.reset_index(drop=True).astype(str))
    other = run_command("export", "a.db", "--fields", "people.csv", "-o", "fields.parquet")
    assert (other.code, "ends in .csv" in other.stderr) == (2, True)


def test_a_pipeline_that_takes_no_missing_values_names_the_line_to_write(tmp_path, monkeypatch):
    people(tmp_path, LogisticRegression)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"people.csv has missing values.*keep_missing = false in people.toml"):
        sz.evaluate("m.joblib", "people.csv", "query-swap", steps=10)


def days(frame):
    return (pd.Timestamp("2024-01-01") - frame[["opened"]]).apply(lambda spans: spans.dt.days).join(frame["income"])


@pytest.mark.parametrize("gaps", [True, False])
def test_a_pipeline_that_fails_on_dates_as_texts_keeps_its_own_error(tmp_path, monkeypatch, gaps):
    opened = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(60) * 7, "D")
    frame = pd.DataFrame({"opened": opened, "income": [np.nan if gaps else 0.5, *range(59)]})
    loan = np.where(opened.year > 2020, "yes", "no")
    pipeline = make_pipeline(FunctionTransformer(days), HistGradientBoostingClassifier()).fit(frame, loan)
    joblib.dump(pipeline, tmp_path / "m.joblib")
    frame.assign(loan=loan).to_csv(tmp_path / "loans.csv", index=False)
    (tmp_path / "loans.toml").write_text('label = "loan"\n')
    monkeypatch.chdir(tmp_path)
    words = r'the model fails on its rows \(TypeError: .*test_own_files.py, line.*parse_dates = \["opened"\]'
    with pytest.raises(ValueError, match=words):
        sz.evaluate("m.joblib", "loans.csv", "query-swap", steps=10)
    (tmp_path / "loans.toml").write_text('label = "loan"\n[read]\nparse_dates = ["opened"]\n')
    assert sz.evaluate("m.joblib", "loans.csv", "query-swap", steps=10, store="a.db").records()[0]["samples"] == 60
    done = run_command("attack", "m.joblib", "loans.csv", "--trust-code", "--target", 7)
    assert (done.code, "m.joblib knows classes 0 to 1 (no, yes)" in done.stderr) == (2, True)


def test_rows_that_a_model_does_not_take_are_left_out_and_counted(tmp_path):
    frame, loan = people(tmp_path, LogisticRegression)
    pipe, table = joblib.load(tmp_path / "m.joblib"), sz.data.Table.from_frame(frame.assign(loan=loan), "loan")
    gaps = int(frame["income"].isna().sum())
    with pytest.warns(UserWarning, match=f"{gaps} of 90 rows have a missing value and are left out"):
        found = sz.evaluate(pipe, table, "query-swap", steps=20)
    assert found.records()[0]["samples"] == 90 - gaps
    with pytest.raises(ValueError, match=r"4 columns.*table=table"):
        sz.wrap(pipe)(table.rows().images)
