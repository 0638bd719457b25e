"""Spaces at every door of the command line: what they do there, and one line for each misuse."""

import re

import numpy as np
import pytest

from tests.helpers import loans

SPACE = ("--space", "loan.toml")
MODEL = ("net.py:build", "loans.npz", "--device", "cpu")
DOORS = {
    "attack": ("attack", *MODEL, "--attack", "corner"),
    "auto": ("auto", *MODEL, "--cascade", "quick"),
    "doctor": ("doctor", "net.py:build", "loans.npz", "--device", "cpu"),
}
PLAN = loans.WITH_SPACE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    loans.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_attack_in_a_space(sigmazero):
    done = sigmazero(*DOORS["attack"], *SPACE, "--out", "res.npz")
    assert done.exit_code == 0, done.output
    shown = re.findall(r"(ASR at [\w∞ ]+?)  ", done.stdout)
    assert shown == ["ASR at 1", "ASR at ∞", "ASR at cost 1"]
    assert "refused → granted: job: clerk → nurse" in done.stdout
    assert "... and" in done.stdout
    with np.load("res.npz") as kept:
        assert kept["cost"].shape == (12,)
    ends = sigmazero(*DOORS["attack"], "--bounds", 0, 1000, "--budget", 1)
    assert ends.exit_code == 0, ends.output
    assert "feature" not in ends.stdout  # the data has names, and so has what changed
    assert re.search(r"row \d+, refused → granted: \w+: \d+ → \d+", ends.stdout)


@pytest.mark.usefixtures("folder")
def test_auto_in_a_space(sigmazero):
    done = sigmazero(*DOORS["auto"], *SPACE, "--store", "auto.db", "--rows", "0:2")
    assert done.exit_code == 0, done.output
    assert "robust accuracy at cost 1" in done.stdout
    assert "median cost" in done.stdout
    assert "row 0, refused → granted: job" in done.stdout
    again = sigmazero(*DOORS["auto"], *SPACE, "--store", "auto.db", "--rows", "0:2")
    assert again.exit_code == 0, again.output
    other = sigmazero(*DOORS["auto"], "--bounds", 0, 1000, "--store", "auto.db", "--rows", "0:2")
    assert other.exit_code == 0, other.output  # another question has cells of its own
    assert "cost" not in other.stdout


@pytest.mark.usefixtures("folder")
def test_doctor_in_a_space(sigmazero, folder):
    assert sigmazero(*DOORS["doctor"]).exit_code == 3  # the inputs are not between 0 and 1
    assert "nothing wrong" in sigmazero(*DOORS["doctor"], *SPACE).stdout
    (folder / "odd.toml").write_text(loans.SPACE.replace("upper = 90", "upper = 30").replace("cost = 3", "cost = 9999"))
    done = sigmazero(*DOORS["doctor"], "--space", "odd.toml")
    assert done.exit_code == 3
    assert "SZ017 error" in done.stdout
    assert "feature 'age' of input row 0" in done.stdout


@pytest.mark.usefixtures("folder")
def test_draft_and_check(sigmazero, folder):
    draft = sigmazero("space", "draft", "loans.npz")
    assert draft.exit_code == 0, draft.output
    assert draft.stderr.count("\n") == 1
    assert "correct ends, directions and costs" in draft.stderr
    (folder / "draft.toml").write_text(draft.stdout)
    for name in ("draft.toml", "loan.toml"):
        done = sigmazero("space", "check", name, "loans.npz")
        assert done.exit_code == 0, done.output
        assert "12 rows, 6 features: all legal" in done.stdout
    assert re.search(r"job +one of 3 +0 +1 +both +1", done.stdout)
    assert re.search(r"age +integer +17 +90 +up +1", done.stdout)
    (folder / "odd.toml").write_text(loans.SPACE.replace("upper = 90", "upper = 30"))
    wrong = sigmazero("space", "check", "odd.toml", "loans.npz")
    assert wrong.exit_code == 1
    assert "not all legal" in wrong.stdout
    (folder / "loans.space.toml").write_text(loans.SPACE)
    assert "the data comes with this space" in sigmazero("space", "draft", "loans.npz").stderr
    np.savez("grey.npz", images=np.arange(48, dtype="uint8").reshape(3, 4, 4), labels=np.zeros(3, dtype=int))
    grey = sigmazero("space", "draft", "grey.npz").stdout.splitlines()
    assert grey == ["# every pixel goes from 0 to 1 in steps of 1/255", f"grid = {1 / 255}"]


def test_the_notes_of_a_table_are_no_space(sigmazero, folder):
    (folder / "own.csv").write_text("age,y\n1,0\n2,1\n")
    (folder / "own.toml").write_text('label = "y"\n')
    done = sigmazero("space", "check", "own.toml", "own.csv")
    assert done.exit_code == 2
    assert "own.toml: holds the notes of a table, not a space; give own.space.toml" in done.stderr


@pytest.mark.parametrize("door", [*DOORS, "check", "run"])
def test_misuse_is_one_line_at_every_door(sigmazero, folder, door):
    (folder / "typo.toml").write_text(loans.SPACE.replace('["job=clerk",', '["job=clrek",'))
    (folder / "short.toml").write_text("[feature.age]\nupper = 90\n[feature.gain]\nupper = 1000\n")
    wanted = {
        "typo.toml": "typo.toml: space: there is no feature 'job=clrek'; did you mean 'job=clerk'?",
        "gone.toml": "gone.toml: no",
        "short.toml": "2 names for 6 features",
        "narrow.toml": "feature 'age' of input row",
    }
    (folder / "narrow.toml").write_text(loans.SPACE.replace("upper = 90", "upper = 30"))
    for file, words in wanted.items():
        if door == "run":
            (folder / "plan.toml").write_text(PLAN.replace("loan.toml", file))
            done = sigmazero("run", "plan.toml", "--store", "r.db", "--trust-code")
        elif door == "check":
            done = sigmazero("space", "check", file, "loans.npz")
        else:
            done = sigmazero(*DOORS[door], "--space", file)
        if (door in ("doctor", "check") and file == "narrow.toml") or (door == "doctor" and file == "short.toml"):
            code = 1 if door == "check" else 3  # a finding, and not an error
            assert (done.exit_code, words in done.output) == (code, True), done.output
            continue
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
        assert words in done.stderr


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ((*SPACE, "--bounds", 0, 1), "--bounds and --space are both given"),
        (("--bounds", 1000, 0), "the lower bound lies above the upper bound"),
    ],
)
def test_wrong_bounds_are_one_line(sigmazero, more, words):
    done = sigmazero(*DOORS["attack"], *more)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert words in done.stderr
