"""Draw what the components and numbers of σ-zero do: the paper's ablations.

    python -m experiments.figures.ablation runs/ablation-components.db -o components.md
    python -m experiments.figures.ablation runs/ablation-smoothing-threshold.db -o surface.pdf --k 24,50

The plans experiments/ablation-*.toml fill the stores. Runs belong together if they differ in nothing but the parameters
in question. A name ending in .md, .csv or .tex asks for the table of components, .pdf, .svg or .png for drawings.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.bench.paper import usual
from sigmazero.core.metrics import Metric
from sigmazero.report import formats, latex, published
from sigmazero.report.figures import style
from sigmazero.report.runs import Run, groups, load, refuse_mixture
from sigmazero.report.table import Table, comparable, minimum_norm
from sigmazero.report.table import figures as figures_of
from sigmazero.store import CellInfo, Store

COMPONENTS = tuple(published.COMPONENTS)
SURFACE, RATE = ("smoothing", "threshold"), ("threshold_rate",)
KS = (10.0, 24.0, 50.0)
WRITERS = {".md": formats.to_markdown, ".csv": formats.to_csv, ".tex": latex.to_latex}


def families(runs: Iterable[Run], names: tuple[str, ...]) -> list[list[Run]]:
    """Return the runs without a budget that differ in these parameters alone, and do differ in them."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.budget is None and set(names) <= set(run.info.parameters):
            found.setdefault(_rest(run.info, names), []).append(run)
    several = all if names == SURFACE else any
    return [some for some in found.values() if several(len({r.info.parameters[n] for r in some}) > 1 for n in names)]


def _rest(info: CellInfo, names: tuple[str, ...]) -> str:
    """Return everything that determines a cell's answer, except these parameters."""
    left = ("key", "identity", "attack", "origin", "provenance", "parameters")
    about = {name: value for name, value in asdict(info).items() if name not in left}
    others = {name: value for name, value in info.parameters.items() if name not in names}
    return json.dumps([about, info.origin.get("target"), others], sort_keys=True)


def components(runs: Sequence[Run], ks: Sequence[float] = KS) -> Table:
    """Return the table of components: which were on, the success rates and the median, beside the paper's."""
    chosen = [run for family in families(runs, COMPONENTS) for run in family]
    if not chosen:
        raise ValueError("the store has no runs of experiments/ablation-components.toml")
    made = minimum_norm(groups(chosen), ks)
    blocks = [
        tuple(
            replace(line, words=line.words | {n: "yes" if line.run.info.parameters[n] else "no" for n in COMPONENTS})
            for line in block
        )
        for block in made.blocks
    ]
    words = ("model", *COMPONENTS) if "model" in made.words else COMPONENTS
    columns = tuple(column for column in made.columns if column.better)
    made = replace(made, title="Components of sigma-zero", words=words, columns=columns, blocks=tuple(blocks))
    return published.compare(made, usual())


def draw(runs: Sequence[Run], ks: Sequence[float] = KS) -> Any:
    """Draw a row per model: heat maps over smoothing × threshold, or curves over threshold_rate; a panel per figure."""
    rows = [(family, _surface) for family in families(runs, SURFACE)] + [
        (family, _rate) for family in families(runs, RATE)
    ]
    if not rows:
        raise ValueError(
            "the store has no runs of experiments/ablation-smoothing-threshold.toml or -threshold-rate.toml"
        )
    columns = comparable(sorted({float(k) for k in ks}))
    made = style.figure(3.8 * len(columns), 3.2 * len(rows))
    for row, (family, panel) in enumerate(rows):
        refuse_mixture(run.info for run in family)
        for place, column in enumerate(columns):
            axis = made.add_subplot(len(rows), len(columns), row * len(columns) + place + 1)
            panel(axis, {run: _value(run, column, ks) for run in family}, column)
            heading = f"{column.heading}, %" if column.kind == "share" else column.heading
            info = family[0].info
            axis.set_title(style.plain(f"{info.model} on {info.dataset}: {heading}"), fontsize=9)
    return made


def _value(run: Run, column: Metric, ks: Sequence[float]) -> float:
    value = figures_of(run, ks)[column.name]
    assert value is not None  # only runs with a budget lack figures
    return 100 * value if column.kind == "share" else value


def _surface(axis: Any, values: dict[Run, float], column: Metric) -> None:
    rows, columns = (sorted({float(run.info.parameters[name]) for run in values}) for name in SURFACE)
    table = np.full((len(rows), len(columns)), np.nan)  # NaN where a pair was not run
    for run, value in values.items():
        table[rows.index(run.info.parameters["smoothing"]), columns.index(run.info.parameters["threshold"])] = value
    seen = np.ma.masked_invalid(table)
    # Yellow is good in all of them: many fooled, or few changes.
    image = axis.imshow(seen, cmap="cividis" if column.better > 0 else "cividis_r", aspect="auto", origin="lower")
    if seen.count():
        axis.figure.colorbar(image, ax=axis)
    middle = (seen.min() + seen.max()) / 2 if seen.count() else 0.0
    for (row, place), value in np.ndenumerate(table):
        light = not np.isfinite(value) or (value - middle) * column.better > 0
        text, colour = formats.number(float(value), 1), "black" if light else "white"
        axis.text(place, row, text, ha="center", va="center", fontsize=7, color=colour)
    axis.set_xticks(range(len(columns)), [f"{value:g}" for value in columns])
    axis.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
    axis.set(xlabel="threshold τ0", ylabel="smoothing σ")


def _rate(axis: Any, values: dict[Run, float], column: Metric) -> None:
    points = sorted((float(run.info.parameters["threshold_rate"]), value) for run, value in values.items())
    rates, found = zip(*points, strict=True)
    colour = style.colour("sigma-zero")
    axis.plot(rates, np.ma.masked_invalid(found), "o-", color=colour, linewidth=1.6)
    top = 1.1 * max([1.0, *(value for value in found if math.isfinite(value))])
    for rate, value in points:
        if math.isinf(value):
            axis.text(rate, top, "∞", ha="center", va="top", color=colour)
    axis.set(xscale="symlog" if min(rates) <= 0 else "log", xlabel="threshold rate t", ylim=(0, top))
    style.tidy(axis)


def main() -> None:
    """Draw what the end of the file's name asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--k", default=",".join(f"{k:g}" for k in KS), help="numbers of changes, such as 24,50")
    asked = parser.parse_args()
    ks = [float(k) for k in asked.k.split(",")]
    with Store(asked.store) as store:
        runs = load(store)
    if (write := WRITERS.get(asked.out.suffix)) is not None:
        asked.out.write_text(write(components(runs, ks)), encoding="utf-8")
    else:
        style.save(draw(runs, ks), asked.out)
    sys.stdout.write(f"wrote {asked.out}\n")


if __name__ == "__main__":
    main()
