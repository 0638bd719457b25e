"""A layout as texts for the terminal and Markdown, and as CSV with every digit."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable

from sigmazero.core.messages import harmless
from sigmazero.report.site.old.bands import Band, TableBlock, bands, row_word, row_words
from sigmazero.report.site.old.layout import ENDS, Column, Layout, Line, best, ends
from sigmazero.report.site.old.text import NONE, markdown, number
from sigmazero.report.table import difference

QUERIES = "the paper's queries leave out the clean check and the final verification."
CAVEAT = f"In brackets ours less the paper's; {QUERIES}"
Text = Callable[[str], str]


def rows(layout: Layout, *, word: Text = str, figure: Text = str, strong: Text = str) -> list[dict[str, str]]:
    """One dictionary of texts per line; a model's name stands on its first line alone.

    `word` is applied to names and headings, `figure` to numbers, and `strong` to the best of them.
    """
    made = []
    for block in layout.blocks:
        for place, line in enumerate(block):
            row = {word(name): word(line.words[name]) for name in layout.words}
            if place:
                row[word("model")] = ""
            texts = _figures(layout, block, line, figure, strong)
            made.append(row | {word(heading): text for heading, text in texts.items()})
    return made


def band_rows(
    layout: Layout, band: Band, *, word: Text = str, figure: Text = str, strong: Text = str, after: str = " "
) -> list[dict[str, str]]:
    """The same for models beside each other; a figure's heading is its model, the text `after`, and its name."""
    made = []
    for lines in band.rows:
        row = {word(name): word(row_word(lines, name)) for name in row_words(layout)}
        for heading, block, line in zip(band.headings, band.blocks, lines, strict=True):
            for name, text in _figures(layout, block, line, figure, strong).items():
                row[word(f"{heading}{after}{name}")] = text
        made.append(row)
    return made


def _figures(layout: Layout, block: TableBlock, line: Line | None, figure: Text, strong: Text) -> dict[str, str]:
    """The figures of a line as texts, by their headings; dashes for a line that is not there."""
    texts: dict[str, str] = {}
    for column in layout.columns:
        value = None if line is None else line.figures[column.name]
        text = figure(shown(value, column) + (_ends(line, column) if layout.intervals else ""))
        texts[column.heading] = strong(text) if value is not None and value == best(block, column) else text
        if layout.compared:
            texts[f"{column.heading} paper"] = figure(NONE if line is None else beside(line, column))
    return texts


def tables(layout: Layout, *, word: Text = str, strong: Text = str, after: str = " ") -> list[list[dict[str, str]]]:
    """One table, or one per band where models stand beside each other."""
    if layout.across == 1:
        return [rows(layout, word=word, strong=strong)]
    return [band_rows(layout, band, word=word, strong=strong, after=after) for band in bands(layout)]


def shown(value: float | None, column: Column) -> str:
    """A figure as a text; success rates in percent."""
    if value is None:
        return NONE
    if column.kind == "share":
        return f"{100 * value:.1f}"
    if column.kind == "l0" or math.isinf(value):
        return number(value, 1)
    # Two decimals are not enough for small networks.
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def interval(line: Line, column: Column) -> str:
    """The 95 % interval of a figure in brackets; nothing where it has none."""
    found = ends(line, column)
    return "" if found is None else f"({shown(found[0], column)}–{shown(found[1], column)})"


def _ends(line: Line | None, column: Column) -> str:
    return "" if line is None or not (text := interval(line, column)) else f" {text}"


def beside(line: Line, column: Column) -> str:
    """The paper's figure, and ours less it."""
    theirs = line.paper.get(column.name)
    if theirs is None:
        return NONE
    gap = difference_text(line, column)
    return f"{shown(theirs, column)} ({gap})" if gap else shown(theirs, column)


def difference_text(line: Line, column: Column) -> str:
    """Ours less the paper's, with its sign; nothing where there is no difference to tell."""
    gap = difference(line.figures[column.name], line.paper.get(column.name))
    return "" if gap is None else f"{'−' if gap < 0 else '+'}{shown(abs(gap), column)}"


def to_markdown(layout: Layout) -> str:
    """A caption and a table, or more if models stand beside each other; the best of each model in bold."""
    made = [markdown(table) for table in tables(layout, word=escape, strong=lambda text: f"**{text}**")]
    parts = [escape(layout.caption) + ".", *made, *([CAVEAT] if layout.compared else [])]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    r"""A text that Markdown shows as it is; bars are left to `text.markdown`.

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
    bounds = list(ENDS) if layout.intervals else []
    file = io.StringIO()
    out = csv.writer(file, lineterminator="\n")
    out.writerow([*names, *(column.name + kind for column in layout.columns for kind in (*kinds, *bounds))])
    for line in lines:
        numbers: list[float | None] = []
        for column in layout.columns:
            ours, theirs = line.figures[column.name], line.paper.get(column.name)
            numbers += [ours, theirs, difference(ours, theirs)][: len(kinds)]
            numbers += [line.figures.get(column.name + end) for end in bounds]
        out.writerow(
            [*(harmless(line.words[name]) for name in names), *("" if x is None else repr(float(x)) for x in numbers)]
        )
    return file.getvalue()
