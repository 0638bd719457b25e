"""Blocks that a reader would paste from a page: files, commands and Python, taken from the rendered page."""

import html
import re
import runpy
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from typer.testing import CliRunner

from sigmazero.cli import app

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class Block:
    """A block of code on a page, under the heading it stands under."""

    heading: str
    language: str
    text: str

    @property
    def file(self) -> str | None:
        """The file that it is to be put into, if its first line names one."""
        named = re.match(r"# ([\w-]+\.(?:py|toml|csv))\n", self.text)
        return named.group(1) if named else None

    @property
    def commands(self) -> list[str]:
        """The lines of a block for a shell, without remarks."""
        lines = self.text.replace("\\\n", "").splitlines() if self.language == "sh" else []
        return [line for line in (re.sub(r"\s+#.*", "", line).strip() for line in lines) if line]


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    shown = MarkdownIt("commonmark").enable("table").render((DOCS / page).read_text(encoding="utf-8"))
    found, heading = [], ""
    for head, language, text in re.findall(r'<h\d>(.*?)</h\d>|<code class="language-(\w+)">(.*?)</code>', shown, re.S):
        if head:
            heading = html.unescape(re.sub("<[^>]+>", "", head))
        else:
            found.append(Block(heading, language, html.unescape(text)))
    return found


def follow(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, skip: str = "", names: dict[str, Any] | None = None
) -> list[str]:
    """Do in a folder what a page says: write its files, run its commands and its Python; the commands that were run.

    Commands run in this process, which has torch already. `names` are those that the page's Python takes for granted.
    """
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    known: dict[str, Any] = {"__name__": "page"} | (names or {})
    done = []
    for block in blocks(page):
        if block.heading == skip:
            continue
        if block.file is not None:
            (folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            text = block.text.replace("steps=1000", "steps=10")  # whether it runs is seen as well
            exec(compile(text, page, "exec"), known)
        for command in block.commands:
            _run(shlex.split(command), folder)
            done.append(command)
    for name in [name for name, module in sys.modules.items() if str(folder) in str(getattr(module, "__file__", ""))]:
        del sys.modules[name]
    return done


def _run(words: list[str], folder: Path) -> None:
    if words[0] == "python":
        runpy.run_path(str(folder / words[1]), run_name="__main__")
        return
    assert words[0] == "sigmazero", words
    result = CliRunner().invoke(app, words[1:])
    assert result.exit_code == 0, f"{shlex.join(words)}\n{result.output}\n{result.exception!r}"
