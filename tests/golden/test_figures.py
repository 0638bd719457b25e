"""Figures of literal facts, by every rendering: `figures.json` names them (attack × column → value).

The file itself is compared with a plain computation from the facts, so that it cannot hold a false number.
"""

import csv
import io
import itertools
import json
import math
import re
import sqlite3
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from tests.helpers import readers
from tests.helpers.commands import run_command
from tests.helpers.readers import Figures
from tests.helpers.stores import BOXES, CLEAN, COSTS, LABELS, SPACE, Run, write_store

FILE = Path(__file__).parent / "figures.json"
KS = (0, 1, 2, 3, 5, 6, 10, 25, math.inf)
SHOWN = "1,2,5,10,25"  # what the tables are asked for
Table = dict[str, Figures]


def golden() -> dict[str, Table]:
    tables: dict[str, Table] = json.loads(FILE.read_text(encoding="utf-8"))
    return tables


def share(name: str, count: int, of: int) -> Figures:
    """Return a share and the ends of its interval: where a normal error of 95 % stops to explain the count."""
    z = NormalDist().inv_cdf(0.975)
    ends = sorted(np.roots([of + z * z, -(2 * count + z * z), count * count / of]).real)
    return {name: count / of, f"{name}.low": max(ends[0], 0.0), f"{name}.high": min(ends[1], 1.0)}


def figures(run: Run, changes: list[float], ks: tuple[float, ...] = KS) -> Figures:
    """Return all figures of a run, with changes counted or priced."""
    found: Figures = {"samples": 8, "clean_accuracy": sum(np.array(CLEAN[run.model]) == LABELS) / 8}
    for k in ks:
        found |= share(f"asr@{k:g}", sum(each <= k and each < math.inf for each in changes), 8)
    ordered = sorted(changes)
    found["median_l0"] = (ordered[3] + ordered[4]) / 2
    found["queries"] = (sum(run.forwards) + sum(run.backwards)) / 8
    found["seconds_per_sample"] = run.seconds / 8
    return found


def row(run: Run) -> str:
    return f"{run.model} {run.attack}"


def fixed(runs: list[Run]) -> Figures:
    """Return a line of the table of budgets: success at each of them; the other figures are of the smallest."""
    rates = [figures(run, run.changes, (run.budget or 0,)) for run in runs]
    merged = {name: value for each in rates for name, value in each.items()} | rates[0]
    del merged["median_l0"]
    return merged


def by_hand() -> dict[str, Table]:
    """Return what figures.json must hold."""
    limited = [run for run in BOXES if run.budget is not None]
    cost = {row(run): figures(run, run.cost) for run in COSTS}
    return {
        "minimum-norm": {row(run): figures(run, run.changes) for run in BOXES if run.budget is None},
        "fixed-budget": {name: fixed([run for run in limited if row(run) == name]) for name in map(row, limited)},
        "minimum-norm with costs": {row(run): figures(run, run.changes) for run in COSTS},
        "by-cost": cost,
        "gate": {"eps 2": gated(2), "any": gated(None)},
    }


def written(tables: dict[str, Table]) -> str:
    """Return the tables as the file has them: a line for each row."""
    lines = []
    for table, rows in tables.items():
        each = [
            f'    "{name}": {json.dumps({k: round(v, 12) for k, v in told.items()})}' for name, told in rows.items()
        ]
        lines.append(f'  "{table}": {{\n' + ",\n".join(each) + "\n  }")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def test_the_file_holds_what_the_facts_say():
    expected = written(by_hand())
    assert FILE.read_text(encoding="utf-8") == expected, f"{FILE.name} should be:\n{expected}"


def check(read: Table, table: str, *must: str) -> None:
    """Compare what is shown with the file, to the digits shown; it has no intervals of medians."""
    told = golden()[table]
    assert set(read) == set(told)
    for name, shown in read.items():
        assert set(must) <= set(shown), f"{table}, {name}"
        for figure, value in shown.items():
            if figure in told[name]:
                assert readers.Shown.agrees(value, told[name][figure]), f"{table}, {name}: {figure} is shown as {value}"


@pytest.fixture(scope="module")
def stores(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("literal")
    return {
        "boxes": write_store(folder / "boxes.db", BOXES),
        "costs": write_store(folder / "costs.db", COSTS, SPACE),
    }


ALWAYS = ("queries", "seconds_per_sample")
ASKED = tuple(f"asr@{k}" for k in SHOWN.split(","))
TABLES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "minimum-norm": ("boxes", ("--table", "minimum-norm", "--k", SHOWN), (*ASKED, "asr@inf", "median_l0", *ALWAYS)),
    "fixed-budget": ("boxes", ("--table", "fixed-budget"), ("asr@2", "asr@5", *ALWAYS)),
    "minimum-norm with costs": ("costs", ("--k", SHOWN), (*ASKED, "asr@inf", "median_l0", *ALWAYS)),
    "by-cost": ("costs", ("--cost", "--k", SHOWN), (*ASKED, "asr@inf", "median_l0", *ALWAYS)),
}
FORMATS = {
    "terminal": readers.read_table,
    "markdown": readers.read_markdown,
    "latex": readers.read_latex,
    "csv": readers.read_csv,
}


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("table", TABLES)
def test_tables_show_the_figures(table, to, stores):
    store, options, must = TABLES[table]
    for more in ((), ("--intervals",)):
        ran = run_command("report", stores[store], *options, "--to", to, *more, columns=400)
        assert ran.code == 0, ran.stderr
        ends = [f"{name}.{end}" for name in must if more and name.startswith("asr@") for end in ("low", "high")]
        check(FORMATS[to](ran.stdout), table, *must, *ends)


@pytest.mark.parametrize("store", ["boxes", "costs"])
def test_pages_show_the_figures(store, stores, tmp_path):
    ran = run_command("report", stores[store], "-o", tmp_path / "page.html")
    assert ran.code == 0, ran.stderr
    read = readers.read_page((tmp_path / "page.html").read_text(encoding="utf-8"))
    names = {"minimum-norm": "minimum-norm" if store == "boxes" else "minimum-norm with costs", "by-cost": "by-cost"}
    names |= {"fixed-budget": "fixed-budget"}
    seen = set()
    for kind, lines in read.items():
        table = kind.partition(" as ")[0]
        if table in names:
            must = ("asr@2", "asr@5") if table == "fixed-budget" else ("median_l0", "asr@inf")
            check(lines, names[table], *must, *ALWAYS)
            seen.add(table)
        for start, counted in (("curve", "minimum-norm"), ("cost", "by-cost")):
            if kind.partition(": ")[0].removesuffix(" in numbers") == start:
                about = kind.partition(": ")[2].partition(" on ")[0]
                told = golden()[names[counted]]
                own = {f"{about} {name}": line for name, line in lines.items() if f"{about} {name}" in told}
                assert own
                for name, line in own.items():
                    agreed = {k: line[k] for k in line if k in told[name]}
                    assert agreed
                    assert all(readers.Shown.agrees(v, told[name][k]) for k, v in agreed.items()), f"{kind}, {name}"
                seen.add(start)
    wanted = {"boxes": {"minimum-norm", "fixed-budget", "curve"}, "costs": {"minimum-norm", "curve", "cost"}}
    assert seen >= wanted[store]


@pytest.mark.parametrize("to", ["csv", "jsonl"])
def test_exports_hold_the_facts(to, stores, tmp_path):
    for store, runs in (("boxes", BOXES), ("costs", COSTS)):
        file = tmp_path / f"{store}.{to}"
        assert run_command("export", stores[store], "--out", file).code == 0
        read = [*readers.read_export(file.read_text(encoding="utf-8"), to).values()]
        cells = {(each["model"][0], each["attack"][0], each["budget"][0] or None): each for each in read}
        assert len(cells) == len(read) == len(runs)
        for run in runs:
            told = cells[run.model, run.attack, run.budget if to == "jsonl" or run.budget is None else str(run.budget)]
            assert told["outcome"] == [sz.Outcome(each).name.lower() for each in run.outcome]
            for name, facts in (("l0", run.changes), ("cost", run.cost), ("returned", run.returned)):
                expected = [None if math.isnan(each) else each for each in facts]
                assert [None if each is None or math.isnan(each) else each for each in told[name]] == expected, name
            assert (told["forwards"], told["backwards"]) == (run.forwards, run.backwards)


# As the paper prints them for 100 steps. Its SparseFool takes 20 steps in every table.
PRINTED = {
    "sigma-zero": {"asr_24": 0.6112, "asr_50": 0.9845, "median_l0": 22, "kqueries": 0.20},
    "sparsefool-paper": {"asr_24": 0.0511, "asr_50": 0.0676, "median_l0": 469, "kqueries": 0.18},
}


def test_figures_of_the_paper_stand_beside_ours(tmp_path):
    one = replace(BOXES[0], model="M1")
    runs = [one, replace(one, attack="sparsefool-paper", parameters={"steps": 20})]
    store = write_store(tmp_path / "m1.db", runs)
    asked = ("report", store, "--compare", "paper")
    shown = run_command(*asked, "--to", "csv").stdout
    rows = {line["attack"]: line for line in csv.DictReader(io.StringIO(shown))}
    assert set(rows) == set(PRINTED)
    for attack, printed in PRINTED.items():
        for name, value in printed.items():
            ours, theirs, difference = (float(rows[attack][name + end]) for end in ("", "_paper", "_difference"))
            assert (theirs, difference) == (pytest.approx(value), pytest.approx(ours - theirs))
    assert "98.5 (−11.0)" in run_command(*asked, "--to", "markdown", "--k", "50").stdout
    assert run_command(*asked, "-o", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert re.search(r"<td[^>]*>\s*469\s*</td>", page)


def test_a_cell_with_a_budget_stands_beside_the_paper_at_that_budget(tmp_path):
    store = write_store(tmp_path / "m1.db", [replace(BOXES[0], model="M1", budget=24, parameters={"steps": 1000})])
    (row,) = csv.DictReader(io.StringIO(run_command("report", store, "--compare", "paper", "--to", "csv").stdout))
    for name, printed in (("asr_24", 0.8371), ("kqueries", 0.43), ("seconds", 0.02)):
        assert float(row[f"{name}_paper"]) == pytest.approx(printed)
        assert float(row[f"{name}_difference"]) == pytest.approx(float(row[name]) - printed)


def test_two_stores_are_compared_sample_by_sample(tmp_path):
    other = replace(BOXES[0], changes=[0, 1, 1, 1, 9, 10, 35, math.inf])
    old, new = write_store(tmp_path / "old.db", [BOXES[0]]), write_store(tmp_path / "new.db", [other])
    counts = "8 samples: 3 need fewer changes than before, 1 more, 4 as many"
    assert counts in run_command("report", old, new).stdout
    assert run_command("report", old, new, "-o", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    cells = [re.sub(r"<[^>]*>|\s+", " ", cell).strip() for cell in re.findall(r"<td.*?</td>", page, re.DOTALL)]
    for figure, values in {"ASR 1, %": ["25.0", "50.0", "+25"], "median": ["6.5", "5"]}.items():
        at = next(at for at, cell in enumerate(cells, 1) if cell.startswith(figure))
        assert cells[at : at + len(values)] == values
    assert counts in re.sub(r"\s+", " ", page)
    assert [cells[at : at + 3] for at in range(len(cells) - 12, len(cells), 3)] == [
        ["31", "35", "+4"],
        ["4", "1", "−3"],
        ["12", "10", "−2"],
        ["2", "1", "−1"],
    ]


WEIGHT, BIAS = [4.0, 3.0, 2.0, 1.0], 3.0
INPUTS = [[0.5] * 4, [1.0] * 4, [0.25, 0.5, 1.0, 0.5], [1.0, 0.0, 0.5, 1.0], [0.1] * 4, [0.9, 0.4, 0.8, 0.7]]


def needed(x: list[float]) -> float:
    """Return the fewest features that must go to 0 to leave the class of a large sum, by trying all of them."""
    kept = [
        n
        for n in range(5)
        for gone in itertools.combinations(range(4), n)
        if sum(w * v for i, (w, v) in enumerate(zip(WEIGHT, x, strict=True)) if i not in gone) < BIAS
    ]
    return min(kept)


def gated(eps: int | None) -> Figures:
    """Return the figures of a gate on a linear model; the fifth input is already wrong."""
    counts = [needed(x) for x in INPUTS]
    found: Figures = {"samples": 6, "clean_accuracy": sum(n > 0 for n in counts) / 6}
    if eps is None:
        return found | {"median_l0": sum(sorted(counts)[2:4]) / 2}
    return found | share(f"robust@{eps}", sum(n > eps for n in counts), 6)


@pytest.mark.parametrize(("name", "eps"), [("eps 2", 2), ("any", None)])
def test_gates_show_the_figures(name, eps):
    model = torch.nn.Linear(4, 2).requires_grad_(False)
    model.weight.copy_(torch.tensor([WEIGHT, [0.0] * 4]))
    model.bias.copy_(torch.tensor([0.0, BIAS]))
    how: dict[str, Any] = {"version": "custom", "attacks_to_run": [sz.get("fmn", steps=60), sz.get("corner", steps=20)]}
    verdict = sz.gate(model, (torch.tensor(INPUTS), torch.zeros(6).long()), eps, doctor=False, **how)
    record, said = readers.read_gate(verdict.model_dump(mode="json")), readers.read_verdict(str(verdict))
    must = ("median_l0",) if eps is None else (f"robust@{eps}", f"robust@{eps}.low", f"robust@{eps}.high")
    told = golden()["gate"][name]
    for shown in (record[""], said):
        assert {*must, "samples"} <= set(shown)
        for figure in set(shown) & set(told):
            assert readers.Shown.agrees(shown[figure], told[figure]), f"{figure} is shown as {shown[figure]}"
    assert record[""]["clean_accuracy"] == pytest.approx(told["clean_accuracy"], abs=1e-6)


def test_status_lists_every_cell_under_its_headings(stores):
    lines = [line.split() for line in run_command("status", stores["boxes"]).stdout.splitlines() if line.strip()]
    heading = lines[0]
    cells = [dict(zip(heading, line, strict=False)) for line in lines if line[0] == "done"]
    shown = {(cell["model"], cell["data"], cell["attack"], cell["budget"], cell["rows"]) for cell in cells}
    wanted = {(run.model, "digits", run.attack, "–" if run.budget is None else f"{run.budget}", "8/8") for run in BOXES}
    assert shown == wanted
    assert len(cells) == len(BOXES)


def test_a_page_shows_no_python_objects(stores, tmp_path):
    assert run_command("report", stores["boxes"], "-o", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert not [word for word in ("CellInfo(", "Facts(", "array(", " object at 0x") if word in page]
    assert page.count("<table") > 4


def test_an_altered_store_is_refused_by_name(tmp_path):
    path = write_store(tmp_path / "boxes.db", BOXES)
    base = sqlite3.connect(path)
    (table,) = {name for (name,) in base.execute("SELECT name FROM sqlite_master WHERE name = 'cells'")}
    base.execute(f"UPDATE {table} SET info = replace(info, 'sigma-zero', 'sigma-hero')")
    base.commit()
    base.close()
    done = run_command("report", path)
    assert done.code == 2
    assert "boxes.db" in done.stderr
    assert not done.stdout


def test_a_file_without_tables_is_no_store(tmp_path):
    path = tmp_path / "empty.db"
    path.touch()
    done = run_command("report", path)
    assert (done.code, done.stdout) == (2, "")
    assert "empty.db is empty" in done.stderr


def test_merge_takes_every_row_and_says_how_many(stores, tmp_path):
    done = run_command("merge", stores["boxes"], "--out", tmp_path / "new.db")
    assert done.code == 0, done.stderr
    assert f"{8 * len(BOXES)} rows of {len(BOXES)} cells" in done.stdout + done.stderr
    same = [run_command("report", path, "--to", "csv").stdout for path in (stores["boxes"], tmp_path / "new.db")]
    assert same[0] == same[1]
