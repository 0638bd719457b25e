"""`sigmazero run` with some models and attacks of a plan, and without running anything; other commands about stores."""

import csv
import re

import pytest

from sigmazero.bench.cells import Shard
from sigmazero.bench.plan import Plan
from sigmazero.cli.commands.run import store_path

pytestmark = pytest.mark.slow

CHOSEN = ("--model", "net.py:build", "--attack", "sigma-zero", "--trust-code", "--device", "cpu")
EVIL = r"""
steps = 5
[models."m\u001b[31m"]
spec = "net.py:build"
[attacks."a\u001b[31m\nb"]
attack = "fmn"
[data."d\u009b\u202e"]
source = "mine.npz"
[[grid]]
models = ["m\u001b[31m"]
attacks = ["a\u001b[31m\nb"]
data = ["d\u009b\u202e"]
"""
FORMULAS = """
steps = 3
[models."=1+1"]
spec = "net.py:build"
[attacks."@SUM(A1)"]
attack = "fmn"
[data."-2+3"]
source = "mine.npz"
[[grid]]
models = ["=1+1"]
attacks = ["@SUM(A1)"]
data = ["-2+3"]
"""


def test_a_dry_run_goes_by_what_is_stored(sigmazero, folder):
    dry = sigmazero("run", "plan.toml", "--model", "net.py:build", "--model", "net.py:other", *CHOSEN[2:], "--dry-run")
    assert "2 cells, 48 rows left, about" in dry.stdout
    assert "nothing was run" in dry.stdout
    assert not (folder / "runs").exists()
    assert sigmazero("run", "plan.toml", *CHOSEN).exit_code == 0
    done = sigmazero("run", "plan.toml", *CHOSEN[:2], *CHOSEN[4:], "--dry-run")
    assert "24/24" in done.stdout
    assert "0/24" in done.stdout


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--model", "net.py:biuld"], "has no model 'net.py:biuld'; did you mean 'net.py:build'?"),
        (["--attack", "fmnn"], "has no attack 'fmnn'"),
    ],
)
def test_a_name_that_the_plan_lacks_is_one_line(sigmazero, folder, given, words):
    done = sigmazero("run", "plan.toml", *given, "--trust-code")
    assert done.exit_code == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_trials_and_shards_have_stores_of_their_own():
    plan = Plan("p", "", ())
    names = [store_path(plan, None, limit, shard).name for limit in (None, 4) for shard in (None, Shard(3, 16))]
    assert names == ["p.db", "p-part-3-of-16.db", "p-limit-4.db", "p-limit-4-part-3-of-16.db"]


def test_control_characters_of_names_do_not_reach_the_terminal(sigmazero, folder):
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
    assert "a\\x1b[31m\\nb" in shown[1].stdout


def test_no_cell_of_a_csv_file_is_a_formula(sigmazero, folder):
    (folder / "plan.toml").write_text(FORMULAS)
    assert sigmazero("run", "plan.toml", "--trust-code", "--store", "s.db", "--device", "cpu").exit_code == 0
    for command in (("export", "s.db", "-o", "-"), ("report", "s.db", "--to", "csv")):
        lines = list(csv.DictReader(sigmazero(*command).stdout.splitlines()))
        cells = [cell for line in lines for cell in line.values() if cell]
        number = re.compile(r"-?(inf|[\d.]+(e-?\d+)?)")
        assert [cell for cell in cells if cell[:1] in tuple("=+-@\t") and not number.fullmatch(cell)] == []
        assert "'=1+1" in cells


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/b", "a\\\\b", "..", "."])
def test_a_plans_name_stays_in_its_folder(sigmazero, folder, name):
    plan = (folder / "plan.toml").read_text()
    (folder / "plan.toml").write_text(f'\nname = "{name}"\n{plan}')
    done = sigmazero("run", "plan.toml")
    assert done.exit_code == 2
    assert "plan.toml:2: name = " in done.stderr
    assert "must be the name of a file" in done.stderr


def test_what_plot_cannot_draw_is_named(sigmazero, folder):
    assert sigmazero("run", "plan.toml", *CHOSEN, "--store", "s.db").exit_code == 0
    for words, said in (
        (("curve",), "did you mean 'curves'"),
        (("curves", "--set", "lag=true"), "it has log, until"),
        (("curves", "--set", "until=x"), "until=x must be a whole number"),
        (("pareto", "--set", "log=true"), "it has none"),
        (("curves", "-o", "s.db"), "the store itself"),
        (("curves", "-o", "c.gif"), "c.gif"),
        (("curves", "--cost"), "--cost"),
    ):
        done = sigmazero("plot", "s.db", *words)
        assert done.exit_code == 2, (words, done.output)
        assert said in done.stderr
    for words, said in (
        (("-o", "s.db", "--to", "csv"), "the store itself"),
        (("-o", "t.docx"), "t.docx"),
        (("--samples", 3), "--samples 3"),
        (("-o", "p.html", "--table", "minimum-norm"), "--table minimum-norm"),
        (("-o", "p.html", "--cost"), "--cost"),
        (("--k", "1.5"), "--k 1.5"),
        (("s2.db", "s3.db"), "s3.db"),
    ):
        done = sigmazero("report", "s.db", *words)
        assert done.exit_code == 2, (words, done.output)
        assert said in done.stderr
