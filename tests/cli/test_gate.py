"""`sigmazero auto` as a gate: one test per exit code, and the files that it leaves."""

import json
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.auto import versions
from sigmazero.auto.document import schema
from sigmazero.store.results import record_of
from sigmazero.testing import assert_robust

MINE = ("auto", "net.py:build", "mine.npz", "--device", "cpu", "--version", "quick", "--eps", 1)
FILES = ("--json", "gate.json", "--junit", "gate.xml", "--markdown", "gate.md")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cascade of two short members."""
    members = (sz.get("sigma-zero", steps=15), sz.get("fmn", steps=15))
    monkeypatch.setitem(versions.VERSIONS, "quick", versions.Version("quick", 0, members, members))


@pytest.fixture
def masked(own: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A network without gradients that errs only where two or more of four features change, and rows for it."""
    members = (sz.get("sigma-zero", steps=15), sz.get("sparse-rs", steps=30))
    monkeypatch.setitem(versions.VERSIONS, "quick", versions.Version("quick", 0, members, ()))
    (own / "masked.py").write_text(
        "import torch\n"
        "class Masked(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        total = (x.flatten(1)[:, :4] - 0.5).sign().sum(1, keepdim=True)\n"
        "        return torch.cat([total, 0 * total], 1)\n"
        "def build(): return Masked()\n"
    )
    images = np.full((8, 3, 4, 5), 0.9, dtype=np.float32)
    images[4:] = 0.1
    np.savez(own / "masked.npz", images=images, labels=np.array([0] * 4 + [1] * 4))
    return own


def record(path: Path = Path("gate.json")) -> dict[str, Any]:
    """What a gate wrote, checked against the schema."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    import_module("jsonschema").Draft202012Validator(schema()).validate(found)
    return found


def test_exit_0_and_1_around_the_very_figure(sigmazero, own):
    measured = sigmazero(*MINE, *FILES)
    assert measured.exit_code == 0, measured.output
    found = record()
    robust = found["robust_accuracy"]
    assert (found["outcome"], found["complete"], robust["of"]) == ("measured", True, 12)
    assert 0 < robust["count"] < 12
    enough, more = 100 * robust["count"] / 12 - 0.01, 100 * robust["count"] / 12 + 0.01
    passed = sigmazero(*MINE, *FILES, "--fail-under", enough)
    assert passed.exit_code == 0, passed.output
    assert record()["outcome"] == "passed"
    assert "passed: robust accuracy under 1 features" in passed.stdout
    below = sigmazero(*MINE, *FILES, "--fail-under", more)
    assert below.exit_code == 1, below.output
    assert (record()["outcome"], record()["exit_code"]) == ("below", 1)
    assert "failed: robust accuracy" in below.stdout


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--fail-under", 0.6), "--fail-under 0.6 must be in percent"),
        (("--fail-under", 101), "--fail-under 101 must be in percent"),
        (("--allow", "SZ999"), "SZ999 is no code of a finding; there are SZ001 to"),
        (("--json", "mine.npz"), "--json mine.npz is what --data names too"),
        (("--json", "a.txt", "--junit", "a.txt"), "--junit a.txt is what --json names too"),
        (("--json", "."), "is a folder; name a file"),
    ],
)
def test_exit_2_for_misuse(sigmazero, own, more, said):
    done = sigmazero(*MINE, *more)
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert sorted(path.name for path in own.iterdir()) == ["mine.npz", "net.py"]


def test_exit_2_without_a_number_of_changes(sigmazero, own):
    done = sigmazero(*MINE[:-2], "--fail-under", 60)
    assert done.exit_code == 2, done.output
    assert "add --eps K" in done.stderr


def test_exit_3_for_findings_unless_they_are_accepted(sigmazero, masked):
    asked = ("auto", "masked.py:build", "masked.npz", "--version", "quick", "--eps", 1, *FILES)
    done = sigmazero(*asked, "--fail-under", 60)
    assert done.exit_code == 3, done.output
    found = record()
    assert (found["outcome"], found["robust_accuracy"]["value"]) == ("findings", 1.0)
    assert [each["code"] for each in found["findings"] if each["severity"] == "error"] == ["SZ004"]
    assert "not to be believed (SZ004)" in done.stdout
    assert sigmazero(*asked).exit_code == 3  # also where nothing is asked for
    suite = ElementTree.parse("gate.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    accepted = sigmazero(*asked, "--fail-under", 60, "--allow", "SZ004")
    assert accepted.exit_code == 0, accepted.output
    assert record()["question"]["allow"] == ["SZ004"]
    assert "accepted" in Path("gate.md").read_text(encoding="utf-8")
    assert sigmazero(*asked, "--fail-under", 60, "--no-doctor").exit_code == 0
    below = sigmazero(*asked, "--eps", 50, "--fail-under", 60)  # what is fooled is a fact, whatever else is wrong
    assert below.exit_code == 1, below.output


def test_it_ends_when_the_figure_cannot_be_reached_any_more(sigmazero, own):
    asked = (*MINE, "--eps", 5, "--batch-size", 4, "--fail-under", 90, *FILES)
    assert sigmazero(*asked).exit_code == 1
    early = record()
    assert early["complete"] is False
    assert early["clean_accuracy"] is None
    assert sum(each["attacked"] for each in early["members"]) < 12
    assert sigmazero(*asked, "--complete").exit_code == 1
    late = record()
    assert late["complete"] is True
    assert late["clean_accuracy"] == 1
    assert late["members"][0]["attacked"] == 12
    assert late["robust_accuracy"]["count"] <= early["robust_accuracy"]["count"]
    low, high = (early["robust_accuracy"]["interval"][end] for end in ("low", "high"))
    assert low <= late["robust_accuracy"]["value"] <= high


def test_one_line_if_quiet(sigmazero, own):
    done = sigmazero(*MINE, "--fail-under", 1, "--quiet", "--json", "gate.json", "--out", "res")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    assert done.stdout.startswith("passed: ")
    assert done.stdout.count("\n") == 1
    assert record_of("res/result.npz") == Path("gate.json").read_text(encoding="utf-8")


def test_the_record_says_what_was_measured(sigmazero, own):
    assert sigmazero(*MINE, "--out", "res", "--rows", "2:8", "--seed", 3, *FILES).exit_code == 0
    found = record()
    assert found["data"]["rows"] == 6
    kept = sz.load_result("res/result.npz")
    assert kept.ids.tolist() == [2, 3, 4, 5, 6, 7]
    assert found["robust_accuracy"]["count"] == int((~kept.success).sum())
    assert sum(each["improved"] for each in found["members"]) == int(kept.success.sum())
    assert sum(each["queries"] for each in found["members"]) == int((kept.forwards + kept.backwards).sum())
    assert found["members"][-1]["robust_after"] == found["robust_accuracy"]["count"]
    assert found["question"]["seed"] == 3
    interval = found["robust_accuracy"]["interval"]
    assert interval["low"] < found["robust_accuracy"]["value"] < interval["high"]
    before = {name: found[name] for name in ("model", "data", "code")}
    (own / "net.py").write_text((own / "net.py").read_text().replace("manual_seed(0)", "manual_seed(5)"))
    assert sigmazero(*MINE, "--rows", "2:9", *FILES).exit_code == 0
    assert record()["model"]["weights"] != before["model"]["weights"]
    assert record()["model"]["code"] != before["model"]["code"]
    assert record()["data"]["content"] != before["data"]["content"]
    assert record()["code"] == before["code"]


def test_the_other_files(sigmazero, own):
    assert sigmazero(*MINE, "--fail-under", 100, *FILES).exit_code == 1
    suite = ElementTree.parse("gate.xml").getroot().find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    assert [case.get("name") for case in suite.iter("testcase")] == ["robust accuracy", "findings"]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "at least 100.0 % wanted" in failure.get("message", "")
    summary = Path("gate.md").read_text(encoding="utf-8")
    assert summary.startswith("## ❌ net.py:build on mine.npz")
    assert "| sigma-zero | " in summary
    assert record()["model"]["weights"][:12] in summary


def test_without_eps_there_is_a_curve(sigmazero, own):
    assert sigmazero(*MINE[:-2], "--limit", 4, *FILES).exit_code == 0
    found = record()
    assert found["robust_accuracy"] is None
    assert [point["k"] for point in found["curve"]] == [10, 24, 50]
    assert found["median_l0"] > 0


def test_a_dry_run_says_what_it_costs_and_runs_nothing(sigmazero, own):
    done = sigmazero(*MINE, "--dry-run", "--fail-under", 60, "--state", "s.db", *FILES)
    assert done.exit_code == 0, done.output
    # Twice 15 steps of two queries.
    assert "at most 60 queries a row, 720 in all, about" in done.stdout
    assert "nothing was run" in done.stdout
    assert sorted(path.name for path in own.iterdir() if path.is_file()) == ["mine.npz", "net.py"]


OTHER: dict[tuple[str | int, ...], Any] = {
    ("outcome",): "fine",
    ("robust_accuracy", "value"): 1.2,
    ("robust_accuracy", "interval", "level"): 0.9,
    ("members", 0, "queries"): "many",
    ("model", "weights"): "abc",
    ("question", "other"): 1,
}


def test_the_schema_refuses_other_records(sigmazero, own):
    assert sigmazero(*MINE, "--limit", 2, "--json", "gate.json").exit_code == 0
    right = record()
    for place, value in OTHER.items():
        found: Any = deepcopy(right)
        inner = found
        for step in place[:-1]:
            inner = inner[step]
        inner[place[-1]] = value
        assert not import_module("jsonschema").Draft202012Validator(schema()).is_valid(found), place


def test_from_python(own):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(60, 4))
    with np.load(own / "mine.npz") as mine:
        x, y = torch.from_numpy(mine["images"]), torch.from_numpy(mine["labels"])
    found = sz.gate(network, (x, y), eps=1, at_least=0.1, version="quick")
    assert found.passed
    assert found.robust_accuracy == found.report.robust_accuracy()
    Path("gate.json").write_text(found.json(), encoding="utf-8")
    assert record()["model"] == {"name": "Sequential", **{n: found.document["model"][n] for n in ("weights", "code")}}
    with pytest.raises(AssertionError, match=r"failed: robust accuracy under 1 features .* at least 100.0 % wanted"):
        assert_robust(network, (x, y), eps=1, at_least=1.0, version="quick")

    def rounded(x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = network(x.round())
        return answer

    with pytest.raises(AssertionError, match=r"(?s)not to be believed \(SZ004\).*\nSZ004: .*Fix: "):
        assert_robust(rounded, (x, rounded(x).argmax(1)), eps=1, at_least=0.0, version="quick")
    with pytest.raises(ValueError, match="at_least=60 must be a share from 0 to 1"):
        assert_robust(network, (x, y), eps=1, at_least=60)
