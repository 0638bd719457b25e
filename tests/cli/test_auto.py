"""`sigmazero auto`: a figure, and a gate with an exit code for each outcome."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sigmazero as sz
from sigmazero.auto import CASCADES, Cascade, Verdict
from sigmazero.store.results import record_of

MINE = ("auto", "net.py:build", "mine.npz", "--device", "cpu", "--cascade", "quick", "--eps", 1)
FILES = ("--json", "gate.json", "--markdown", "gate.md")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the cascade to two attacks."""
    cascade = Cascade("quick", 1, (sz.get("sigma-zero", steps=15), sz.get("fmn", steps=15)))
    monkeypatch.setitem(CASCADES, "quick", dict.fromkeys(("few", "budget", "minimum"), cascade))


def record(path: str = "gate.json") -> dict[str, Any]:
    """Return a written record; it must be what the class says."""
    text = Path(path).read_text(encoding="utf-8")
    assert json.loads(Verdict.model_validate_json(text).to_json()) == json.loads(text)
    found: dict[str, Any] = json.loads(text)
    return found


def test_exit_0_and_1_around_the_very_figure(sigmazero, own):
    measured = sigmazero(*MINE, *FILES)
    assert measured.exit_code == 0, measured.output
    found = record()
    figure = found["figure"]
    assert (found["outcome"], found["complete"], figure["of"]) == ("measured", True, 12)
    assert 0 < figure["count"] < 12
    enough, more = (100 * figure["count"] / 12 + each for each in (-0.01, 0.01))
    passed = sigmazero(*MINE, *FILES, "--fail-under", enough)
    assert (passed.exit_code, record()["outcome"]) == (0, "passed"), passed.output
    assert "passed: robust accuracy with at most 1 changed feature:" in passed.stdout
    below = sigmazero(*MINE, *FILES, "--fail-under", more)
    assert (below.exit_code, record()["outcome"], record()["exit_code"]) == (1, "below", 1), below.output
    assert Path("gate.md").read_text(encoding="utf-8").startswith("## ❌ net.py:build on mine.npz")
    # The lower end of the interval is below the figure.
    low = sigmazero(*MINE, *FILES, "--fail-under", 100 * figure["low"], "--lower-end")
    assert low.exit_code == 0, low.output
    assert record()["question"]["needed"] == figure["count"]
    assert sigmazero(*MINE, *FILES, "--fail-under", enough, "--lower-end").exit_code == 1


@pytest.mark.parametrize(
    ("more", "value"),
    [
        (("--fail-under", 0.6), "--fail-under 0.6"),
        (("--lower-end",), "lower_end"),
        (("--json", "mine.npz"), "mine.npz"),
        (("--json", "a.txt", "--markdown", "a.txt"), "a.txt would overwrite a.txt"),
        (("--json", "."), "folder"),
        (("--eps", 0), "eps=0"),
        (("--batch-size", 0), "bs=0"),
        (("--proofs", "none.db"), "none.db"),
    ],
)
def test_exit_2_for_misuse(sigmazero, own, more, value):
    done = sigmazero(*MINE, *more)
    assert done.exit_code == 2, done.output
    assert value in done.stderr
    assert sorted(path.name for path in own.iterdir()) == ["mine.npz", "net.py"]


def test_exit_2_without_a_number_of_changes(sigmazero, own):
    done = sigmazero(*MINE[:-2], "--fail-under", 60)
    assert done.exit_code == 2, done.output
    assert "--eps K" in done.stderr


@pytest.fixture
def masked(own: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, ...]:
    """A model without gradients that errs only where two or more of four features change, and rows for it."""
    cascade = Cascade("quick", 1, (sz.get("sigma-zero", steps=15), sz.get("sparse-rs", steps=30)))
    monkeypatch.setitem(CASCADES, "quick", dict.fromkeys(("few", "budget"), cascade))
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
    return ("auto", "masked.py:build", "masked.npz", "--cascade", "quick", "--eps", 1, *FILES)


def test_exit_3_for_findings_unless_they_are_accepted(sigmazero, masked):
    done = sigmazero(*masked, "--fail-under", 60)
    assert done.exit_code == 3, done.output
    found = record()
    assert (found["outcome"], found["figure"]["value"]) == ("findings", 1.0)
    assert [each["code"] for each in found["findings"] if each["severity"] == "error"] == ["SZ004"]
    assert "inconclusive (SZ004)" in done.stdout
    assert sigmazero(*masked).exit_code == 3  # also where nothing is asked for
    accepted = sigmazero(*masked, "--fail-under", 60, "--allow", "SZ004")
    assert accepted.exit_code == 0, accepted.output
    assert record()["question"]["allow"] == ["SZ004"]
    assert "accepted" in Path("gate.md").read_text(encoding="utf-8")
    below = sigmazero(*masked, "--eps", 50, "--fail-under", 60)  # what is fooled is a fact, whatever else is wrong
    assert below.exit_code == 1, below.output
    assert below.stderr.count("SZ014") == 1


def test_the_record_says_what_was_measured(sigmazero, own):
    done = sigmazero(*MINE, "-o", "r.npz", "--rows", "2:8", "--seed", 3, "--store", "s.db", *FILES)
    assert done.exit_code == 0, done.output
    assert "quick 1, 6 samples, at most 1 features: clean accuracy 100.0%" in done.stdout
    found = record()
    kept = sz.load_result("r.npz")
    assert kept.ids.tolist() == [2, 3, 4, 5, 6, 7]
    assert record_of("r.npz") == Path("gate.json").read_text(encoding="utf-8")
    assert found["figure"]["count"] == int((~kept.success).sum())
    assert sum(each["improved"] for each in found["members"]) == int(kept.success.sum())
    assert sum(each["queries"] for each in found["members"]) == int((kept.forwards + kept.backwards).sum())
    assert (found["data"]["rows"], found["question"]["seed"]) == (6, 3)
    again = sigmazero(*MINE, "--rows", "2:8", "--seed", 3, "--store", "s.db")
    assert again.stdout == done.stdout
    before = {name: found[name] for name in ("model", "data")}
    (own / "net.py").write_text((own / "net.py").read_text().replace("manual_seed(0)", "manual_seed(5)"))
    assert sigmazero(*MINE, "--rows", "2:9", *FILES).exit_code == 0
    now = record()
    assert now["model"]["weights"] != before["model"]["weights"]
    assert now["model"]["code"] != before["model"]["code"]
    assert now["data"]["content"] != before["data"]["content"]


def test_a_dry_run_says_what_it_costs_and_runs_nothing(sigmazero, own):
    done = sigmazero(*MINE, "--dry-run", "--fail-under", 60, "--store", "s.db", *FILES)
    assert done.exit_code == 0, done.output
    # Twice 15 steps of two queries.
    assert "at most 60 queries a row, 720 in all; the model alone takes about" in done.stdout
    assert sorted(path.name for path in own.iterdir() if path.is_file()) == ["mine.npz", "net.py"]
