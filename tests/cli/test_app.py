"""The top of the command line: help without torch, exit codes, and one line for every error."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from sigmazero.cli import commands
from sigmazero.cli.app import NAMES, PANELS, App, top

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "sigmazero" / "cli" / "commands"


def python(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=env, check=False)


EVERY_HELP = """
import sys
from sigmazero.cli import app
for words in WORDS:
    try:
        app(words)
    except SystemExit as end:
        assert end.code == 0, words
print(sorted(sys.modules))
"""


def test_help_loads_neither_torch_nor_numpy():
    words = [["--version"], ["--help"], *([name, "--help"] for name in NAMES)]
    done = python("-c", EVERY_HELP.replace("WORDS", repr(words)))
    assert done.returncode == 0, done.stderr
    assert not re.findall(r"'(torch|numpy|pandas|matplotlib)'", done.stdout.splitlines()[-1])


def test_the_command_on_the_page_about_commands_works(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "adding-a-command.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "hello.py").write_text(block, encoding="utf-8")
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])
    monkeypatch.setattr(import_module("sigmazero.cli.app"), "NAMES", (*NAMES, "hello"))
    monkeypatch.setitem(PANELS, "Leaderboard", ("board", "hello"))
    made = typer.Typer(cls=App)
    made.callback()(top)
    done = CliRunner().invoke(made, ["hello", "--name", "x"])
    sys.modules.pop(f"{commands.__name__}.hello")
    assert done.exit_code == 0, done.output
    assert re.fullmatch(r"Hello x, there are \d+ attacks\.\n", done.stdout)


ATTACK = ("attack", "net.py:build", "mine.npz", "--device", "cpu")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def build(:\n", r"net.py failed: SyntaxError: .*line 2"),
        ("def build():\n    return lambda x: 1 // 0\n", r"ZeroDivisionError: .*net.py, line 3"),
        ("def build(size):\n    return None\n", r"net.py:build failed: TypeError: .*without arguments"),
    ],
)
def test_errors_of_a_users_code_keep_their_kind_and_line(sigmazero, own, code, said):
    (own / "net.py").write_text(f"import torch\n{code}")
    done = sigmazero(*ATTACK)
    assert done.exit_code == 2
    assert re.search(said, done.stderr), done.stderr
    assert "bug" not in done.stderr
    assert done.stderr.count("error: ") == 1


def test_a_bug_of_ours_does_not_look_like_wrong_input(sigmazero, own, monkeypatch):
    monkeypatch.setattr(import_module("sigmazero.data.load"), "parse_rows", None)
    done = sigmazero(*ATTACK)
    assert done.exit_code == 2
    assert re.search(r"TypeError: .*\(a bug in sigmazero: .*load.py, line \d+\)", done.stderr)


def test_no_text_becomes_an_emoji_or_markup(sigmazero, own):
    for name in (":100:.npz", "[bold].npz"):
        (own / name).write_bytes((own / "mine.npz").read_bytes())
        assert name in sigmazero("report", name).stderr


def test_a_terminal_without_unicode(own):
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "sigmazero", "list", "attacks"], capture_output=True, env=env, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"sigma-zero" in done.stdout


def test_ctrl_c_while_torch_is_loaded_is_one_line(own):
    (own / "torch.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    env = {**os.environ, "PYTHONPATH": f"{own}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(
        [sys.executable, "-m", "sigmazero", "doctor", "demo", "mnist-5k"],
        capture_output=True,
        text=True,
        env=env,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_shell_completion_knows_commands_and_options():
    for words, wanted in (("sigmazero att", "attack"), ("sigmazero attack --bud", "--budget")):
        env = {"_SIGMAZERO_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        env |= {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        done = subprocess.run([sys.executable, "-m", "sigmazero"], capture_output=True, text=True, env=env, check=False)
        assert wanted in done.stdout.split(), done
