"""`sigmazero attack`: a sentence, a table, files, a store that goes on, and mistakes that are named."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import sigmazero as sz
from sigmazero.store.store import Store
from tests.cli.conftest import NET

MINE = ("attack", "net.py:build", "mine.npz", "--device", "cpu")
ROUNDS = """
import torch

class Rounds(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(60, 4, generator=torch.Generator().manual_seed(0)))

    def forward(self, x):
        return x.round().flatten(1) @ self.weight

def build(): return Rounds()
"""
LIMITED = """
import sigmazero as sz
import net
def build(): return sz.limit(net.build(), ability="scores", max_batch=4, max_queries={})
"""

LIMITED_PLAN = """
[data.rows]
source = "mine.npz"
[[grid]]
models = ["limited.py:build"]
data = ["rows"]
attacks = ["query-swap"]
"""


def test_a_sentence_then_the_table(sigmazero, own):
    done = sigmazero(*MINE, "--steps", 40, "-o", "r.npz")
    assert done.exit_code == 0, done.output
    result = sz.load_result("r.npz")
    first = done.stdout.splitlines()[0]
    said = re.fullmatch(
        r"Half of 12 images are fooled by changing ([\d.]+|one) of 60 values? \(sigma-zero\); "
        r"weakest: row (\d+), (\w+) values?\.",
        first,
    )
    assert said, first
    assert float(said[1].replace("one", "1")) == result.median_l0
    least = result.l0[result.l0 > 0].min()
    assert result.l0[int(said[2])] == least == float(said[3].replace("one", "1"))
    for name in ("clean accuracy", "ASR at ∞", "median l0", "mean l0", "queries per sample", "seconds per sample"):
        assert name in done.stdout
    assert done.stderr.splitlines()[-1] == "wrote r.npz"


def test_a_store_is_gone_on_with(sigmazero, own):
    command = (*MINE, "--steps", 5, "--store", "s.db", "--attack", "sigma-zero", "--attack", "fmn")
    done = sigmazero(*command)
    assert done.exit_code == 0, done.output
    assert done.stderr.splitlines()[-1] == "wrote s.png"
    with Store("s.db") as store:
        assert {info.attack for info in store.cells()} == {"sigma-zero", "fmn"}
    again = sigmazero(*command)
    assert again.stdout == done.stdout
    assert "already done: s.db has every row" in again.stderr
    assert "fmn" in sigmazero("report", "s.db").stdout
    assert sigmazero("verify", "s.db", "--trust-code", "--device", "cpu").exit_code == 0
    assert sigmazero("report", "s.db", "-o", "page.html").exit_code == 0


def test_samples_go_to_a_table_and_rows_that_are_not_shown_are_named(sigmazero, own):
    mine = np.load("mine.npz")
    np.savez("flat.npz", images=mine["images"].reshape(12, 60), labels=mine["labels"])
    done = sigmazero("attack", "net.py:build", "flat.npz", "--steps", 40, "-o", "t.csv", "--store", "s.db")
    assert done.exit_code == 0, done.output
    lines = Path("t.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 13
    assert lines[0].endswith("index,value")
    (way,) = re.findall(r"^\.\.\. and \d+ more rows; to see them: sigmazero (.*)$", done.stdout, re.MULTILINE)
    assert sigmazero(*way.replace("FILE.csv", "all.csv").split()).exit_code == 0
    assert Path("all.csv").read_text(encoding="utf-8") == Path("t.csv").read_text(encoding="utf-8")
    again = sigmazero("attack", "net.py:build", "flat.npz", "--steps", 40)
    assert "--store FILE keeps them" in again.stdout
    assert sigmazero("attack", "net.py:build", "flat.npz", "--steps", 3, "--store", "s2.db").exit_code == 0
    assert not list(own.glob("*.png")), "inputs that are not images have no picture"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--set", "threshold"), "write --set threshold=VALUE"),
        (("--set", "threshold=x"), "threshold='x' must be a finite number"),
        (("--target", "cow"), "--target cow is not a class"),
        (("--target", "9"), "9"),
        (("-o", "net.py"), "-o net.py: end the name in"),
        (("-o", "mine.npz"), "would overwrite mine.npz"),
        (("-o", "a.npz", "--attack", "fmn", "--attack", "vfga"), "one --attack"),
        (("--batch-size", "0"), "batch_size=0"),
        (("--budget", "-3"), "budget=-3 must be a whole number of changes, 0 or more; leave it out"),
        (("--weights", "nt.pt"), "nt.pt: no such file of weights; check the path"),
        (("--bounds", "255", "0"), "the lower bound lies above the upper bound: 255 above 0; swap them"),
        (("--bounds", "0", "0.5"), "bounds=(lower, upper) (on the command line: --bounds lower upper)"),
        (("--allow", "SZ999"), "SZ999"),
    ],
)
def test_wrong_options_are_named(sigmazero, own, more, said):
    done = sigmazero(*MINE, *more)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert done.stderr.count("error: ") == done.stderr.count("\n") == 1


def test_wrong_data_is_named_with_the_fix(sigmazero, own):
    done = sigmazero("attack", "net.py:build", "min.npz")
    assert "min.npz: no such file; did you mean mine.npz? " in done.stderr
    assert "(on the command line: sigmazero list datasets)" in done.stderr
    np.savez("bytes.npz", images=np.linspace(0, 255, 120).reshape(2, 3, 4, 5), labels=np.arange(2))
    done = sigmazero("attack", "net.py:build", "bytes.npz")
    assert "give bounds=(0, 255) (on the command line: --bounds 0 255)" in done.stderr


def test_what_was_found_before_a_limit_ended_is_kept_and_the_rest_is_named(sigmazero, own, monkeypatch):
    monkeypatch.syspath_prepend(str(own))
    (own / "limited.py").write_text(LIMITED.format(500))
    more = ("--attack", "query-swap", "--steps", 80, "--store", "s.db", "--batch-size", 4)
    done = sigmazero("attack", "limited.py:build", "mine.npz", *more)
    assert done.exit_code == 1, done.output
    assert re.search(
        r"error: query-swap against limited.py:build: rows [\d to,]+ were not answered: .*500", done.stderr
    )
    assert re.search(r"samples +([4-9]|1[01]) ", done.stdout)


@pytest.mark.parametrize(
    "words",
    [
        ("attack", "limited.py:build", "mine.npz"),
        ("auto", "limited.py:build", "mine.npz", "--eps", 2),
        ("run", "plan.toml", "--trust-code"),
    ],
)
def test_a_limit_that_cannot_suffice_is_refused_before_the_first_query(sigmazero, own, monkeypatch, words):
    monkeypatch.syspath_prepend(str(own))
    (own / "limited.py").write_text(LIMITED.format(23))
    (own / "plan.toml").write_text(LIMITED_PLAN)
    done = sigmazero(*words, "--device", "cpu")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "max_queries=23 cannot suffice: a batch of 4 rows needs at least 24 queries, and 23 are left" in done.stderr
    assert not list(own.rglob("*.db"))


def test_masked_gradients_end_with_3_unless_allowed(sigmazero, own):
    (own / "rounds.py").write_text(ROUNDS)
    images = np.random.default_rng(0).random((20, 3, 4, 5), dtype=np.float32)
    labels = sz.models.load("rounds.py:build")(torch.from_numpy(images)).argmax(1)
    np.savez(own / "rounds.npz", images=images, labels=labels.numpy())
    command = ("attack", "rounds.py:build", "rounds.npz", "--steps", 5, "--device", "cpu", "--store", "s.db")
    done = sigmazero(*command)
    assert done.exit_code == 3, done.output
    assert done.stderr.splitlines()[-1].endswith("To accept them: --allow SZ004")
    assert done.stderr.count("The gradient of the margin is exactly zero") == 1
    assert "ASR" in done.stdout  # the figures are there
    assert sigmazero(*command, "--allow", "sz003", "--allow", "sz004").exit_code == 0
    assert sigmazero(*command, "--allow", "SZ003").exit_code == 3


def test_a_folder_of_pictures_and_a_class_by_its_name(sigmazero, own):
    rng = np.random.default_rng(0)
    space: dict[str, object] = {}
    exec(NET, space)
    model = space["build"]()
    for name in ("ant", "bee", "cat", "dog"):
        (own / "photos" / name).mkdir(parents=True)
    for number in range(12):
        pixels = rng.integers(0, 256, (4, 5, 3), dtype=np.uint8)
        label = int(model(torch.from_numpy(pixels).permute(2, 0, 1)[None] / 255).argmax())
        Image.fromarray(pixels).save(own / "photos" / ("ant", "bee", "cat", "dog")[label] / f"{number:02}.png")
    command = ("attack", "net.py:build", "photos/", "--steps", 20, "-o", "r.npz", "--target", "cat")
    done = sigmazero(*command)
    assert done.exit_code == 0, done.output
    assert "photos holds 8-bit values; they were divided by 255" in done.stderr
    result = sz.load_result("r.npz")
    assert result.classes == ("ant", "bee", "cat", "dog")
    assert set(result.prediction[result.success].tolist()) == {2}
    wrong = sigmazero(*command[:-1], "cow")
    assert "--target cow is not a class; its names are ant, bee, cat, dog" in wrong.stderr
