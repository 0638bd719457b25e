import math

import torch
from rich.console import Console

import sigmazero as sz
from sigmazero.cli.console import Screen
from sigmazero.cli.fitting import show_rows
from sigmazero.report.tables.overview import run_row
from sigmazero.report.tables.text import markdown, number, rich_table


def _run(**more):
    """Two samples that one change fools, one that is wrong already, one that cannot be fooled."""
    x = torch.tensor([[0.9, 0.9], [0.8, 0.9], [0.1, 0.1], [0.9, 0.9]])

    def model(x):
        score = x.flatten(1).sum(1) - 1.0
        return torch.stack([score, torch.zeros_like(score)], 1)

    mask = torch.tensor([[True, True]] * 3 + [[False, False]])
    if more.get("unit") == "pixel":
        x, mask = (each.view(4, 1, 2, 1) for each in (x, mask))
    result = sz.get("sigma-zero", steps=30).run(model, x, torch.zeros(4, dtype=torch.int64), mask=mask, **more)
    assert result.success.tolist() == [True, True, True, False]
    return result


def _text(table):
    console = Console(width=100)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def test_figures_count_every_sample():
    shown = run_row(_run(), torch.zeros(4, dtype=torch.int64), ks=(0, 2))
    assert shown["clean accuracy"] == "75.0 %"
    assert shown["ASR at 0"] == "25.0 %"
    assert shown["ASR at 2"] == shown["ASR at ∞"] == "75.0 %"
    assert shown["mean l0"] == "∞"
    assert shown["median l0"] != "∞"


def test_the_budget_and_the_unit_of_the_run_are_shown():
    shown = run_row(_run(budget=2, unit="pixel"), torch.zeros(4, dtype=torch.int64))
    assert list(shown)[2:4] == ["ASR at 2 (pixels)", "queries per sample"]  # what was not searched is not shown
    assert "median l0 (pixels)" in run_row(_run(unit="pixel"), torch.zeros(4, dtype=torch.int64))


def test_numbers():
    assert [number(v) for v in (10, 0.5, 1 / 3, math.inf, -math.inf, math.nan)] == ["10", "0.5", "0.33", "∞", "−∞", "–"]
    assert number(1200.0, 0) == "1200"


def test_several_rows_read_across_or_down():
    rows = [{"attack": "one[x]", "l0": "1"}, {"attack": "two", "l0": "2", "more": "|"}]
    across = _text(rich_table(rows, left=("attack",))).split("\n")
    assert across[1].split() == ["attack", "l0", "more"]
    assert across[3].split() == ["one[x]", "1"]
    down = _text(rich_table(rows, down=True)).split("\n")
    assert down[1].split() == ["attack", "one[x]", "two"]
    assert down[3].split() == ["l0", "1", "2"]


def test_markdown_escapes_its_own_marks():
    assert markdown([{"a": "x|y\nz"}]).splitlines()[2] == "| x\\|y z |"


def test_no_rows_are_an_empty_table():
    assert _text(rich_table([])).strip() == ""


def test_on_a_narrow_screen_rows_stand_beside_each_other_and_nothing_is_broken():
    heads = ("model", "attack", "a-long-heading", "another-long-heading", "kqueries", "s/sample")
    rows = [
        dict(zip(heads, (f"model-{k}", "sigma-zero", "100.0 %", "12.5", "0.2", "0.01"), strict=True)) for k in range(5)
    ]
    rows[1]["model"] = ""  # as above
    shown = {}
    for width in (60, 120):
        screen = Screen(width=width)
        with screen.capture() as captured:
            show_rows(rows, ("model", "attack"), screen)
        shown[width] = captured.get().splitlines()
        assert max(map(len, shown[width])) <= width
        for whole in (*heads, "model-0", *(f"model-{k}" for k in range(2, 5)), "sigma-zero"):
            assert any(whole in line for line in shown[width])
    assert sum("sigma-zero" in line for line in shown[120]) == 5
    assert any(line.count("model-0") == 2 for line in shown[60])
    assert sum("sigma-zero" in line for line in shown[60]) == 2  # three runs beside each other, then two
