"""What is written about the code agrees with it."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from sigmazero.cli import app
from sigmazero.cli.commands import docs

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_generated_pages_are_current():
    done = CliRunner().invoke(app, ["docs", "--check", "--dir", str(ROOT / "docs")])
    assert done.exit_code == 0, done.output


def test_stale_pages_are_found_and_written(tmp_path):
    stale = CliRunner().invoke(app, ["docs", "--check", "--dir", str(tmp_path)])
    assert stale.exit_code == 1
    assert "cli.md" in stale.stderr
    assert not list(tmp_path.iterdir())
    assert CliRunner().invoke(app, ["docs", "--dir", str(tmp_path)]).exit_code == 0
    assert CliRunner().invoke(app, ["docs", "--check", "--dir", str(tmp_path)]).exit_code == 0


def test_docs_away_from_the_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["docs"])
    assert done.exit_code == 2
    assert "there is no folder docs here" in done.stderr


def test_every_command_and_option_is_on_the_page():
    command: Any = typer.main.get_command(app)
    page = docs.pages(command)["cli.md"]
    assert len(command.commands) > 10
    for name, sub in command.commands.items():
        assert f"## sigmazero {name}" in page
        assert all(option in page for parameter in sub.params for option in parameter.opts if option.startswith("--"))


def test_python_in_the_readme_runs(capsys):
    blocks = _blocks(ROOT / "README.md", "python")
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "fooled" in capsys.readouterr().out


def test_commands_in_the_readme_exist():
    command: Any = typer.main.get_command(app)
    lines = [line.split("#")[0].split() for block in _blocks(ROOT / "README.md", "sh") for line in block.splitlines()]
    used = [words for words in lines if words[:1] == ["sigmazero"]]
    assert used
    for words in used:
        options = {option for parameter in command.commands[words[1]].params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


def test_the_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) < 600
    assert [line.split()[:2] for line in _blocks(ROOT / "README.md", "sh")[0].splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    assert "independent implementation" in " ".join(text.split())
