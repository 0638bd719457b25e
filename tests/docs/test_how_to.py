"""What the pages for users show is run, and what they name exists."""

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

MADE_UP = {"adding-a-command.md", "adding-to-reports.md"}  # their commands are for the reader to add
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


@pytest.mark.parametrize("page", sorted({path.name for path in DOCS.glob("*.md")} - MADE_UP))
def test_commands_in_the_text_exist(page):
    """Every `sigmazero ...` of a page, in blocks and in sentences, is read by the command as it would when run."""
    top: Any = typer.main.get_command(app)
    text = (DOCS / page).read_text(encoding="utf-8")
    for command in re.findall(r"`(sigmazero [a-z][^`\n]*)`", text):
        words = shlex.split(command)[1:]
        found = top
        while hasattr(found, "commands") and words and words[0] in found.commands:
            found = found.commands[words.pop(0)]
        assert found is not top or words[0].startswith("--"), command
        options = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
        given = {word.split("=")[0] for word in words if word.startswith("--")}
        assert given <= options | {"--help"}, command


def test_the_glossary_is_in_order_and_knows_the_words_of_tables():
    words = re.findall(r"^\| ([^|]+) \|", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)[2:]
    assert words == sorted(words, key=str.lower)
    assert {"ASR at k", "l0", "kqueries", "query", "∞"} <= set(words)
