"""A page of literal facts: its sections, charts, maps, samples and cells, and how tables mark and order rows."""

import base64
import math
import re
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import readers
from tests.helpers.commands import run_command
from tests.helpers.stores import BOXES, CLEAN, LABELS, F, Run, write_store

MODELS = ("first", "second")
FREE = [run for run in BOXES if run.budget is None]
STEPS = 100


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return write_store(tmp_path_factory.mktemp("literal") / "boxes.db", BOXES)


@pytest.fixture(scope="module")
def text(store) -> str:
    page = store.with_name("page.html")
    assert run_command("report", store, "-o", page, "--samples", 3).code == 0
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(text) -> readers.Page:
    return readers.parse(text)


def called(run: Run) -> str:
    return run.attack if run.budget is None else f"{run.attack} within {run.budget}"


def test_sections_are_linked_in_their_order(text, page):
    links = re.findall(r'<a href="#(\w+)">(\w+)</a>', text.partition("</nav>")[0])
    assert [name for _, name in links] == page.texts["h2"][len(MODELS) :]
    assert [name for name, _ in links] == re.findall(r'<section id="(\w+)"', text)
    assert page.texts["h2"][: len(MODELS)] == [f"{model} on digits" for model in MODELS]
    assert page.texts["h1"] == ["boxes"]


def heights(path: str, end: float) -> dict[float, float]:
    """Read a path of steps in percent of the plot: the height from each place on."""
    found, x = {}, 0.0
    for operation, first, second in re.findall(r"([MHV])([\d.e-]+)(?:,([\d.e-]+))?", path):
        x = float(first) * end / 100 if operation == "H" else x
        if operation != "H":
            found[x] = 100 - float(second or first)
    return found


@pytest.mark.parametrize("place", range(2))
def test_curves_are_drawn_and_read_as_the_facts_say(text, page, place):
    chart = page.data["charts"][f"curve-{place}"]
    mine = [run for run in FREE if run.model == MODELS[place]]
    values = {run.attack: np.array(run.changes) for run in mine}
    values["best of all"] = np.min([*values.values()], axis=0)
    (figure,) = re.findall(rf'data-chart="curve-{place}">(.*?)</figure>', text, re.DOTALL)
    paths = dict(re.findall(r'<g data-label="([^"]+)".*?<path class="line" d="([^"]+)"', figure))
    lines = {line["label"]: line for line in chart["series"]}
    assert chart["ks"] == [*range(int(chart["end"]) + 1)]
    assert set(lines) == set(values) == set(paths) - {called(run) for run in BOXES if run.budget is not None}
    for name, changes in values.items():
        rates = [100 * float((changes <= k).mean()) for k in chart["ks"]]
        assert lines[name]["rate"] == pytest.approx(rates, abs=0.01)
        drawn = heights(paths[name], chart["end"])
        assert [drawn[max(x for x in drawn if x <= k + 0.05)] for k in chart["ks"]] == pytest.approx(rates, abs=0.1)
    looks = {line["colour"] for line in lines.values()}
    assert len(looks) == len(values)
    fixed = [run for run in BOXES if run.model == MODELS[place] and run.budget is not None]
    dots = re.findall(r'<i class="dot" data-label="([^"]+)" style="left: ([\d.]+)%; bottom: ([\d.]+)%', figure)
    assert {(name, round(float(x) * chart["end"] / 100), float(y)) for name, x, y in dots} == {
        (called(run), run.budget, 100 * sum(c <= (run.budget or 0) for c in run.changes) / 8) for run in fixed
    }


@pytest.mark.parametrize("place", range(2))
def test_maps_are_as_dark_as_pixels_change_often(text, page, place):
    """All maps of a model have one scale."""
    labels = dict(re.findall(rf'data-map="(map-{place}-\d)" role="img" aria-label="Pixels changed by ([^"]+)"', text))
    runs = {called(run): run for run in BOXES if run.model == MODELS[place]}
    assert set(labels.values()) == set(runs)
    found = {}
    for name, label in labels.items():
        held = page.data["maps"][name]
        assert held["width"] == 10
        found[label] = np.frombuffer(base64.b64decode(held["values"]), np.uint8)
    often = {label: np.array(share(runs[label])) for label in found}
    top = max(each.max() for each in often.values())
    for label, values in found.items():
        assert values.tolist() == np.round(255 * often[label] / top).tolist()


def share(run: Run) -> list[float]:
    """Return in which share of the examples each feature is changed: sample i changes those from i on."""
    examples = [(i, run.changes[i]) for i in range(8) if run.outcome[i] == F]
    return [float(np.mean([i <= k < i + count for i, count in examples])) for k in range(100)]


def test_grids_are_shaded_by_their_numbers(text):
    squares = re.findall(r'style="--shade: ([\d.]+)">(\d+)</td>', text)
    assert len(squares) > 12
    for shade, number in squares:
        assert float(shade) == pytest.approx(float(number) / 100, abs=0.006)


def test_samples_are_spread(page):
    assert "3 of 8 samples of digits, evenly spread." in page.texts["p"]
    (held,) = page.data["samples"]["sets"]
    rows = held["rows"]
    assert (rows[0], rows[-1], len(rows)) == (0, 7, 3)
    assert held["labels"] == LABELS[rows].tolist()
    groups = page.data["samples"]["groups"]
    cells = {(group["title"], run["name"]): run for group in groups for run in group["runs"]}
    assert len(cells) == len(BOXES)
    for run in BOXES:
        cell = cells[f"{run.model} on digits", called(run)]
        clean = np.array(CLEAN[run.model])
        assert cell["rows"] == rows
        assert [math.inf if each is None else each for each in cell["changes"]] == np.array(run.changes)[rows].tolist()
        assert cell["outcome"] == np.array(run.outcome)[rows].tolist()
        assert cell["before"] == clean[rows].tolist()
        assert cell["after"] == np.where(run.found, (LABELS + 1) % 3, clean)[rows].tolist()
        assert cell["queries"] == np.add(run.forwards, run.backwards)[rows].tolist()


def test_every_cell_is_listed_with_its_state(page):
    tables = {table.name: table for table in page.tables}
    cells = [dict(zip(tables["cells"].headings, row, strict=True)) for row in tables["cells"].rows]
    shown = sorted((c["model"], c["attack"], c["budget"], c["samples"], c["state"], c["data"]) for c in cells)
    assert shown == sorted(
        (run.model, run.attack, "–" if run.budget is None else f"{run.budget}", "8", "done", "digits") for run in BOXES
    )
    parameters = {row[0]: row[-1] for row in tables["parameters"].rows}
    assert parameters == {run.attack: f"steps={STEPS}" for run in BOXES}


def test_tables_go_from_the_strongest_attack_on_and_mark_the_best(store):
    done = run_command("report", store, "--table", "minimum-norm", "--to", "markdown", "--k", "0,2,10")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    heading, rows, model = lines[0], [], ""
    for row in lines[2:]:
        model = row[0] or model
        rows.append({**dict(zip(heading, row, strict=True)), "model": model})
    by_median = sorted(FREE, key=lambda run: (run.model, float(np.median(run.changes))))
    assert [(row["model"], row["attack"]) for row in rows] == [(run.model, run.attack) for run in by_median]
    for name in ("ASR 0", "ASR 2", "ASR 10", "ASR ∞", "median"):
        for model in MODELS:
            cells = [row[name] for row in rows if row["model"] == model]
            values = [float(cell.strip("*")) for cell in cells]
            best = min(values) if name == "median" else max(values)
            marked = [value == best and values.count(best) == 1 for value in values]
            assert [cell.startswith("**") for cell in cells] == marked, f"{name} of {model}"


@pytest.mark.parametrize("to", ["page", "markdown", "csv", "latex", "terminal"])
def test_success_is_shown_at_the_quartiles_of_the_strongest_attacks(to, text, store):
    fooled = sorted(c for run in FREE if run.attack == "sigma-zero" for c in run.changes if 0 < c < math.inf)
    quartiles = {fooled[math.ceil(share * len(fooled)) - 1] for share in (0.25, 0.5, 0.75)}
    if to == "page":
        lines = readers.read_page(text)["minimum-norm"]
    else:
        done = run_command("report", store, "--to", to, columns=400)
        read = {"csv": readers.read_csv, "latex": readers.read_latex, "markdown": readers.read_markdown}
        lines = read.get(to, readers.read_table)(done.stdout)
    shown = {float(name[4:]) for name in lines["first sigma-zero"] if re.fullmatch(r"asr@[\d.]+", name)}
    assert shown == quartiles
