"""A page of literal facts: its sections, charts, drawings, samples and cells, and how tables mark and order rows."""

import base64
import io
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.helpers import readers
from tests.helpers.commands import run_command
from tests.helpers.stores import BOXES, CLEAN, LABELS, A, F, Run, write_store

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


def spent(run: Run) -> Any:
    """Return the queries until each sample was fooled: a search without a budget found them in its step 7."""
    part = (7 + 1) / STEPS if run.budget is None else 1.0
    found = np.where(np.array(run.outcome) == F, np.ceil(np.add(run.forwards, run.backwards) * part), math.inf)
    return np.where(np.array(run.outcome) == A, 1.0, found)


def test_sections_are_linked_in_their_order(text, page):
    links = re.findall(r'<a href="#(\w+)">(\w+)</a>', text.partition("</nav>")[0])
    assert [name for _, name in links] == page.texts["h2"]
    assert [name for name, _ in links] == re.findall(r'<section id="(\w+)"', text)
    assert page.texts["h1"] == ["boxes"]


@pytest.mark.parametrize("kind", ["curve", "effort"])
def test_charts_say_what_they_show(page, kind):
    for place, model in enumerate(MODELS):
        chart = page.data["charts"][f"{kind}-{place}"]
        mine = [run for run in BOXES if run.model == model and (kind == "effort" or run.budget is None)]
        values = {called(run): np.array(run.changes) if kind == "curve" else spent(run) for run in mine}
        furthest = max(float(each[np.isfinite(each)].max()) for each in values.values())
        assert furthest < chart["end"] <= 1.06 * furthest
        assert chart["ks"] == sorted(chart["ks"])
        assert chart["ks"][0] == 0
        assert chart["ks"][-1] == chart["end"]
        assert chart["view"] <= chart["end"]
        assert ("cut" in chart["cut"]) == (chart["view"] < furthest)
        medians = {name: float(np.median(each)) for name, each in values.items()}
        assert medians[chart["leader"]] == min(medians.values())
        assert chart["title"].startswith(f"{model} on digits, n = 8")
        assert {"curve": "features", "effort": "queries"}[kind] in chart["axis"]
        lines = {line["label"]: line for line in chart["series"]}
        assert set(lines) == {*values, *(["best of all"] if kind == "curve" else [])}
        for name, each in values.items():
            rates = [100 * float((each <= k).mean()) for k in chart["ks"]]
            assert lines[name]["rate"] == pytest.approx(rates, abs=1e-3)
            ends = zip(lines[name]["low"], lines[name]["rate"], lines[name]["high"], strict=True)
            assert all(low <= rate <= high and (low < rate or rate == 0) for low, rate, high in ends)
        looks = {(line.get("light"), line.get("dark"), str(line["dash"])) for line in lines.values()}
        assert len(looks) >= len({run.attack for run in mine})


def test_effort_in_numbers(text):
    read = readers.read_page(text)
    for model in MODELS:
        table = next(read[name] for name in read if name.startswith(f"effort: {model} on digits"))
        for run in (run for run in BOXES if run.model == model):
            shown = {name.partition("@")[2]: value for name, value in table[called(run)].items() if "." not in name}
            assert {"1", "20", "inf"} <= set(shown)
            for q, value in shown.items():
                true = float((spent(run) <= float(q)).mean()) if q != "inf" else float(np.isfinite(spent(run)).mean())
                assert readers.Shown.agrees(value, true), f"{model} {called(run)} at {q}"


def test_bars_are_as_high_as_they_say(text):
    drawings = re.findall(r'<svg[^>]*aria-label="Histogram.*?</svg>', text, re.DOTALL)
    assert len(drawings) == len(FREE)
    for pair in (drawings[:2], drawings[2:]):  # of one model: the same axes
        found = []
        for drawing in pair:
            _, _, wide, high = map(float, re.findall(r'viewBox="([^"]*)"', drawing)[0].split())
            bars = re.findall(
                r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)".*?>(\d+) sample\D+(\d+)', drawing
            )
            numbers = np.array(bars, float)
            assert np.ptp(numbers[:, 1] + numbers[:, 3]) < 0.2  # all stand on one line
            assert (np.diff(numbers[:, 0]) > 0).all()
            assert (np.diff(numbers[:, 5]) > 0).all()
            assert numbers[-1, 0] + numbers[-1, 2] <= wide
            assert (numbers[:, 1] >= 0).all()
            assert numbers[0, 1] + numbers[0, 3] < high
            found.append(numbers)
        heights, counts = (np.concatenate([each[:, k] for each in found]) for k in (3, 4))
        assert heights == pytest.approx(counts * heights.max() / counts.max(), abs=0.06)


def test_grids_are_shaded_by_their_numbers(text):
    squares = re.findall(
        r'<rect x="([\d.]+)" y="([\d.]+)"[^>]*fill-opacity="([\d.]+)"[^>]*><title>[^<]*? (\d+) %[^<]*</title></rect>'
        r'(?:<text x="([\d.]+)" y="([\d.]+)" text-anchor="middle">(\d+)</text>)?',
        text,
    )
    assert len(squares) > 12
    shades = {int(share): float(opacity) for _, _, opacity, share, *_ in squares}
    assert [shades[share] for share in sorted(shades)] == sorted(shades.values())
    assert max(shades.values()) <= 1
    for x, y, _, share, left, top, number in squares:
        assert number == (share if share != "0" else "")
        if number:
            assert 0 < float(left) - float(x) < 40
            assert 0 < float(top) - float(y) < 40


def picture(uri: str) -> Any:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2]))))


@pytest.mark.parametrize("place", range(2))
def test_heat_is_as_bright_as_pixels_change_often(text, place):
    """Black is never, and all maps of a model have one scale."""
    images = re.findall(r'<img src="(data:image/png[^"]+)" alt="Where (.*?) changes pixels"', text)[4 * place :][:4]
    runs = {called(run): run for run in BOXES if run.model == MODELS[place]}
    assert {name for _, name in images} == set(runs)
    levels: dict[float, set[tuple[int, ...]]] = {}
    for uri, name in images:
        run, pixels = runs[name], picture(uri)
        assert pixels.shape == (10, 10, 3)
        found = [(i, run.changes[i]) for i in range(8) if run.outcome[i] == F]  # sample i changes features from i on
        for k, colour in enumerate(pixels.reshape(100, 3).tolist()):
            often = float(np.mean([i <= k < i + count for i, count in found]))
            levels.setdefault(often, set()).add(tuple(colour))
    assert all(len(colours) == 1 for colours in levels.values())
    bright = [sum(next(iter(levels[often]))) for often in sorted(levels)]
    assert bright == sorted(set(bright))
    assert bright[0] < 20
    assert bright[-1] > 500


def test_samples_are_spread_and_told(page):
    assert any(line.startswith("3 of 8 samples are on this page, evenly spread") for line in page.texts["p"])
    (group,) = page.data["samples"]
    rows = group["rows"]
    assert (rows[0], rows[-1], len(rows)) == (0, 7, 3)
    assert group["labels"] == LABELS[rows].tolist()
    cells = {(cell["model"], cell["attack"], cell["budget"]): cell for cell in group["cells"]}
    assert len(cells) == len(BOXES)
    for run in BOXES:
        cell = cells[run.model, run.attack, run.budget]
        clean = np.array(CLEAN[run.model])
        assert cell["rows"] == rows
        assert [math.inf if each is None else each for each in cell["l0"]] == np.array(run.changes)[rows].tolist()
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


def test_tables_go_from_the_weakest_attack_on_and_mark_the_best(store):
    done = run_command("report", store, "--table", "minimum-norm", "--to", "markdown", "--k", "0,2,10")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines() if "|" in line]
    heading, rows, model = lines[0], [], ""
    for row in lines[2:]:
        model = row[0] or model
        rows.append({**dict(zip(heading, row, strict=True)), "model": model})
    by_median = sorted(FREE, key=lambda run: (run.model, -float(np.median(run.changes))))
    assert [(row["model"], row["attack"]) for row in rows] == [(run.model, run.attack) for run in by_median]
    for name in ("ASR 0", "ASR 2", "ASR 10", "ASR ∞", "median"):
        for model in MODELS:
            cells = [row[name] for row in rows if row["model"] == model]
            values = [float(cell.strip("*")) for cell in cells]
            best = min(values) if name == "median" else max(values)
            marked = [value == best and values.count(best) == 1 for value in values]
            assert [cell.startswith("**") for cell in cells] == marked, f"{name} of {model}"


def test_a_page_chooses_numbers_of_changes_that_tell_attacks_apart(text, page):
    """One where the strongest begins, one near its half, one near its end; to pick are those up to the largest."""
    table = readers.read_page(text)["minimum-norm"]
    chosen = sorted(float(name[4:]) for name in table["first sigma-zero"] if re.fullmatch(r"asr@[\d.]+", name))
    headings = " ".join(page.data["picks"]["minimum-norm"]["headings"])
    listed = sorted({float(k) for k in re.findall(r"ASR (?:at )?([\d.]+)", headings)} | set(chosen))
    assert listed[:10] == [*range(1, 11)]
    assert listed[-1] == max(c for run in FREE for c in run.changes if c < math.inf)
    rates = np.array(
        [[[np.mean(np.array(r.changes) <= k) for k in listed] for r in FREE if r.model == m] for m in MODELS]
    )
    leading, apart = rates.max(1).mean(0), np.abs(rates[:, 0] - rates[:, 1]).mean(0)
    for low, high in ((0.05, 0.4), (0.4, 0.75), (0.75, 0.995)):
        within = [place for place, rate in enumerate(leading) if low <= rate < high]
        (mine,) = [place for place in within if listed[place] in chosen]
        assert apart[mine] == pytest.approx(apart[within].max())
    assert len(chosen) == 3
