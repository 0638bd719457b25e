"""The pages agree with the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main
from scripts import pages

from sigmazero.attacks import ATTACKS
from sigmazero.cli import app

ROOT = Path(__file__).parents[2]
WRITTEN = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_pages_made_from_the_code_have_every_command_option_and_attack():
    made = pages.pages()
    assert set(made) == set(pages.NAMES)
    command: Any = typer.main.get_command(app)
    for name in command.commands:
        assert f"### sigmazero {name}\n" in made["cli.md"]
        for parameter in command.commands[name].params:
            assert all(f"`{option}`" in made["cli.md"] for option in parameter.opts if option.startswith("--"))
    assert "| `--engine` | `local`, `processes`, `ray` |" in made["cli.md"]
    assert all(f"\n## {name}\n" in made["attacks.md"] for name in ATTACKS)


def test_python_in_the_readme_runs(capsys):
    blocks = _blocks(ROOT / "README.md", "python")
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert "fooled" in capsys.readouterr().out


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text(encoding="utf-8")):
        assert (
            target.startswith("https://")
            or target.removeprefix("docs/") in pages.NAMES
            or (path.parent / target).exists()
        ), target


def test_the_readme_is_short_and_names_the_two_commands():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) < 600
    assert [line.split()[:2] for line in _blocks(ROOT / "README.md", "sh")[0].splitlines()] == [
        ["make", "demo"],
        ["make", "test"],
    ]
    assert "independent implementation" in " ".join(text.split())
