r"""A layout as a LaTeX table that compiles as it is; its first line names the packages it needs.

A table that is longer than a page breaks over pages; one with models beside each other is shrunk to the text's width.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from sigmazero.report.site.old.bands import Band, bands, row_words
from sigmazero.report.site.old.layout import Layout
from sigmazero.report.site.old.render import CAVEAT, band_rows, rows
from sigmazero.report.site.old.text import headings

# Lines that fit on one page of an article, and of the document that `standalone` makes, which lies on its side.
PAGE, SIDEWAYS = 45, 25
END = r" \\"
SHRUNK = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"

# A bracket or a star at the start of a line would belong to the end of the line before it.
MARKS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": "{`}",
    '"': "{''}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "∞": r"$\infty$",
    "−": "$-$",
    "–": "--",
    "×": r"$\times$",
    "α": r"$\alpha$",
    "σ": r"$\sigma$",
    "τ": r"$\tau$",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}
ACCENTED = "ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿ"


def escape(text: str) -> str:
    r"""A text that LaTeX prints as it is; what its default fonts lack becomes the character's number.

    >>> print(escape("a_b&<script>"), escape("50 %"), escape("∞"), escape("中"))
    a\_b\&\textless{}script\textgreater{} 50 \% $\infty$ {[}U+4E2D{]}
    >>> escape("")
    ''
    """
    # Two hyphens or quotes in a row would melt into one sign.
    pairs = itertools.pairwise([*text, ""])
    return "".join(_mark(mark) + ("{}" if mark == after and mark in "-'" else "") for mark, after in pairs)


def _mark(mark: str) -> str:
    if mark in MARKS:
        return MARKS[mark]
    if mark.isspace():  # a line's end would end the paragraph, which an argument may not
        return " "
    if (mark.isascii() and mark.isprintable()) or mark in ACCENTED:
        return mark
    return f"{{[}}U+{ord(mark):04X}{{]}}"


@dataclass(frozen=True)
class Grid:
    """A table: the letters of its columns, the lines to repeat on each page, and the lines of its body."""

    columns: str
    head: list[str]
    body: list[str]

    @property
    def size(self) -> int:
        """How many lines of the body hold text; rules do not count."""
        return sum(line.endswith(END) for line in self.body)


def to_latex(layout: Layout, *, standalone: bool = False) -> str:
    """The table, models apart by rules and the best of each in bold; `standalone` makes it a whole document."""
    room = SIDEWAYS if standalone else PAGE
    caption = escape(layout.caption) + "." + (f" {escape(CAVEAT)}" if layout.compared else "")
    if layout.across > 1:
        package, made = "graphicx", _beside(layout, caption, room)
    elif (grid := _below(layout)).size > room:
        package, made = "longtable", _pages(grid, caption, _size(layout))
    else:
        package, made = "", _float(grid, caption, _size(layout))
    packages = ["booktabs", *([package] if package else [])]
    lines = [rf"% needs \usepackage{{{','.join(packages)}}}", *made]
    return "\n".join(document(lines, packages) if standalone else lines) + "\n"


def _size(layout: Layout) -> list[str]:
    return [r"\scriptsize", r"\setlength{\tabcolsep}{2pt}"] if layout.compared or layout.across > 1 else [r"\small"]


def _below(layout: Layout) -> Grid:
    made = rows(layout, word=escape, figure=escape, strong=_bold)
    names = headings(made)
    body, place = [], 0
    for block in layout.blocks:
        body += [r"\midrule", *(_line(row[name] for name in names) for row in made[place : place + len(block)])]
        place += len(block)
    words = len(layout.words)
    return Grid("l" * words + "r" * (len(names) - words), [_line(names)], body)


def _beside(layout: Layout, caption: str, room: int) -> list[str]:
    """All bands in one table, or each in its own if they need more than a page."""
    found = bands(layout)
    most = max(len(band.blocks) for band in found)
    grids = [_band(layout, band, most) for band in found]
    if sum(grid.size for grid in grids) <= room:
        body = [line for grid in grids for line in [r"\midrule", *grid.body]][1:]
        return _float(Grid(grids[0].columns, [], body), caption, _size(layout), shrunk=True)
    told = [caption, *[f"{caption} Continued."] * (len(grids) - 1)]
    return [
        line for grid, text in zip(grids, told, strict=True) for line in _float(grid, text, _size(layout), shrunk=True)
    ]


def _band(layout: Layout, band: Band, most: int) -> Grid:
    """Models over their figures; a band with fewer models than others leaves its places empty."""
    words = row_words(layout)
    figures = [f"{column.heading}{kind}" for column in layout.columns for kind in _kinds(layout)]
    empty = [""] * (most - len(band.blocks)) * len(figures)
    span = [rf"\multicolumn{{{len(figures)}}}{{c}}{{{escape(heading)}}}" for heading in band.headings]
    first = [len(words) + 1 + place * len(figures) for place in range(len(span))]
    made = band_rows(layout, band, word=escape, figure=escape, strong=_bold)
    body = [
        _line([*[""] * len(words), *span, *empty]),
        "".join(rf"\cmidrule(lr){{{start}-{start + len(figures) - 1}}}" for start in first),
        _line([*map(escape, [*words, *figures * len(span)]), *empty]),
        r"\midrule",
        *(_line([*row.values(), *empty]) for row in made),
    ]
    return Grid("l" * len(words) + "r" * most * len(figures), [], body)


def _kinds(layout: Layout) -> list[str]:
    return ["", " paper"] if layout.compared else [""]


def _bold(text: str) -> str:
    return rf"\textbf{{{text}}}"


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + END


def _float(grid: Grid, caption: str, size: list[str], *, shrunk: bool = False) -> list[str]:
    return [
        r"\begin{table}",
        r"\centering",
        *size,
        rf"\caption{{{caption}}}",
        *([SHRUNK] if shrunk else []),
        rf"\begin{{tabular}}{{{grid.columns}}}",
        r"\toprule",
        *grid.head,
        *grid.body,
        r"\bottomrule",
        r"\end{tabular}" + ("}" if shrunk else ""),
        r"\end{table}",
    ]


def _pages(grid: Grid, caption: str, size: list[str]) -> list[str]:
    """A table that breaks over pages, in a group: its font size ends with it."""
    wide = len(grid.columns)
    head = [r"\toprule", *grid.head]
    return [
        r"\begingroup",
        *size,
        rf"\begin{{longtable}}{{{grid.columns}}}",
        rf"\caption{{{caption}}} \\",
        *head,
        r"\endfirsthead",
        rf"\multicolumn{{{wide}}}{{l}}{{\tablename\ \thetable, continued}} \\",
        *head,
        r"\midrule",
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *grid.body,
        r"\end{longtable}",
        r"\endgroup",
    ]


def document(lines: list[str], packages: list[str]) -> list[str]:
    """A whole document around a table."""
    uses = [rf"\usepackage{{{name}}}" for name in packages]
    return [r"\documentclass[landscape]{article}", *uses, r"\begin{document}", *lines, r"\end{document}"]
