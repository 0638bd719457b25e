"""The library does not know the command line: its errors name no option and no command."""

import ast
import re
from pathlib import Path

import pytest

from sigmazero.cli import commands

SOURCES = Path(__file__).parents[2] / "src" / "sigmazero"
LIBRARY = [path for path in sorted(SOURCES.rglob("*.py")) if "cli" not in path.parts and path.name != "__main__.py"]
SPOKEN = re.compile(rf"(?<![\w-])--[a-z]|\bsigmazero ({'|'.join(commands.ORDER)})\b")


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(SOURCES)))
def test_errors_name_no_option_and_no_command(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    raised = [node for node in ast.walk(tree) if isinstance(node, ast.Raise)]
    texts = [part.value for node in raised for part in ast.walk(node) if isinstance(part, ast.Constant)]
    assert not [text for text in texts if isinstance(text, str) and SPOKEN.search(text)]
