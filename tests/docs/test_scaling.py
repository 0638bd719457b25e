"""docs/scaling.md: its commands exist."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from sigmazero.cli import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(text.split(">")[0])[1:]
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for text in block.splitlines()
    if text.startswith("sigmazero ")
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_parse(words):
    command: Any = typer.main.get_command(app)
    command.commands[words[0]].make_context(words[0], words[1:])
    assert all((ROOT / word).is_file() for word in words if word.startswith("experiments/"))


def test_there_are_commands():
    assert {words[0] for words in COMMANDS} == {"run", "merge"}
