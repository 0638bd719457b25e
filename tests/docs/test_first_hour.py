"""A new user's first hour: what the quickstart says, pasted from the page.

`make test` does it in the environment at hand. `make first-hour` also installs, into a new virtual environment, and is
timed; it needs minutes and packages.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.docs.blocks import blocks, follow

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = "quickstart.md"


def test_the_quickstart_works(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "120")
    done = follow(PAGE, tmp_path, monkeypatch, skip="Install")
    assert {words.split()[1] for words in done if words.startswith("sigmazero")} >= {"demo", "attack", "run", "report"}
    made = ["demo/report.html", "result.png", "runs/mine.db", "runs/plan.db", "report.html", "python.html"]
    assert all((tmp_path / name).stat().st_size > 1000 for name in made)
    assert "fooled" in capsys.readouterr().out


def test_the_installation_is_the_one_that_the_makefile_makes():
    commands = [command for block in blocks(PAGE) if block.heading == "Install" for command in block.commands]
    assert [words.split()[0] for words in commands] == ["python3", ".", "pip", "sigmazero"]
    assert "-c constraints.txt" in commands[2]
    assert "pip install --quiet -c constraints.txt -e '.[demo]'" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.skipif(not os.environ.get("SIGMAZERO_FIRST_HOUR"), reason="installs everything anew: make first-hour")
def test_from_nothing(tmp_path):
    """All of it, in a shell, from a copy of the checkout and with no environment of ours."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    checkout, work = tmp_path / "checkout", tmp_path / "work"
    for name in tracked.splitlines():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    work.mkdir()
    lines = ["set -eu", f"cd {checkout}"]
    for block in blocks(PAGE):
        if block.file is not None:
            (work / block.file).write_text(block.text, encoding="utf-8")
        lines += block.commands
        if block.heading == "Install":
            lines += ["date +%s > ../installed", f"cd {work}"]
    env = {name: held for name, held in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env["PATH"] = os.pathsep.join(
        place for place in env["PATH"].split(os.pathsep) if Path(place) != Path(sys.executable).parent
    )
    began = time.time()
    done = subprocess.run(["bash", "-c", "\n".join(lines)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (work / "report.html").stat().st_size > 1000
    installed = int((tmp_path / "installed").read_text())
    print(f"installed in {installed - began:.0f} s, then {time.time() - installed:.0f} s to the last page")
