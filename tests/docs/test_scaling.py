"""docs/scaling.md: its commands exist, and its figures are those that the scripts make."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main
from benchmarks.reproduction import CellCost

from benchmarks import reproduction, simulation
from sigmazero.cli import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(text.split(">")[0])[1:]
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for text in block.splitlines()
    if text.startswith("sigmazero ")
]
WORK = [CellCost("p", f"m{i % 3}", "sigma-zero", None, 500, 20, 0.1 * (1 + i)) for i in range(6)]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_commands_parse(words):
    command: Any = typer.main.get_command(app)
    command.commands[words[0]].make_context(words[0], words[1:])
    assert all((ROOT / word).is_file() for word in words if word.startswith("experiments/"))


def test_there_are_commands():
    assert {words[0] for words in COMMANDS} == {"run", "merge"}


def test_the_figures_are_current():
    for name, some in reproduction.shown():
        assert f"\n{reproduction.line(name, some)}" in PAGE
    for line in (*reproduction.memory_lines(), *simulation.rates()):
        assert f"\n{line}\n" in PAGE
    assert simulation.line(simulation.simulate(reproduction.cells(), 8), "the plans'") in PAGE


def test_what_is_simulated_is_all_of_the_work():
    one = simulation.simulate(WORK, 1)
    assert one == simulation.simulate(WORK, 1)
    assert one.efficiency == pytest.approx(1, abs=0.02)  # but for three models to load
    assert one.hours == pytest.approx(sum(cell.hours for cell in WORK), rel=0.02)
    many = simulation.simulate(WORK, 8)
    assert one.hours / 8 < many.hours < one.hours / 6
    assert many.rows_per_second * many.hours * 3600 == pytest.approx(3000)
    alone = simulation.simulate(WORK, 1000)  # more workers than batches: the longest one, and its model
    assert alone.hours * 3600 == pytest.approx(20 * 0.6 + simulation.LOAD, rel=0.2)


def test_a_store_that_cannot_follow_is_seen():
    fast = [CellCost("p", "m", "sigma-zero", None, 1_000_000, 20, 1e-5)]
    storing, _ = simulation.read()
    found = simulation.simulate(fast, 200)
    assert found.busy > 0.5
    assert found.rows_per_second < 20 / (storing.append + 20 * storing.row)
