"""The tables of a report as tables of a page: the same figures, with the texts that the command line writes to copy."""

from __future__ import annotations

from collections.abc import Sequence

from sigmazero.report.html import tables
from sigmazero.report.measure import Cell
from sigmazero.report.paper import published
from sigmazero.report.tables import latex, layout, render
from sigmazero.report.tables.layout import Layout

NOTES = {
    "median": "Median number of changes; a sample that was not fooled counts as ∞.",
    "s": "Seconds per sample.",
    "kqueries": "Thousands of forward and backward passes per sample.",
    "memory GB": "Peak memory on the device.",
}


def build(
    cells: Sequence[Cell], ks: Sequence[float], mix: bool = False, compare: str | None = None
) -> list[tables.Table]:
    """One table for the runs without a budget and one for those with, where there are such runs."""
    made = []
    for name, fixed in (("minimum-norm", False), ("fixed-budget", True)):
        if any((info.budget is not None) == fixed for info, _ in cells):
            found = layout.build(name, cells, ks, mix)
            made.append(from_layout(name, found if compare is None else published.compare(found, compare)))
    return made


def from_layout(name: str, made: Layout) -> tables.Table:
    """A layout as a table whose every line stands for itself, so that it can be sorted."""
    headings = list(made.words)
    for column in made.columns:
        headings += [column.heading, f"{column.heading} paper"] if made.compared else [column.heading]
    rates = {
        c.heading: f"Share of all samples fooled{'' if c.name == 'asr_inf' else ' with at most so many changes'}, in %."
        for c in made.columns
        if c.kind == "share"
    }
    return tables.Table(
        name,
        made.caption + (f". {render.CAVEAT}" if made.compared else ""),
        headings,
        [_row(made, block, line) for block in made.blocks for line in block],
        words=len(made.words),
        copies={"LaTeX": latex.to_latex(made), "CSV": render.to_csv(made), "Markdown": render.to_markdown(made)},
        notes=NOTES | rates,
    )


def _row(made: Layout, block: Sequence[layout.Line], line: layout.Line) -> list[tables.Cell]:
    row = [_word(line.words[name]) for name in made.words]
    for column in made.columns:
        value = line.figures[column.name]
        wins = value is not None and value == layout.best(block, column)
        row.append(tables.Cell(render.shown(value, column), value, wins))
        if made.compared:
            row.append(tables.Cell(render.beside(line, column), line.paper.get(column.name)))
    return row


def _word(text: str) -> tables.Cell:
    return tables.Cell(text, float(text)) if text.isdecimal() else tables.Cell(text)
