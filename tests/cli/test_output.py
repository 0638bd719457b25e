"""What a command wrote is there, whatever becomes of what it prints; and what it prints is harmless."""

import csv
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sigmazero.cli import console
from tests.plans import PLAN

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).resolve().parents[2] / "src"
ATTACK = ("attack", "--model", "net.py:build", "--data", "mine.npz", "--device", "cpu", "--steps", "5")
AUTO = ("auto", *ATTACK[1:7], "--version", "quick", "--limit", "2")
WORDS = (["model"], ["attack"], ["dataset", "data"])
EVIL_PLAN = r"""
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
EVIL = "\x1b]0;owned\x07\x1b[31m\u202e"


EVERY_TABLE = """
from sigmazero.cli import app
report = ["report", "runs/größe.db"]
forms = ["terminal", "markdown", "csv", "latex"]
trusted = ["plan.toml", "--trust-code"]
plain = [["run", *trusted, "--device", "cpu"], ["status", *trusted], ["list", "models"], ["attack", "--help"]]
for arguments in [*plain, ["list", "attacks"], ["list", "datasets"], *([*report, "--to", form] for form in forms)]:
    try:
        app(arguments)
    except SystemExit as end:
        assert end.code == 0, arguments
"""


def shell(command, **more):
    """Run a line of bash, in which $PYTHON is Python and $SZ the command; the exit code is that of a pipe's first part.

    Both may be in a folder whose name has spaces.
    """
    line = command.replace("$SZ", "$PYTHON -m sigmazero").replace("$PYTHON", shlex.quote(sys.executable))
    line += "; exit ${PIPESTATUS[0]}"
    plain = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "PYTHONIOENCODING")}
    env = {**plain, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(SOURCES), **more}
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, env=env, check=False)


def rows(path):
    with np.load(path, allow_pickle=False) as file:
        return len(file["success"])


@pytest.mark.parametrize(("arguments", "count"), [(ATTACK, 12), (AUTO, 2)], ids=["attack", "auto"])
def test_a_reader_that_went_away_costs_no_result(own, arguments, count):
    done = shell(f"$SZ {' '.join(arguments)} --out kept.npz 2>&1 | true")
    assert (done.returncode, done.stdout, done.stderr) == (console.UNREAD, "", "")
    assert rows("kept.npz") == count
    assert (own / "kept.png").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_the_output_costs_no_result(own):
    done = shell(f"$SZ {' '.join(ATTACK)} --out kept.npz >/dev/full")
    assert done.returncode == console.UNWRITTEN
    assert done.stderr.splitlines()[-1].startswith("error: the output could not be written")
    assert "Exception ignored" not in done.stderr
    assert rows("kept.npz") == 12


def test_a_terminal_without_unicode_gets_plain_signs(folder):
    (folder / "plan.toml").write_text('name = "größe"\n' + PLAN, encoding="utf-8")
    # Python 3.11 itself does not start in such a locale from a folder whose name is not ASCII.
    plain = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C" if sys.prefix.isascii() else "C.UTF-8", "COLUMNS": "0"}
    (folder / "all.py").write_text(EVERY_TABLE, encoding="utf-8")
    done = shell("$PYTHON all.py", **plain)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert done.stderr == ""
    assert "rows stored in runs/gr\\xf6\\xdfe.db" in done.stdout


def test_results_are_printed_as_far_as_an_encoding_goes():
    assert "∞ – − σ".encode("ascii", "sigmazero") == b"inf - - sigma"
    assert "größe 日 \udcff".encode("latin-1", "sigmazero").decode("latin-1") == "größe \\u65e5 \\udcff"
    assert "\udcff".encode("utf-8", "sigmazero") == b"\\udcff"


@pytest.mark.parametrize("columns", ["0", "-5", "wide", "", "1"])
def test_a_width_that_is_none_is_forgotten(sigmazero, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert "sigma-zero" in "".join(sigmazero("list", "attacks").stdout.split()), "the table is empty"
    assert "sigma-zero" in "".join(sigmazero("attack", "--help").stdout.split())


def test_no_text_becomes_an_emoji_or_markup(sigmazero, own):
    done = sigmazero(*ATTACK, "--rows", "0:100:7")
    assert done.exit_code == 2
    assert "0:100:7" in done.stderr
    console.err().print("[red]:100:[/red]", end="")
    for name in (":100:.npz", "[bold].npz"):
        (own / name).write_bytes((own / "mine.npz").read_bytes())
        done = sigmazero("attack", "--model", "net.py:build", "--data", name, "--steps", 2, "--out", f"{name}-out.npz")
        assert f"sigma-zero against net.py:build on {name}" in done.stdout
        assert f"wrote {name}-out.npz" in done.stdout


def test_control_characters_of_names_do_not_reach_the_terminal(sigmazero, folder):
    name = f"mine{EVIL}.npz"
    (folder / name).write_bytes((folder / "mine.npz").read_bytes())
    (folder / "evil.toml").write_text(EVIL_PLAN)
    shown = [
        sigmazero("attack", "--model", "net.py:build", "--data", name, "--steps", 2),
        sigmazero("attack", "--model", "net.py:build", "--data", f"none{EVIL}.npz"),
        sigmazero("run", "evil.toml", "--trust-code", "--store", "evil.db", "--device", "cpu"),
        sigmazero("status", "evil.db"),
        sigmazero("report", "evil.db"),
        sigmazero("report", "evil.db", "--to", "terminal"),
        sigmazero("fetch", EVIL),
        sigmazero("validate", f"none{EVIL}.toml"),
    ]
    for done in shown:
        assert not re.search("[\0-\x08\x0b-\x1f\x7f-\x9f\u202e]", done.output), done.output
    assert [done.exit_code for done in shown] == [0, 2, 0, 0, 0, 0, 2, 2]
    assert "\\x1b]0;owned\\x07" in shown[0].stdout
    assert "a\\x1b[31m\\nb" in shown[3].stdout


def test_no_cell_of_a_csv_file_is_a_formula(sigmazero, folder):
    (folder / "plan.toml").write_text(
        'steps = 3\n[models."=1+1"]\nspec = "net.py:build"\n[attacks."@SUM(A1)"]\nattack = "fmn"\n'
        '[data."-2+3"]\nsource = "mine.npz"\n[[grid]]\nmodels = ["=1+1"]\nattacks = ["@SUM(A1)"]\ndata = ["-2+3"]\n'
    )
    assert sigmazero("run", "plan.toml", "--trust-code", "--store", "s.db", "--device", "cpu").exit_code == 0
    assert sigmazero("export", "s.db", "--out", "samples.csv").exit_code == 0
    table = sigmazero("report", "s.db", "--to", "csv").stdout
    for text in ((folder / "samples.csv").read_text(), table):
        lines = list(csv.DictReader(text.splitlines()))
        cells = [cell for line in lines for cell in line.values()]
        assert [cell for cell in cells if cell[:1] in tuple("=+-@\t") and not _is_number(cell)] == []
        names = [next(line[name] for name in names if name in line) for line in lines[:1] for names in WORDS]
        assert names == ["'=1+1", "'@SUM(A1)", "'-2+3"]
    with (folder / "samples.csv").open() as file:
        margins = [float(line["margin"]) for line in csv.DictReader(file)]
    assert min(margins) < 0, "numbers stay numbers"


def _is_number(text):
    return re.fullmatch(r"-?(inf|[\d.]+(e-?\d+)?)", text) is not None


def test_the_budget_of_the_papers_pgd_counts_pixels(sigmazero, own):
    paper = ("--attack", "pgd-l0-paper", "--budget", 3)
    done = sigmazero(*ATTACK, *paper)
    assert done.exit_code == 0, done.output
    assert "spends its budget on pixels, each with its 3 channels, and the table counts features" in done.stderr
    assert re.search(r"budget +3 pixels", done.stdout)
    done = sigmazero(*ATTACK, *paper, "--unit", "pixel")
    assert "spends its budget" not in done.stderr
    done = sigmazero(*ATTACK, "--attack", "pgd-l0", "--budget", 3)
    assert "pixels" not in done.output
    assert re.search(r"pgd-l0-paper +budget of pixels", sigmazero("list", "attacks").stdout)


@pytest.mark.parametrize("name", ["../out", "/tmp/out", "a/b", "a\\\\b", "..", "."])
def test_a_plans_name_stays_in_its_folder(sigmazero, folder, name):
    (folder / "plan.toml").write_text(f'\nname = "{name}"\n{PLAN}')
    for command in ("validate", "run", "status"):
        done = sigmazero(command, "plan.toml")
        assert done.exit_code == 2
        assert "plan.toml:2: name = " in done.stderr
        assert "must be the name of a file" in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == ["mine.npz", "net.py", "plan.toml"]


def test_a_byte_order_mark_is_no_part_of_a_text(sigmazero, folder):
    (folder / "plan.toml").write_text(PLAN, encoding="utf-8-sig")
    assert sigmazero("validate", "plan.toml").exit_code == 0
    (folder / "goals.txt").write_text("1 " * 24, encoding="utf-8-sig")
    done = sigmazero(*ATTACK, "--targets", "goals.txt")
    assert done.exit_code == 0, done.output


def test_ctrl_c_while_torch_is_loaded_is_one_line(own):
    (own / "torch.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    done = shell("$SZ --version", PYTHONPATH=f"{own}:{SOURCES}")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_error_that_names_a_file_of_another_encoding_is_stored_and_shown(sigmazero, folder):
    (folder / "net.py").write_text(
        "def build():\n    def ask(x):\n        if x.requires_grad:\n"
        "            raise RuntimeError('no \\udcff.txt')\n        return x.flatten(1)[:, :4] * 9\n    return ask\n"
    )
    (folder / "plan.toml").write_text(PLAN.replace(', "net.py:other"', ""))
    done = sigmazero("run", "plan.toml", "--trust-code", "--device", "cpu", "--store", "s.db")
    assert done.exit_code == 1, done.output
    assert "failed: sigma-zero against net.py:build on mine: no \\udcff.txt" in done.stderr
    assert "no \\udcff.txt" in sigmazero("status", "s.db").stderr
