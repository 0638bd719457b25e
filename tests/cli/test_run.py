"""`sigmazero run` with some models and attacks of a plan, and without running anything; other commands about stores."""

import csv
import re
import shutil
from pathlib import Path

import pytest

from sigmazero.bench.cells import Shard
from sigmazero.bench.plan import Plan
from sigmazero.cli.commands.run import store_path

pytestmark = pytest.mark.slow

CHOSEN = ("--model", "net.py:build", "--attack", "sigma-zero", "--trust-code", "--device", "cpu")
EVIL = r"""
steps = 3
[models."=1+1\u001b[31m"]
spec = "net.py:build"
[attacks."@SUM(A1)\u001b[31m\nb"]
attack = "fmn"
[data."-2+3\u009b\u202e"]
source = "mine.npz"
[[grid]]
models = ["=1+1\u001b[31m"]
attacks = ["@SUM(A1)\u001b[31m\nb"]
data = ["-2+3\u009b\u202e"]
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The path of a store that the first test that needs it makes."""
    return tmp_path_factory.mktemp("made") / "s.db"


@pytest.fixture
def stored(sigmazero, folder, made):
    """The current folder, with a store of one attack of the plan in runs/plan.db and in s.db."""
    if not made.exists():
        assert sigmazero("run", "plan.toml", *CHOSEN, "--store", made).exit_code == 0
    Path("runs").mkdir()
    for path in ("runs/plan.db", "s.db"):
        shutil.copy(made, path)


def test_a_dry_run_goes_by_what_is_stored(sigmazero, folder):
    dry = sigmazero("run", "plan.toml", "--model", "net.py:build", "--model", "net.py:other", *CHOSEN[2:], "--dry-run")
    assert "2 cells, 48 rows left, about" in dry.stdout
    assert "nothing was run" in dry.stdout
    assert not (folder / "runs").exists()


@pytest.mark.usefixtures("stored")
def test_a_dry_run_shows_what_is_done(sigmazero):
    done = sigmazero("run", "plan.toml", *CHOSEN[:2], *CHOSEN[4:], "--dry-run")
    assert "24/24" in done.stdout
    assert "0/24" in done.stdout


def test_trials_and_shards_have_stores_of_their_own():
    plan = Plan("p", "", ())
    names = [store_path(plan, None, limit, shard).name for limit in (None, 4) for shard in (None, Shard(3, 16))]
    assert names == ["p.db", "p-part-3-of-16.db", "p-limit-4.db", "p-limit-4-part-3-of-16.db"]


def test_names_command_neither_the_terminal_nor_a_spreadsheet(sigmazero, folder):
    (folder / "evil.toml").write_text(EVIL)
    shown = [
        sigmazero("run", "evil.toml", "--trust-code", "--store", "evil.db", "--device", "cpu"),
        sigmazero("status", "evil.db"),
        sigmazero("report", "evil.db"),
        sigmazero("fetch", "\x1b[31m"),
    ]
    for done in shown:
        assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]", done.output), done.output
    assert [done.exit_code for done in shown] == [0, 0, 0, 2]
    assert "@SUM(A1)\\x1b[31m\\nb" in shown[1].stdout
    for command in (("export", "evil.db", "-o", "-"), ("report", "evil.db", "--to", "csv")):
        lines = list(csv.DictReader(sigmazero(*command).stdout.splitlines(keepends=True)))
        cells = [cell for line in lines for cell in line.values() if cell]
        number = re.compile(r"-?(inf|[\d.]+(e-?\d+)?)")
        assert [cell for cell in cells if cell[:1] in tuple("=+-@\t") and not number.fullmatch(cell)] == []
        assert any(cell.startswith("'=1+1") for cell in cells)


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a\\\\b", ".."])
def test_a_plans_name_stays_in_its_folder(sigmazero, folder, name):
    plan = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(f'\nname = "{name}"\n{plan}')
    done = sigmazero("run", "plan.toml")
    assert done.exit_code == 2
    assert "plan.toml:2: name = " in done.stderr
    assert "must be the name of a file" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("plot", "curve"), "did you mean 'curves'"),
        (("plot", "curves", "--set", "lag=true"), "it has log, until"),
        (("plot", "curves", "--set", "until=x"), "until must be a whole number"),
        (("plot", "pareto", "--set", "log=true"), "it has none"),
        (("plot", "curves", "-o", "s.db"), "would overwrite"),
        (("plot", "curves", "-o", "c.gif"), "c.gif"),
        (("plot", "curves", "--cost"), "--cost"),
        (("report", "-o", "s.db", "--to", "csv"), "would overwrite"),
        (("report", "-o", "t.docx"), "t.docx"),
        (("report", "--samples", 3), "--samples 3"),
        (("report", "-o", "p.html", "--table", "minimum-norm"), "--table"),
        (("report", "-o", "p.html", "--cost"), "--cost"),
        (("report", "--k", "1,x"), "--k 1,x"),
        (("report", "s2.db", "s3.db"), "s3.db"),
    ],
)
@pytest.mark.usefixtures("stored")
def test_what_cannot_be_drawn_or_reported_is_named(sigmazero, words, said):
    done = sigmazero(words[0], "s.db", *words[1:])
    assert done.exit_code == 2, done.output
    assert said in done.stderr
