"""The tables of a report as tables of a page: the same figures and, to copy, what `sigmazero report` writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sigmazero.report import measure
from sigmazero.report.html import tables
from sigmazero.report.measure import Measured
from sigmazero.report.tables import latex, layout, render
from sigmazero.report.tables.layout import Layout

Compare = Callable[[Layout], Layout]
NOTES = {
    "median": "Median number of changes; a sample that was not fooled counts as ∞.",
    "s": "Seconds per sample.",
    "kqueries": "Thousands of forward and backward passes per sample.",
    "memory GB": "Peak memory on the device.",
}


def build(
    cells: Sequence[Measured],
    ks: Sequence[float] | None = None,
    mix: bool = False,
    compare: Compare | None = None,
) -> list[tables.HtmlTable]:
    """One table for the runs without a budget and one for those with, where there are such runs; and one over costs.

    `compare` puts the figures of somebody else beside ours.
    """
    made = []
    for name, fixed in (("minimum-norm", False), ("fixed-budget", True)):
        if any((info.budget is not None) == fixed for info, _ in cells):
            found = layout.build(name, cells, ks, mix)
            made.append(from_layout(name, found if compare is None else compare(found)))
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
    if by_cost and column.name == "median_l0":
        return "Median cost of the changes; a sample that was not fooled counts as ∞."
    return NOTES.get(column.heading, column.title)


def _row(made: Layout, block: Sequence[layout.Line], line: layout.Line) -> list[tables.HtmlCell]:
    row = [_word(line.words[name]) for name in made.words]
    for column in made.columns:
        value = line.figures[column.name]
        wins = value is not None and value == layout.best(block, column)
        row.append(tables.HtmlCell(render.shown(value, column), value, wins))
        if made.compared:
            row.append(tables.HtmlCell(render.beside(line, column), line.paper.get(column.name)))
    return row


def _word(text: str) -> tables.HtmlCell:
    return tables.HtmlCell(text, float(text)) if text.isdecimal() else tables.HtmlCell(text)
