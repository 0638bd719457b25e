"""Tables from runs: which lines and columns they have, and what Markdown, CSV and LaTeX make of them."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sigmazero.bench.paper import usual
from sigmazero.report import formats, published
from sigmazero.report.formats import to_csv, to_markdown
from sigmazero.report.latex import to_latex
from sigmazero.report.runs import Run
from sigmazero.report.table import build
from tests.helpers.cells import cell

INF = math.inf
compare = partial(published.compare, usual=usual())


def runs(*cells: Any) -> list[Run]:
    return [Run(info, facts, unit=info.unit, name=info.attack) for info, facts in cells]


MINIMUM = runs(
    cell("M1", "bb", [5, INF, INF, INF], 500),
    cell("M1", "ead-paper", [20, 40, 60, INF], 6000),
    cell("M1", "sigma-zero", [10, 20, 30, 60]),
    cell("M2", "fmn", [1, 2, 3, 4]),
)
FIXED = runs(
    *(
        cell("M1", attack, l0, budget=k, steps=steps)
        for attack, steps, l0 in (("sparse-rs", 2000, [1, 30, 60, 200]), ("pgd-l0-paper", 1000, [60, 70, 80, 90]))
        for k in (24, 50, 100)
    )
)


def test_one_model_goes_to_the_caption_and_other_code_into_a_column():
    (run,) = MINIMUM[2:3]
    assert build("minimum-norm", [run]).words == ("attack",)
    assert "model M1" in build("minimum-norm", [run]).caption
    edited = replace(run, info=replace(run.info, key="b", identity={"model": {"code": {"sources": "edited"}}}))
    made = build("minimum-norm", [run, edited])
    assert made.words == ("attack", "code")
    assert len(made.blocks) == 2


def test_names_are_escaped_in_every_format():
    odd = runs(cell("M|1_<b>&{$%", "=cmd", [1, 2]), cell("M2", "fmn", [1, 2]))
    made = build("minimum-norm", odd)
    assert r"M\|1\_&lt;b&gt;&amp;\{\$%" in to_markdown(made)
    assert r"M\textbar{}1\_\textless{}b\textgreater{}\&\{\$\%" in to_latex(made)
    assert "'=cmd" in to_csv(made)  # no formula in a spreadsheet


OTHERS: tuple[dict[str, Any], ...] = (
    {"goal": "targeted"},
    {"unit": "pixel"},
    {"origin": {"model": {"spec": "net.py:build"}}},
    {"parameters": {"threshold": 0.1}},
    {"origin": {"model": {"spec": "M1", "weights": "mine.pt"}}},
    {"origin": {"data": {"source": "fashion-mnist"}}},
)


@pytest.mark.parametrize("other", OTHERS)
def test_runs_that_are_not_the_papers_have_no_figures_beside(other):
    made = compare(build("minimum-norm", runs(cell("M1", "sigma-zero", [1], **other))))
    assert made.lines[0].paper == {}
    assert "no figures" in formats.caution(made)


def test_rows_that_the_paper_swapped_lack_their_cost():
    odd = runs(*(cell("C11", attack, [1, 2], budget=24, dataset="cifar10") for attack in ("sigma-zero", "mine")))
    lines = {line.run.info.attack: line for line in compare(build("fixed-budget", odd)).lines}
    assert set(lines["sigma-zero"].paper) == {"asr_24", "memory_gb"}
    assert lines["mine"].paper == {}
    sparse = runs(cell("M1", "sparsefool-paper", [9], steps=20), cell("M1", "fmn", [3], steps=100))
    assert compare(build("minimum-norm", sparse)).lines[1].paper["asr_50"] > 0  # by the steps of the attack beside it


def test_incomplete_and_mixed_runs_are_told_apart():
    made = build("minimum-norm", runs(cell("M1", "fmn", [1, 2], rows=5), cell("M1", "bb", [1, 2])))
    assert {line.words["samples"] for line in made.lines} == {"2 of 5", "2"}
    mixed = runs(cell("M1", "fmn", [1, 2]), cell("M1", "fmn", [1, 3], version=2))
    with pytest.raises(ValueError, match="more than one version"):
        build("minimum-norm", mixed)
    assert build("minimum-norm", mixed, mix=True).words == ("attack", "version")


@pytest.mark.parametrize(
    ("name", "chosen", "words"),
    [
        ("minimum-norm", FIXED, "fixed-budget"),
        ("fixed-budget", MINIMUM, "minimum-norm"),
        ("fixed-budget", [], "run a plan"),
        ("other", MINIMUM, "minimum-norm"),
    ],
)
def test_errors_name_the_table_to_ask_for(name, chosen, words):
    with pytest.raises(ValueError, match=words):
        build(name, chosen)
