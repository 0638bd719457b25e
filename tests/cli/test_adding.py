"""A command is one file: the one on the page about commands, put where the page says, is found and runs."""

import ast
import re
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from sigmazero.cli import app, commands
from sigmazero.cli.app import Guarded, top

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "sigmazero" / "cli" / "commands"


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """A command line that also finds the files in a folder; call it after writing them."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(commands, "__path__", [*commands.__path__, str(tmp_path)])

    def make() -> typer.Typer:
        made = typer.Typer(cls=Guarded)
        made.callback()(top)
        commands.add_all(made)
        return made

    yield make
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"{commands.__name__}.{path.stem}", None)


def test_the_command_on_the_page_about_commands_works(fresh, tmp_path):
    page = (ROOT / "docs" / "adding-a-command.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "hello.py").write_text(block, encoding="utf-8")
    made = fresh()
    done = CliRunner().invoke(made, ["hello", "--name", "x"])
    assert done.exit_code == 0, done.output
    assert re.fullmatch(r"Hello x, there are \d+ attacks\.\n", done.stdout)
    shown = CliRunner().invoke(made, ["--help"]).stdout
    assert [name for name in re.findall(r"^│ ([a-z]+) ", shown, re.MULTILINE)] == [*commands.ORDER, "hello"]
    assert "Greet somebody and say how many attacks there are." in shown


def test_a_file_without_its_function_is_named(fresh, tmp_path):
    (tmp_path / "nothing.py").write_text("def something(): ...\n")
    with pytest.raises(AttributeError, match=r"nothing\.py has no function 'nothing'"):
        fresh()


def test_every_command_has_its_place_in_the_help():
    """Nothing is named that does not exist, and every command of ours has a place of its own choosing."""
    assert sorted(commands.ORDER) == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")
    assert list(typer.main.get_command(app).list_commands(None)) == list(commands.ORDER)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_commands_do_not_import_each_other(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("sigmazero.cli.commands"), f"{path.name} imports {node.module}"
