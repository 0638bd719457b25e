"""The examples on the pages for users run, and the commands that they name exist."""

import doctest
import re
import shlex
from typing import Any

import pytest
import torch
import typer.main

import sigmazero as sz
from sigmazero.cli import app
from tests.docs.blocks import DOCS, blocks, follow
from tests.helpers.networks import linear_problem

pytestmark = pytest.mark.slow

ROOT = DOCS.parent
MADE_UP = {"adding-a-command.md", "adding-to-reports.md"}  # their commands are for the reader to add
WRITTEN = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md")),
    *(path for path in sorted(DOCS.rglob("*.md")) if path.name not in MADE_UP),
]
PAGES = ["own-model.md", "adding-a-defence.md", "which-attack.md", "blackbox.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs(page, tmp_path, monkeypatch):
    assert any(block.language == "python" for block in blocks(page))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_, **__: None)  # that 8-bit pictures were scaled is said
        follow(page, tmp_path, monkeypatch)


def test_our_side_of_other_libraries(tmp_path, monkeypatch, capsys):
    model, x, y = linear_problem((1, 4, 4), 3)
    follow("bridges.md", tmp_path, monkeypatch, names={"sz": sz, "model": model, "x": x.float(), "y": y})
    for library in ("foolbox", "torchattacks", "ART", "AutoAttack and RobustBench", "adv-lib"):
        under = [block.language for block in blocks("bridges.md") if block.heading == library]
        assert under == ["text", "python"], library
    assert torch.isfinite(torch.tensor(float(capsys.readouterr().out.split()[0])))


@pytest.mark.parametrize("page", ["auto.md", "truth.md"])
def test_python_about_a_model_at_hand_runs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4)).requires_grad_(False).eval()
    x = torch.rand(3, 1, 8, 8)
    known: dict[str, Any] = {"sz": sz, "model": model, "x": x, "y": model(x).argmax(1)}
    for block in blocks(page):
        if block.language == "python":
            exec(compile(block.text, page, "exec"), known)
    assert known["verdict"].exit_code in (0, 1) if page == "auto.md" else known["found"].curve()
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", ["spaces.md", "tables.md"])
def test_the_sessions_of_the_page_run(page):
    options = doctest.NORMALIZE_WHITESPACE
    done = doctest.testfile(str(DOCS / page), module_relative=False, optionflags=options, encoding="utf-8")
    assert done.attempted > 15
    assert not done.failed


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.name)
def test_commands_exist(path):
    """Every `sigmazero ...`, in blocks and in sentences, is read by the command as it would when run."""
    top: Any = typer.main.get_command(app)
    text = path.read_text(encoding="utf-8").replace("\\\n", "")
    lines = re.findall(r"^sigmazero .*$", "".join(re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)), re.M)
    for command in [*lines, *re.findall(r"`(sigmazero [a-z][^`\n]*)`", text)]:
        words = shlex.split(command.split(">")[0], comments=True)[1:]
        called = top
        while hasattr(called, "commands") and words and words[0] in called.commands:
            called = called.commands[words.pop(0)]
        if command in lines and words != ["--version"]:
            called.make_context("sigmazero", words)
            assert not [word for word in words if word.startswith("experiments/") and not (ROOT / word).is_file()]
        assert called is not top or words[0].startswith("--"), command
        options = {option for parameter in called.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word.split("=")[0] for word in words if word.startswith("--")}
        assert given <= options | {"--help"}, command


def test_the_glossary_is_in_order_and_knows_the_words_of_tables():
    words = re.findall(r"^- \*\*(.+?)\*\*: ", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert words == sorted(words, key=str.lower)
    assert {"ASR at k", "l0", "kqueries", "query"} <= set(words)
