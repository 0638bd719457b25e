"""Every figure that `report` draws of literal facts shows their numbers: lines, bars, points, grids and maps.

What is checked is the figure that matplotlib is given to save, so that nothing depends on the layout of a file.
"""

import math
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.helpers.commands import run_command
from tests.helpers.stores import BOXES, COSTS, LABELS, SPACE, F, Run, write_store

FREE = [run for run in BOXES if run.budget is None]
FIXED = [run for run in BOXES if run.budget is not None]
MODELS = sorted({run.model for run in BOXES})
PER_MODEL = pytest.mark.parametrize("model", MODELS)


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("literal")
    return {
        "boxes": write_store(folder / "boxes.db", BOXES),
        "costs": write_store(folder / "costs.db", COSTS, SPACE),
        "table": write_store(folder / "table.db", FREE[:2], shape=(100,)),
    }


@pytest.fixture(scope="module")
def draw(stores, tmp_path_factory):
    """Return a function that asks for a figure and returns it; each is drawn once."""
    drawn: dict[tuple[str, ...], Figure] = {}

    def ask(store: str, *options: str) -> Figure:
        if (store, *options) not in drawn:
            file = tmp_path_factory.mktemp("drawn") / "figure.svg"
            saved = list[Figure]()
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Figure, "savefig", lambda self, path, **how: (saved.append(self), path.write_text("")))
                done = run_command("plot", stores[store], options[0], "-o", file, *options[1:])
            assert done.code == 0, done.stderr
            assert file.exists()
            (drawn[store, *options],) = saved
        return drawn[store, *options]

    return ask


def panel(figure: Figure, model: str) -> Any:
    """Return the panel of a model, by its title."""
    (found,) = [axis for axis in figure.axes if axis.get_title().startswith(f"{model} on digits")]
    return found


def height(line: Any, k: float) -> float:
    """Return the height of a line of steps at a place."""
    xs, ys = (np.asarray(each, float) for each in line.get_data())
    assert line.get_drawstyle() == "steps-post"
    return float(ys[np.flatnonzero(xs <= k).max()])


def share(changes: Any, k: float) -> float:
    return 100 * float((np.asarray(changes) <= k).mean())


def wilson(count: int, of: int = 8) -> list[float]:
    z = NormalDist().inv_cdf(0.975)
    return [100 * v for v in sorted(np.roots([of + z * z, -(2 * count + z * z), count * count / of]).real)]


def of(model: str, runs: list[Run] = FREE) -> list[Run]:
    return [run for run in runs if run.model == model]


@PER_MODEL
@pytest.mark.parametrize(
    "options", [(), ("--set", "until=10"), ("--set", "until=40", "--set", "log=true")], ids=" ".join
)
def test_curves_are_success_rates(draw, model, options):
    axis = panel(draw("boxes", "curves", *options), model)
    lines = {line.get_label(): line for line in axis.lines}
    left, end = axis.get_xlim()
    assert axis.get_title() == f"{model} on digits, n = 8"
    assert (left, axis.get_xscale()) == (0, "symlog" if "log=true" in options else "linear")
    assert axis.get_ylim()[0] == 0
    assert axis.get_ylim()[1] >= 100
    furthest = {run.attack: max(k for k in run.changes if k < math.inf) for run in of(model)}
    assert end == float(options[1].partition("=")[2]) if options else end <= 1.05 * max(furthest.values())
    wanted = {run.attack: np.array(run.changes) for run in of(model)}
    wanted["best of all"] = np.min([*wanted.values()], axis=0)
    for name, changes in wanted.items():
        xs = np.asarray(lines[name].get_xdata(), float)
        assert xs[-1] == end
        for k in (k for k in range(61) if k <= end):
            assert height(lines[name], k) == pytest.approx(share(changes, k)), f"{name} at {k}"
    goes_on = {name: k for name, k in furthest.items() if k > end}
    assert sum(line.get_marker() == ">" for line in axis.lines) == len(goes_on)
    if not options:  # most of what is ever reached is seen
        reached = 100 * float(np.isfinite(wanted["best of all"]).mean())
        assert max(share(each, end) for each in wanted.values()) >= 0.8 * reached


@PER_MODEL
def test_curves_show_intervals_and_runs_with_budgets(draw, model):
    axis = panel(draw("boxes", "curves"), model)
    strongest = min(of(model), key=lambda run: float(np.median(run.changes)))
    lines = {line.get_label(): line for line in axis.lines}
    (band,) = [each for each in axis.collections if each.get_alpha() == 0.2]
    assert tuple(band.get_facecolor()[0][:3]) == pytest.approx(_rgb(lines[strongest.attack].get_color()))
    heights = band.get_paths()[0].vertices[:, 1]
    end = axis.get_xlim()[1]
    for k in (k for k in strongest.changes if k <= end):
        for each in wilson(round(share(strongest.changes, k) * 8 / 100)):
            assert np.abs(heights - each).min() < 1e-6
    (bars,) = axis.containers
    assert bars.get_label() == "sparse-rs at k"
    points, _, (spans,) = bars.lines
    runs = sorted(of(model, FIXED), key=lambda run: run.budget or 0)
    counts = [sum(c <= (run.budget or 0) for c in run.changes) for run in runs]
    assert np.asarray(points.get_xdata()).tolist() == [run.budget for run in runs]
    assert np.asarray(points.get_ydata()) == pytest.approx([100 * count / 8 for count in counts])
    for span, count in zip(spans.get_segments(), counts, strict=True):
        assert sorted(span[:, 1]) == pytest.approx(wilson(count))
    names = [text.get_text() for text in axis.get_legend().get_texts()]
    assert sorted(names) == sorted([*(run.attack for run in of(model)), "best of all", "sparse-rs at k"])


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))


def test_curves_count_costs(draw):
    axis = panel(draw("costs", "curves", "--cost"), "first")
    for run in COSTS:
        (line,) = [line for line in axis.lines if line.get_label() == run.attack]
        for cost in (0, 2, 2.5, 3.5, 7):
            assert height(line, cost) == pytest.approx(share(run.cost, cost))
    assert "cost" in axis.get_xlabel()


def test_colours_belong_to_attacks(draw):
    held: dict[str, set[str]] = {}
    for store in ("boxes", "costs"):
        for axis in draw(store, "curves").axes:
            for line in axis.lines:
                name = str(line.get_label()).partition(" within")[0].partition(" at k")[0]
                if not name.startswith("_") and line.get_xdata() is not None:
                    held.setdefault(name, set()).add(str(line.get_color()))
    assert {"sigma-zero", "ead-paper", "sigma-swap", "fmn", "best of all"} <= set(held)
    assert all(len(colours) == 1 for colours in held.values()), held
    assert len(set.union(*held.values())) == len(held)


def queries(run: Run) -> Any:
    return np.add(run.forwards, run.backwards)


@PER_MODEL
def test_points_of_queries_and_medians(draw, model):
    figure = draw("boxes", "pareto")
    axis = panel(figure, model)
    told = {str(line.get_label()).removesuffix(" (∞)"): str(line.get_label()) for line in axis.lines}
    told = {name: label for name, label in told.items() if not name.startswith("_")}
    medians = {run.attack: float(np.median(run.changes)) for run in of(model)}
    spent = {run.attack: float(queries(run).mean()) for run in of(model)}
    top = axis.get_ylim()[1]
    shown = {
        (float(line.get_xdata()[0]), line.get_marker()): float(line.get_ydata()[0])
        for line in axis.lines
        if len(line.get_xdata()) == 1
    }
    assert set(told) == set(medians)
    for name, median in medians.items():
        at = shown[spent[name], "^" if math.isinf(median) else "o"]
        assert at == median if math.isfinite(median) else at > 1.5 * max(m for m in medians.values() if m < math.inf)
        assert at < top
        assert told[name].endswith(" (∞)") == math.isinf(median)
    best = [
        n
        for n in medians
        if medians[n] < math.inf and not any(medians[m] <= medians[n] and spent[m] < spent[n] for m in medians)
    ]
    (steps,) = [line for line in axis.lines if len(line.get_xdata()) > 1]
    corners = set(zip(*steps.get_data(), strict=True))
    assert corners >= {(spent[name], medians[name]) for name in best}
    assert {y for _, y in corners} == {medians[name] for name in best}
    assert {text.get_text() for text in axis.get_legend().get_texts()} == set(told.values())


def written(axis: Any) -> dict[tuple[str, str], str]:
    """Return what stands in a grid, by the names of its row and column."""
    down, across = ([label.get_text() for label in side.get_ticklabels()] for side in (axis.yaxis, axis.xaxis))
    return {(down[int(t.get_position()[1])], across[int(t.get_position()[0])]): t.get_text() for t in axis.texts}


def shaded(axis: Any) -> dict[tuple[str, str], float]:
    """Return how dark a grid is."""
    (image,) = axis.images
    assert image.get_clim() == (0, 100)
    down, across = ([label.get_text() for label in side.get_ticklabels()] for side in (axis.yaxis, axis.xaxis))
    values = np.ma.filled(np.ma.masked_invalid(image.get_array()), np.nan)
    return {(a, b): float(values[i, j]) for i, a in enumerate(down) for j, b in enumerate(across)}


@PER_MODEL
def test_agreement_of_two_attacks(draw, model):
    (axis,) = [axis for axis in draw("boxes", "agreement").axes if axis.get_title() == f"{model} on digits"]
    one, two = of(model)
    texts, darkness = written(axis), shaded(axis)
    for first, second in ((one, two), (two, one)):
        value = np.less(first.changes, second.changes).mean()
        assert texts[first.attack, second.attack] == f"{100 * value:.0f}"
        assert darkness[first.attack, second.attack] == pytest.approx(100 * value)
        assert texts[first.attack, first.attack] == ""
        assert math.isnan(darkness[first.attack, first.attack])


@PER_MODEL
def test_confusion_is_by_the_strongest_attack(draw, model):
    axis = panel(draw("boxes", "confusion"), model)
    assert "sigma-zero" in axis.get_title()
    (run,) = [run for run in of(model) if run.attack == "sigma-zero"]
    true = sorted({int(LABELS[i]) for i in range(8) if run.outcome[i] == F})
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("true class", "taken for")
    for (start, end), text in written(axis).items():
        goes = int(start) in true and (int(start) + 1) % 3 == int(end)  # as stores.py has it
        assert text == ("" if int(start) not in true else "100" if goes else "0")


@PER_MODEL
def test_heat_maps_are_shares_of_examples(draw, model):
    (part,) = [each for each in draw("boxes", "heat").subfigs if each.get_suptitle().startswith(model)]
    maps = {axis.get_title(): axis.images[0] for axis in part.axes if axis.images}
    assert len(maps) == len(of(model, BOXES))
    top = 0.0
    for run in of(model, BOXES):
        image = maps[run.attack if run.budget is None else f"{run.attack} within {run.budget}"]
        expected = often(run)
        assert np.asarray(image.get_array()) == pytest.approx(np.reshape(expected, (10, 10)))
        top = max(top, *expected)
    scales = {(image.norm.vmin, image.norm.vmax, float(image.norm(top / 4))) for image in maps.values()}
    assert scales == {(0, top, 0.5)}  # one for all attacks on a model


def often(run: Run) -> list[float]:
    """Return in how many % of the examples each feature is changed: sample i changes those from i on."""
    found = [(i, run.changes[i]) for i in range(8) if run.outcome[i] == F]
    return [100 * float(np.mean([i <= place < i + count for i, count in found])) for place in range(100)]


def test_bars_of_a_table_are_the_features_that_fall_most_often(draw):
    figure = draw("table", "heat")
    bars = {axis.get_title(): axis for axis in figure.axes if axis.patches}
    for run in FREE[:2]:
        shares = often(run)
        top = sorted(range(100), key=lambda place: -shares[place])[:12][::-1]
        axis = bars[run.attack]
        assert [label.get_text() for label in axis.get_yticklabels()] == [f"feature {k}" for k in top]
        assert [bar.get_width() for bar in axis.patches] == pytest.approx([shares[k] for k in top])


def test_a_figure_without_its_facts_is_refused(stores, tmp_path):
    done = run_command("plot", stores["boxes"], "transfer", "-o", tmp_path / "none.svg")
    assert (done.code, list(tmp_path.iterdir())) == (2, [])
