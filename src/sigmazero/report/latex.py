r"""Write a table as LaTeX for booktabs; its first line names the package."""

from collections.abc import Iterable

from sigmazero.report import formats
from sigmazero.report.table import Table

# A bracket or a star at the start of a line would belong to the end of the line before it.
MARKS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    "∞": r"$\infty$",
    "≥": r"$\geq$",
    "−": "$-$",
    "–": "--",
    "σ": r"$\sigma$",
    **{mark: f"\\{mark}" for mark in "&%$#_{}"},
}


def escape(text: str) -> str:
    r"""Return a text that LaTeX prints as it is.

    >>> print(escape("a_b&<script>"), escape("50 %"), escape("∞"))
    a\_b\&\textless{}script\textgreater{} 50 \% $\infty$
    """
    return "".join(MARKS.get(mark, " " if mark.isspace() else mark) for mark in text)


def to_latex(table: Table) -> str:
    """Return the table, groups apart by rules and the best figure of each in bold."""
    rows = formats.rows(table, word=escape, strong=lambda text: rf"\textbf{{{text}}}")
    names = formats.headings(rows)
    body, place = [], 0
    for block in table.blocks:
        body += [r"\midrule", *(_line(row[name] for name in names) for row in rows[place : place + len(block)])]
        place += len(block)
    caption = escape(table.caption) + "." + (f" {escape(formats.CAVEAT)}" if table.compared else "")
    small = [r"\scriptsize", r"\setlength{\tabcolsep}{2pt}"] if table.compared else [r"\small"]
    words = len(table.words)
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        *small,
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{'l' * words}{'r' * (len(names) - words)}}}",
        r"\toprule",
        _line(names),
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Iterable[str]) -> str:
    return " & ".join(cells) + r" \\"
