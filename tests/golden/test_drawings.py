"""Every figure that `report` draws of literal facts shows their numbers: lines, bars, points, grids and maps.

What is checked is the figure that matplotlib is given to save, so that nothing depends on the layout of a file.
"""

import math
import re
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.helpers.commands import run_command
from tests.helpers.stores import BOXES, COSTS, LABELS, SPACE, A, F, Run, write_store

FREE = [run for run in BOXES if run.budget is None]
FIXED = [run for run in BOXES if run.budget is not None]
MODELS = sorted({run.model for run in BOXES})
PER_MODEL = pytest.mark.parametrize("model", MODELS)
STEPS = 100  # of every run


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("literal")
    return {
        "boxes": write_store(folder / "boxes.db", BOXES),
        "costs": write_store(folder / "costs.db", COSTS, SPACE),
        "table": write_store(folder / "table.db", FREE[:2], shape=(100,)),
        "components": write_store(folder / "components.db", ABLATED["components"]),
        "surface": write_store(folder / "surface.db", ABLATED["surface"]),
        "rate": write_store(folder / "rate.db", ABLATED["rate"]),
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
                patch.setattr(Figure, "draw_without_rendering", lambda self: None)  # it finds places, for seconds
                patch.setattr(Figure, "savefig", lambda self, path, **how: (saved.append(self), path.write_text("")))
                done = run_command("report", stores[store], options[0], file, *options[1:])
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
@pytest.mark.parametrize("options", [(), ("--until", "10"), ("--until", "40", "--log")], ids=" ".join)
def test_curves_are_success_rates(draw, model, options):
    axis = panel(draw("boxes", "--curves", *options), model)
    lines = {line.get_label(): line for line in axis.lines}
    left, end = axis.get_xlim()
    assert axis.get_title() == f"{model} on digits, n = 8"
    assert (left, axis.get_xscale()) == (0, "symlog" if "--log" in options else "linear")
    assert axis.get_ylim()[0] == 0
    assert axis.get_ylim()[1] >= 100
    furthest = {run.attack: max(k for k in run.changes if k < math.inf) for run in of(model)}
    assert end == float(options[1]) if options else end <= 1.05 * max(furthest.values())
    wanted = {run.attack: np.array(run.changes) for run in of(model)}
    wanted["best of all"] = np.min([*wanted.values()], axis=0)
    for name, changes in wanted.items():
        xs = np.asarray(lines[name].get_xdata(), float)
        assert xs[-1] == end
        for k in (k for k in range(61) if k <= end):
            assert height(lines[name], k) == pytest.approx(share(changes, k)), f"{name} at {k}"
    goes_on = {name: k for name, k in furthest.items() if k > end}
    said = dict(re.findall(r"(\S+) (?:goes on )?to ([\d.]+)", axis.get_xlabel().partition("cut at")[2]))
    assert {name: float(k) for name, k in said.items()} == goes_on
    assert sum(line.get_marker() == ">" for line in axis.lines) == len(goes_on)
    if not options:  # most of what is ever reached is seen
        assert max(share(each, end) for each in wanted.values()) >= 80 * (
            1 - wanted["best of all"].tolist().count(math.inf) / 8
        )


@PER_MODEL
def test_curves_show_intervals_and_runs_with_budgets(draw, model):
    axis = panel(draw("boxes", "--curves"), model)
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
    axis = panel(draw("costs", "--curves", "--over", "cost"), "first")
    for run in COSTS:
        (line,) = [line for line in axis.lines if line.get_label() == run.attack]
        for cost in (0, 2, 2.5, 3.5, 7):
            assert height(line, cost) == pytest.approx(share(run.cost, cost))
    assert "cost" in axis.get_xlabel()


def test_colours_belong_to_attacks(draw):
    held: dict[str, set[str]] = {}
    for option, store in product(("--curves", "--effort"), ("boxes", "costs")):
        for axis in draw(store, option).axes:
            for line in axis.lines:
                name = str(line.get_label()).partition(" within")[0].partition(" at k")[0]
                if not name.startswith("_") and line.get_xdata() is not None:
                    held.setdefault(name, set()).add(str(line.get_color()))
    assert {"sigma-zero", "ead-paper", "sparse-rs", "sigma-swap", "fmn", "best of all"} <= set(held)
    assert all(len(colours) == 1 for colours in held.values()), held
    assert len(set.union(*held.values())) == len(held)


def queries(run: Run) -> Any:
    return np.add(run.forwards, run.backwards)


@PER_MODEL
def test_points_of_queries_and_medians(draw, model):
    figure = draw("boxes", "--pareto")
    axis = panel(figure, model)
    told = {text.get_text().removesuffix(" (∞)"): text for text in axis.texts}
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
        assert told[name].get_text().endswith(" (∞)") == math.isinf(median)
        assert told[name].xy == (spent[name], at)
    best = [
        n
        for n in medians
        if medians[n] < math.inf and not any(medians[m] <= medians[n] and spent[m] < spent[n] for m in medians)
    ]
    (steps,) = [line for line in axis.lines if len(line.get_xdata()) > 1]
    corners = set(zip(*steps.get_data(), strict=True))
    assert corners >= {(spent[name], medians[name]) for name in best}
    assert max(x for x, _ in corners) == axis.get_xlim()[1]
    assert {y for _, y in corners} == {medians[name] for name in best}
    boxes = [text.get_window_extent() for text in axis.texts]
    assert not any(one.overlaps(two) for one, two in combinations(boxes, 2))
    frame = axis.get_window_extent().padded(2)
    assert all(frame.containsx(x) for box in boxes for x in (box.x0, box.x1))
    others = [other for other in figure.axes if other is not axis]
    assert all((other.get_xlim(), other.get_ylim()) == (axis.get_xlim(), axis.get_ylim()) for other in others)


def test_histograms_count_every_sample_once(draw):
    figure = draw("boxes", "--histogram")
    axes = [axis for axis in figure.axes if axis.patches or axis.texts]
    titles = [axis.get_title() for axis in axes if axis.get_title()]
    assert titles == [f"{model} on digits, n = 8" for model in MODELS]
    held = []
    for axis in axes:
        name, *rest = axis.texts[0].get_text().split("\n")
        told = {what: int(count) for count, what in re.findall(r"(\d+) ([a-z ]+)", "".join(rest))}
        bars = [(bar.get_x() + 0.5, bar.get_x() + 0.5 + bar.get_width(), bar.get_height()) for bar in axis.patches]
        held.append((name, told, bars))
        assert axis.get_xlim() == (0, bars[-1][1])
    assert len(held) == len(FREE)
    for name, told, bars in held:
        fits = [run for run in FREE if run.attack == name and counts(run, bars) == told]
        assert any(
            [sum(low <= c < high for c in run.changes) for low, high, _ in bars] == [n for *_, n in bars]
            for run in fits
        ), name
        assert sum(told.values()) + sum(n for *_, n in bars) == 8
        assert len({high - low for low, high, _ in bars}) == 1


def counts(run: Run, bars: list[tuple[float, float, float]]) -> dict[str, int]:
    """Return what stands beside the bars: samples that are in none of them."""
    last = bars[-1][1]
    found = {
        "wrong already": run.changes.count(0),
        "beyond": sum(last <= c < math.inf for c in run.changes),
        "not fooled": run.changes.count(math.inf),
    }
    return {what: count for what, count in found.items() if count}


@PER_MODEL
def test_effort_is_queries_until_found(draw, model):
    axis = panel(draw("boxes", "--effort"), model)
    lines = {line.get_label(): line for line in axis.lines}
    assert len(lines) == len(of(model, BOXES))
    for run in of(model, BOXES):
        part = (7 + 1) / STEPS if run.budget is None else 1.0  # stores.py says in which step each was found
        spent = np.where(np.array(run.outcome) == F, np.ceil(queries(run) * part), math.inf)
        spent[np.array(run.outcome) == A] = 1
        line = lines[run.attack if run.budget is None else f"{run.attack} within {run.budget}"]
        for q in (0, 1, 6, 7, 15, 16, 17, 24, 27, 28, 30, 42, 100):
            if q <= axis.get_xlim()[1]:
                assert height(line, q) == pytest.approx(share(spent, q)), f"{run.attack} {run.budget} at {q}"
        assert max(line.get_xdata()) == axis.get_xlim()[1]
    styles = [(line.get_color(), line.get_linestyle(), line._dash_pattern) for line in axis.lines]
    assert len(set(map(str, styles))) == len(styles)


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
    figure = draw("boxes", "--agreement")
    common, fewer = [axis for axis in figure.axes if axis.get_title().startswith(f"{model} on digits: ")]
    assert ("common" in common.get_title(), "fewer" in fewer.get_title()) == (True, True)
    one, two = of(model)
    both = [i for i in range(8) if one.outcome[i] == two.outcome[i] == F]  # each changes the first features
    overlap = np.mean([min(one.changes[i], two.changes[i]) / max(one.changes[i], two.changes[i]) for i in both])
    pair = one.attack, two.attack
    for axis, first, second in (
        (common, overlap, overlap),
        (fewer, np.less(one.changes, two.changes).mean(), np.less(two.changes, one.changes).mean()),
    ):
        texts, darkness = written(axis), shaded(axis)
        for at, value in ((pair, first), (pair[::-1], second)):
            assert texts[at] == f"{100 * value:.0f}"
            assert darkness[at] == pytest.approx(100 * value)
        assert all(texts[name, name] == "" for name in pair)
        assert all(math.isnan(darkness[name, name]) for name in pair)


@PER_MODEL
def test_confusion_is_by_the_strongest_attack(draw, model):
    axis = panel(draw("boxes", "--confusion"), model)
    assert "sigma-zero" in axis.get_title()
    (run,) = [run for run in of(model) if run.attack == "sigma-zero"]
    true = sorted({int(LABELS[i]) for i in range(8) if run.outcome[i] == F})
    assert (axis.get_ylabel(), axis.get_xlabel()) == ("true class", "taken for")
    for (start, end), text in written(axis).items():
        goes = int(start) in true and (int(start) + 1) % 3 == int(end)  # as stores.py has it
        assert text == ("100" if goes else "")
        assert shaded(axis)[start, end] == (100 if goes else 0)


@PER_MODEL
def test_heat_maps_are_shares_of_examples(draw, model):
    (part,) = [each for each in draw("boxes", "--heat").subfigs if each.get_suptitle().startswith(model)]
    maps = {axis.get_title(): axis.images[0] for axis in part.axes if axis.images}
    assert len(maps) == len(of(model, BOXES))
    top = 0.0
    for run in of(model, BOXES):
        image = maps[run.attack if run.budget is None else f"{run.attack} at {run.budget}"]
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
    figure = draw("table", "--heat")
    bars = {axis.get_title(): axis for axis in figure.axes if axis.patches}
    for run in FREE[:2]:
        shares = often(run)
        top = sorted(range(100), key=lambda place: -shares[place])[:12][::-1]
        axis = bars[run.attack]
        assert [label.get_text() for label in axis.get_yticklabels()] == [f"feature {k}" for k in top]
        assert [bar.get_width() for bar in axis.patches] == pytest.approx([shares[k] for k in top])


SWITCHES = ("normalize", "adaptive_threshold", "projection", "l0_term")


def varied(changes: list[float], **parameters: Any) -> Run:
    outcome = [A if c == 0 else F if c < math.inf else 2 for c in changes]
    return Run("first", "sigma-zero", changes, outcome, [102] * 8, [100] * 8, 1.0, parameters=parameters)


ABLATED = {
    "components": [
        varied([0, n, 2 * n, 3, 4 * n, 9, 30 * n, math.inf], **{name: k < n for k, name in enumerate(SWITCHES)})
        for n in (4, 3, 2)
    ],
    "surface": [
        varied([0, 1, 2, s * t, 3 * t, 9 * s, 30, math.inf], smoothing=s / 10, threshold=t / 10)
        for s in (1, 2)
        for t in (1, 3, 4)
    ],
    "rate": [varied([0, 1, 2, 30 * r, 31 * r, 32 * r, 33, math.inf], threshold_rate=r / 100) for r in (1, 2, 5)],
}


def ablation_panels(figure: Figure) -> Iterator[tuple[Any, Any]]:
    """Yield each panel, and the figure of a run that it is about."""
    for axis in figure.axes:
        if matched := re.fullmatch(r"first on digits: (?:ASR (\S+), %|(median .*))", axis.get_title()):
            k = None if matched[1] is None else math.inf if matched[1] == "∞" else float(matched[1])
            yield (
                axis,
                lambda run, k=k: (
                    float(np.median(run.changes))
                    if k is None
                    else 100 * np.mean([c <= k and c < math.inf for c in run.changes])
                ),
            )


def test_ablation_of_two_numbers_is_a_map(draw):
    seen = 0
    for axis, value in ablation_panels(draw("surface", "--ablation", "--k", "2,5")):
        seen += 1
        (image,) = axis.images
        texts = {t.get_position(): t.get_text() for t in axis.texts}
        for run in ABLATED["surface"]:
            row, column = (
                (0.1, 0.2).index(run.parameters["smoothing"]),
                (0.1, 0.3, 0.4).index(run.parameters["threshold"]),
            )
            assert float(image.get_array()[row, column]) == pytest.approx(value(run))
            assert float(texts[column, row]) == pytest.approx(value(run), abs=0.05)
        assert [label.get_text() for label in axis.get_yticklabels()] == ["0.1", "0.2"]
        assert [label.get_text() for label in axis.get_xticklabels()] == ["0.1", "0.3", "0.4"]
    assert seen >= 3


def test_ablation_of_one_number_is_a_curve(draw):
    seen = 0
    for axis, value in ablation_panels(draw("rate", "--ablation", "--k", "2,35")):
        seen += 1
        (line,) = axis.lines
        assert np.asarray(line.get_xdata()).tolist() == [0.01, 0.02, 0.05]
        assert np.asarray(line.get_ydata()) == pytest.approx([value(run) for run in ABLATED["rate"]])
        assert axis.get_ylim()[0] == 0
        assert axis.get_ylim()[1] > max(line.get_ydata())
        assert axis.get_xscale() == "log"
    assert seen >= 3


def test_ablation_of_components_is_a_table(stores, tmp_path):
    file = tmp_path / "table.md"
    assert run_command("report", stores["components"], "--ablation", file, "--k", "2,10").code == 0
    heading, _, *rows = [
        [cell.strip(" *") for cell in line.split("|")[1:-1]] for line in file.read_text().splitlines() if "|" in line
    ]
    shown = [dict(zip(heading, row, strict=True)) for row in rows]
    ordered = sorted(ABLATED["components"], key=lambda run: float(np.median(run.changes)))
    assert len(shown) == len(ordered)
    for row, run in zip(shown, ordered, strict=True):
        assert [row[name] for name in row if row[name] in ("yes", "no")] == [
            "yes" if run.parameters[name] else "no" for name in SWITCHES
        ]
        (median,) = [float(row[name]) for name in row if name.startswith("median")]
        assert median == float(np.median(run.changes))
        for k in (2, 10):
            assert float(row[f"ASR {k}"].rstrip("% ")) == pytest.approx(share(run.changes, k), abs=0.05)


def test_a_figure_without_its_facts_is_refused(stores, tmp_path):
    for store, option in (("boxes", "--ablation"), ("boxes", "--transfer"), ("boxes", "--figure-1")):
        done = run_command("report", stores[store], option, tmp_path / "none.svg")
        assert (done.code, list(tmp_path.iterdir())) == (2, [])


def test_a_file_is_the_same_for_the_same_numbers(stores, tmp_path):
    for file in (tmp_path / "one.svg", tmp_path / "two.svg"):
        assert run_command("report", stores["boxes"], "--confusion", file).code == 0
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert all(f"<!-- {label} -->" in (tmp_path / "one.svg").read_text("utf-8") for label in set(LABELS.tolist()))
