import pytest

from sigmazero.cli.commands.report import show_table
from sigmazero.cli.console import Screen
from sigmazero.report import measure
from sigmazero.report.html import results
from sigmazero.report.separating import listed, separating
from sigmazero.report.tables import layout, render
from sigmazero.report.tables.beside import caution, lines_beside
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.report.test_layout import FIXED, INF, MINIMUM, cell, compare, fill


def test_ks_are_where_attacks_differ():
    """Both are at 100 % from 9 changes on: the usual 10, 24 and 50 would tell nothing."""
    slow = [float(k) for k in range(1, 10) for _ in range(3)]
    fast = [max(1.0, k - 2) for k in slow]
    cells = [cell("M", "fmn", slow), cell("M", "bb", fast)]
    chosen = separating(cells)
    assert len(chosen) == 3
    assert max(chosen) < 9
    for k in chosen:
        rates = [float((facts.l0 <= k).mean()) for _, facts in cells]
        assert abs(rates[0] - rates[1]) > 0.1


def test_ks_that_a_reader_may_pick_end_where_all_is_known():
    assert listed([cell("M", "fmn", [1, 2, 26])])[-2:] == [24, 30]
    assert listed(FIXED) == []
    assert separating(FIXED) == measure.fitting(FIXED)
    assert separating([cell("M", "fmn", [0, 0, INF])]) == measure.fitting(MINIMUM)


def test_what_can_be_picked_is_what_a_table_at_that_k_says():
    made = layout.build("minimum-norm", MINIMUM, separating(MINIMUM))
    found = results.picks(made, MINIMUM, mix=False)
    assert found is not None
    for at, k in enumerate(found["ks"]):
        table = layout.build("minimum-norm", MINIMUM, (k,))
        known = {line.info.key: (line, block) for block in table.blocks for line in block}
        for (text, value, ends, best), key in zip(
            [row[at] for row in found["rows"]], [line.info.key for b in made.blocks for line in b], strict=True
        ):
            line, block = known[key]
            rate = table.columns[0]
            assert (text, value) == (render.shown(value, rate), line.figures[rate.name])
            assert ends == render.interval(line, rate)
            assert best == (layout.best(block, rate) == value)


def test_what_most_share_is_not_called_best():
    column = layout.comparable([10.0])[0]

    def best(*rates: list[float]) -> float | None:
        cells = [cell("M", name, l0) for name, l0 in zip(("bb", "fmn", "vfga", "ead"), rates, strict=False)]
        (block,) = layout.build("minimum-norm", cells, (10.0,)).blocks
        return layout.best(block, column)

    assert best([1], [1], [1]) is None
    assert best([1], [99], [99]) == 1.0
    assert best([1], [1], [99], [99]) == 1.0
    assert best([1], [1], [1], [99]) is None


def test_no_word_is_broken_in_80_columns_however_many_words_a_run_has():
    few = [cell("a-model-with-a-name", "sigma-zero-star", [1, 2], dataset="some-digits", steps=10)]
    more = [cell("a-model-with-a-name", "sigma-zero-star", [1, 2, 3], dataset="other-digits", steps=20)]
    made = compare(layout.build("minimum-norm", [*few, *more], (24, 50), mix=True))
    screen = Screen(width=80)
    with screen.capture() as captured:
        show_table(made, screen)
    lines = captured.get().splitlines()
    table = lines[: next(at for at, line in enumerate(lines) if line.startswith("The paper's"))]
    assert max(map(len, table[1:])) <= 80
    for whole in ("a-model-with-a-name", "sigma-zero-star", "data some-digits", "data other-digits", "less paper"):
        assert any(whole in line for line in table)
    assert any("(34.2–100.0)" in line for line in table)
    assert "The paper has no figures for these runs" in lines[-1]  # and no word of what differs from it by chance


@pytest.mark.parametrize("form", ["terminal", "markdown", "csv", "latex"])
def test_intervals_are_in_tables_that_ask_for_them(form, tmp_path, sigmazero):  # noqa: F811
    path = fill(tmp_path / "a.db", MINIMUM)
    plain = sigmazero("report", path, "--to", form, "--k", 24).stdout
    done = sigmazero("report", path, "--to", form, "--k", 24, "--intervals").stdout
    if form == "csv":
        assert "asr_24_low,asr_24_high" in done
    else:
        assert "(15.0--85.0)" in done if form == "latex" else "(15.0–85.0)" in done
    assert "15.0" not in plain


def test_the_paper_beside_ours_fits_80_columns():
    made = compare(layout.build("minimum-norm", [*MINIMUM, cell("other", "fmn", [1, 2, 3, 4])], (24, 50), mix=True))
    screen = Screen(width=80)
    with screen.capture() as captured:
        show_table(made, screen)
    table = captured.get().splitlines()[1:-3]
    assert max(map(len, table)) <= 80
    rows = lines_beside(made)
    sigma = next(at for at, row in enumerate(rows) if row["attack"] == "sigma-zero")
    assert rows[sigma] == {
        **{"model": "M1", "attack": "sigma-zero", "figure": "ASR 24"},
        **{"ours": "50.0", "95 %": "(15.0–85.0)", "paper": "83.8", "less paper": "−33.8"},
    }
    assert {row["paper"] for row in rows[-6:]} == {"–"}  # the paper does not know the other model
    assert "Caution: with n = 4 " in captured.get()
    many = compare(layout.build("minimum-norm", [cell("M1", "sigma-zero", [9.0] * 600)]))
    assert caution(many) == ""
