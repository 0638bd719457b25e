from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text

import sigmazero as sz
from sigmazero.report.figures import style
from sigmazero.report.figures.curves import band, draw_curves
from sigmazero.report.figures.pareto import draw_pareto
from sigmazero.report.intervals import wilson
from tests.report.test_layout import FIXED, INF, MINIMUM, cell

STARTS = {"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}


@pytest.mark.parametrize("kind", style.FORMATS)
def test_every_format_is_written_and_repeats(tmp_path, kind):
    first, second, other = (tmp_path / f"{name}.{kind}" for name in ("a", "b", "c"))
    for path in (first, second):
        style.save(draw_curves(MINIMUM, log=kind != "png"), path)
    assert first.read_bytes().startswith(STARTS[kind])
    assert first.read_bytes() == second.read_bytes()
    style.save(draw_pareto(MINIMUM), other)
    assert other.read_bytes().startswith(STARTS[kind])
    assert len(list(tmp_path.iterdir())) == 3


def test_a_panel_per_model_with_all_attacks_and_the_best():
    figure = draw_curves([*MINIMUM, *FIXED])
    first, second = figure.axes
    shown = [text.get_text() for text in first.get_legend().get_texts()]
    assert sorted(shown) == sorted(
        ["sigma-zero", "bb", "ead-paper", "best of all", "pgd-l0-paper at k", "sparse-rs at k"]
    )
    assert [text.get_text() for text in second.get_legend().get_texts()] == ["fmn"]
    best = next(line for line in first.lines if line.get_label() == "best of all")
    assert list(best.get_ydata())[-1] == 100
    assert list(best.get_xdata())[:3] == [0, 5, 20]


def test_the_best_is_taken_over_common_rows():
    figure = draw_curves([cell("M1", "fmn", [1, 2], rows=3), cell("M1", "bb", [3, 1, INF])])
    shown = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert "best of all (2 rows all have)" in shown


def test_bands_are_wilsons():
    ks, rates, low, high = band(np.array([1, 5, 5, INF]))
    assert (ks.tolist(), rates.tolist()) == ([0, 1, 5], [0, 25, 75])
    assert (low[2], high[2]) == pytest.approx([100 * end for end in wilson(3, 4)])


def test_colours_are_fixed():
    assert style.colour("sigma-zero") == "#D55E00"
    assert len(set(style.COLOURS.values())) == len(style.COLOURS)
    assert style.colour("ead-paper") == style.colour("ead")
    # Of names that are not known too, in every process: these were found once, and Python's own hash changes.
    assert [style.colour(name) for name in ("mine", "yours", "x", "σ")] == ["#0072B2", "#E69F00", "#117733", "#999933"]
    assert [style.DASHES.index(style.dash(name)) for name in ("mine", "yours", "x", "σ")] == [1, 2, 1, 3]
    figure = draw_curves([cell("A", "fmn", [1]), cell("A", "bb", [2]), cell("B", "bb", [2])])
    drawn = [{line.get_label(): line.get_color() for line in axis.lines} for axis in figure.axes]
    assert drawn[0]["bb"] == drawn[1]["bb"] == style.colour("bb")


def test_names_are_shown_as_they_are(tmp_path):
    cells = [cell("$a$ <b>", name, [1, INF]) for name in ("_x", "$\\frac$", "<script>")]
    style.save(draw_curves(cells), tmp_path / "a.svg")
    assert "<script>" not in (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert len(draw_curves(cells).axes[0].get_legend().get_texts()) == 4


def test_pareto_marks_what_fails_and_what_none_beats():
    (axis, other) = draw_pareto(MINIMUM).axes
    assert [text.get_text() for text in axis.texts] == ["sigma-zero", "bb (∞)", "ead-paper"]
    assert list(axis.lines[-1].get_ydata()) == [25, 25, 25]
    assert (axis.get_xlim(), axis.get_ylim()) == (other.get_xlim(), other.get_ylim())
    assert axis.get_xscale() == "log"


def test_names_of_points_do_not_collide():
    """Seven attacks that spend and find nearly the same: names are apart as they are drawn, and beside the points."""
    crowd = [cell("M", name, [10 + k / 4], 2000 + k) for k, name in enumerate([*list(style.COLOURS)[:7]])]
    figure = draw_pareto(crowd)
    FigureCanvasAgg(figure).draw()
    (axis,) = figure.axes
    boxes = [Text.get_window_extent(text) for text in axis.texts]
    assert len(boxes) == 7
    assert not any(one.overlaps(two) for one, two in combinations(boxes, 2))


def test_a_slow_attack_does_not_stretch_the_axis():
    cells = [cell("M", "fmn", [1, 2, 9]), cell("M", "sigma-zero", [1, 2, 4]), cell("M", "ead", [2, 300, 526])]
    (axis,) = draw_curves(cells).axes
    assert axis.get_xlim() == (0, 30)
    assert "cut at k = 30: ead goes on to 526" in axis.get_xlabel()
    assert [line.get_color() for line in axis.lines if line.get_marker() == ">"] == [style.colour("ead")]
    assert draw_curves(cells, until=600).axes[0].get_xlim() == (0, 600)
    assert draw_curves(cells, log=True).axes[0].get_xlim()[1] > 526
    assert "cut" not in draw_curves(cells[:2]).axes[0].get_xlabel()
    with pytest.raises(ValueError, match="until=0"):
        draw_curves(cells, until=0)


def test_the_strongest_has_the_band_and_the_figure_says_what_it_is():
    figure = draw_curves([cell("M", "fmn", [4, 5, 9]), cell("M", "sigma-zero", [1, 2, 4])])
    (axis,) = figure.axes
    assert [tuple(each.get_facecolor()[0][:3]) for each in axis.collections] == [to_rgb(style.colour("sigma-zero"))]
    assert "95 % interval (Wilson)" in figure.get_supxlabel()
    assert axis.get_title() == "M on mnist, n = 3"
    FigureCanvasAgg(figure).draw()
    ticks = [tick for tick in axis.get_xticks() if tick <= axis.get_xlim()[1]]
    assert ticks == [round(tick) for tick in ticks]


def test_every_attack_has_a_colour_of_its_own():
    bases = {style.colour(name) for name in sz.ATTACKS}
    assert {name for name in sz.ATTACKS if style.known_colour(name) is None} == set()
    assert bases == set(style.COLOURS.values())


def test_errors_name_the_value_and_the_fix(tmp_path):
    with pytest.raises(ValueError, match=r"a\.gif: end the name in one of \.pdf"):
        style.save(draw_curves(MINIMUM), tmp_path / "a.gif")
    with pytest.raises(ValueError, match="every run in the store has a budget"):
        draw_pareto(FIXED)
    with pytest.raises(ValueError, match="no samples"):
        draw_curves([])
    with pytest.raises(ValueError, match="more than one precision"):
        draw_curves([*MINIMUM, cell("M1", "vfga", [1], precision="bf16")])
