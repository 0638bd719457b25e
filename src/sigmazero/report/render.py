"""A layout as texts for the terminal and Markdown, and as CSV with every digit."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable

from sigmazero.report.layout import Column, Layout, Line, best
from sigmazero.report.published import difference
from sigmazero.report.table import markdown, number

FORMATS = ("terminal", "markdown", "csv", "latex")
NONE = "–"
CAVEAT = "In brackets ours less the paper's, whose queries leave out the clean check and the final verification."
Text = Callable[[str], str]


def rows(layout: Layout, *, word: Text = str, figure: Text = str, strong: Text = str) -> list[dict[str, str]]:
    """One dictionary of texts per line; a model's name stands on its first line alone.

    `word` treats the names and headings, `figure` the numbers and `strong` the best of them.
    """
    made = []
    for block in layout.blocks:
        for place, line in enumerate(block):
            row = {word(name): word(line.words[name]) for name in layout.words}
            if place:
                row[word("model")] = ""
            for column in layout.columns:
                text = figure(shown(line.figures[column.name], column))
                wins = line.figures[column.name] is not None and line.figures[column.name] == best(block, column)
                row[word(column.heading)] = strong(text) if wins else text
                if layout.compared:
                    row[word(f"{column.heading} paper")] = figure(beside(line, column))
            made.append(row)
    return made


def shown(value: float | None, column: Column) -> str:
    """A figure as a text; success rates in percent."""
    if value is None:
        return NONE
    if column.kind == "share":
        return f"{100 * value:.1f}"
    if column.kind == "l0" or math.isinf(value):
        return number(value, 1)
    # A small network takes less than two decimals tell.
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def beside(line: Line, column: Column) -> str:
    """The paper's figure, and ours less it."""
    theirs = line.paper.get(column.name)
    if theirs is None:
        return NONE
    gap = difference(line.figures[column.name], theirs)
    if gap is None:
        return shown(theirs, column)
    text = shown(abs(gap), column)
    return f"{shown(theirs, column)} ({'−' if gap < 0 else '+'}{text})"


def to_markdown(layout: Layout) -> str:
    """A caption and a table; the best of each model in bold."""
    table = markdown(rows(layout, word=escape, strong=lambda text: f"**{text}**"))
    parts = [escape(layout.caption) + ".", table, *([CAVEAT] if layout.compared else [])]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    r"""A text that Markdown shows as it is; bars are left to `table.markdown`.

    >>> escape("a_b&<script>")
    'a\\_b&amp;&lt;script&gt;'
    """
    plain = re.sub(r"([\\`*_{}\[\]#!~$])", r"\\\1", text)
    return re.sub("[&<>]", lambda mark: {"&": "&amp;", "<": "&lt;", ">": "&gt;"}[mark.group()], plain)


def to_csv(layout: Layout) -> str:
    """Every line with all its settings and its figures in full: reading gives the same numbers.

    Success rates are shares, infinity is `inf`, and what is not known is empty.
    """
    lines = [line for block in layout.blocks for line in block]
    names = list(dict.fromkeys(name for line in lines for name in line.words))
    kinds = ["", "_paper", "_difference"] if layout.compared else [""]
    file = io.StringIO()
    out = csv.writer(file, lineterminator="\n")
    out.writerow([*names, *(column.name + kind for column in layout.columns for kind in kinds)])
    for line in lines:
        numbers: list[float | None] = []
        for column in layout.columns:
            ours, theirs = line.figures[column.name], line.paper.get(column.name)
            numbers += [ours, theirs, difference(ours, theirs)][: len(kinds)]
        out.writerow([*(line.words[name] for name in names), *("" if x is None else repr(float(x)) for x in numbers)])
    return file.getvalue()
