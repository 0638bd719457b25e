"""The tables of a report as tables of a page: the same figures and, to copy, what `sigmazero report` writes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sigmazero.report.site.old import htmltables as tables
from sigmazero.report.site.old import latex, layout, measure, render
from sigmazero.report.site.old.layout import Layout
from sigmazero.report.site.old.measure import Measured
from sigmazero.report.site.old.separating import listed, separating
from sigmazero.report.site.old.shell import Html, element, join

Compare = Callable[[Layout], Layout]
NOTES = {
    "median": "Median number of changes; a sample that was not fooled counts as ∞.",
    "median ≥": "Median of the changes that are proved to be needed; the truth lies between it and the median found.",
    "s": "Seconds per sample: the time of a batch divided by its samples, on the device named under Provenance.",
    "kqueries": "Thousands of forward and backward passes per sample, the clean check and the verification included.",
    "memory GB": "Peak memory on the device.",
}


def build(
    cells: Sequence[Measured],
    ks: Sequence[float] | None = None,
    mix: bool = False,
    compare: Compare | None = None,
) -> list[tables.HtmlTable]:
    """One table for the runs without a budget and one for those with, where there are such runs; and one over costs.

    `compare` puts the figures of somebody else beside ours; success is then given where it usually is. Otherwise it is
    given at `ks`, or where attacks differ, and the reader may choose other numbers of changes.
    """
    made = []
    if any(info.budget is None for info, _ in cells):
        asked = ks if ks is not None or compare is not None else separating(cells)
        found = layout.build("minimum-norm", cells, asked, mix)
        table = from_layout("minimum-norm", found if compare is None else compare(found))
        made.append(replace(table, picks=picks(found, cells, mix)) if compare is None else table)
    if any(info.budget is not None for info, _ in cells):
        found = layout.build("fixed-budget", cells, ks, mix)
        made.append(from_layout("fixed-budget", found if compare is None else compare(found)))
    if priced := measure.over(cells, measure.COST):
        made.append(from_layout("by-cost", layout.build("minimum-norm", priced, None, mix)))
    return made


def from_layout(name: str, made: Layout) -> tables.HtmlTable:
    """A layout as a table in which every line is complete, so that it can be sorted."""
    headings = list(made.words)
    for column in made.columns:
        headings += [column.heading, f"{column.heading} paper"] if made.compared else [column.heading]
    return tables.HtmlTable(
        name,
        made.caption + (f". {render.CAVEAT}" if made.compared else ""),
        headings,
        [_row(made, block, line) for block in made.blocks for line in block],
        words=len(made.words),
        copies={"LaTeX": latex.to_latex(made), "CSV": render.to_csv(made), "Markdown": render.to_markdown(made)},
        notes={column.heading: note(column, made.blocks[0][0].info.unit) for column in made.columns},
    )


def note(column: layout.Column, unit: str = "feature") -> str:
    """What a figure is, for those who ask."""
    by_cost = unit == measure.COST
    if column.name.startswith("asr_"):
        limit = " for at most so much" if by_cost else " with at most so many changes"
        return f"Share of all samples fooled{'' if column.name == 'asr_inf' else limit}, in %."
    if column.name.startswith("proved_"):
        return "Share of all samples that are proved to stay right whichever so many values change, in %."
    if by_cost and column.name == "median_l0":
        return "Median cost of the changes; a sample that was not fooled counts as ∞."
    return NOTES.get(column.heading, column.title)


def _row(made: Layout, block: Sequence[layout.Line], line: layout.Line) -> list[tables.HtmlCell]:
    row = [_word(line.words[name]) for name in made.words]
    for column in made.columns:
        value = line.figures[column.name]
        wins = value is not None and value == layout.best(block, column)
        row.append(tables.HtmlCell(_figure(line, column), value, wins))
        if made.compared:
            row.append(tables.HtmlCell(render.beside(line, column), line.paper.get(column.name)))
    return row


def _figure(line: layout.Line, column: layout.Column) -> Html:
    """A figure, and its 95 % interval for those who ask for it."""
    ends = render.interval(line, column)
    text = render.shown(line.figures[column.name], column)
    return join([text, element("small", f" {ends}", class_="ends")] if ends else [text])


def picks(made: Layout, cells: Sequence[Measured], mix: bool) -> dict[str, Any] | None:
    """What a script needs to show success rates at other numbers of changes: texts, values, intervals, the best."""
    columns = [column for column in made.columns if _rate(column)]
    offered = sorted({*listed(cells), *(float(column.k or 0) for column in columns)})
    if not columns or len(offered) <= len(columns):
        return None
    free = [cell for cell in cells if cell[0].budget is None]
    whole = layout.minimum_norm(free, offered, mix)
    lines = {line.info.key: (line, block) for block in whole.blocks for line in block}
    rated = [column for column in whole.columns if _rate(column)]
    rows = []
    for key in (line.info.key for block in made.blocks for line in block):
        line, block = lines[key]
        rows.append([_picked(line, block, column) for column in rated])
    first = len(made.words)
    return {
        "columns": [first + made.columns.index(column) for column in columns],
        "chosen": [column.k for column in columns],
        "ks": [column.k for column in rated],
        "headings": [column.heading for column in rated],
        "rows": rows,
    }


def _rate(column: layout.Column) -> bool:
    """Whether a column has the success rates at some number of changes."""
    return column.k is not None and math.isfinite(column.k) and bool(column.better)


def _picked(line: layout.Line, block: Sequence[layout.Line], column: layout.Column) -> list[Any]:
    value = line.figures[column.name]
    wins = value is not None and value == layout.best(block, column)
    return [render.shown(value, column), value, render.interval(line, column), wins]


def _word(text: str) -> tables.HtmlCell:
    return tables.HtmlCell(text, float(text)) if text.isdecimal() else tables.HtmlCell(text)
