r"""A layout as a LaTeX table that compiles as it is after `\usepackage{booktabs}`."""

from __future__ import annotations

from sigmazero.report.layout import Layout
from sigmazero.report.render import CAVEAT, rows
from sigmazero.report.table import headings

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
    """
    # Two hyphens or quotes in a row would melt into one sign.
    pairs = zip(text, [*text[1:], ""], strict=True)
    return "".join(_mark(mark) + ("{}" if mark == after and mark in "-'" else "") for mark, after in pairs)


def _mark(mark: str) -> str:
    if mark in MARKS:
        return MARKS[mark]
    if mark.isspace():  # a line's end would end the paragraph, which an argument may not
        return " "
    if (mark.isascii() and mark.isprintable()) or mark in ACCENTED:
        return mark
    return f"{{[}}U+{ord(mark):04X}{{]}}"


def to_latex(layout: Layout, *, standalone: bool = False) -> str:
    """The table, models apart by rules and the best of each in bold; `standalone` makes it a whole document."""
    made = rows(layout, word=escape, figure=escape, strong=lambda text: rf"\textbf{{{text}}}")
    names = headings(made)
    body, place = [" & ".join(names) + r" \\"], 0
    for block in layout.blocks:
        body.append(r"\midrule")
        for row in made[place : place + len(block)]:
            body.append(" & ".join(row[name] for name in names) + r" \\")
        place += len(block)
    caption = escape(layout.caption) + "." + (f" {escape(CAVEAT)}" if layout.compared else "")
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        *([r"\scriptsize", r"\setlength{\tabcolsep}{2pt}"] if layout.compared else [r"\small"]),
        rf"\caption{{{caption}}}",
        rf"\begin{{tabular}}{{{'l' * len(layout.words)}{'r' * (len(names) - len(layout.words))}}}",
        r"\toprule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(document(lines) if standalone else lines) + "\n"


def document(lines: list[str]) -> list[str]:
    """A whole document around a table."""
    head = [r"\documentclass[landscape]{article}", r"\usepackage{booktabs}", r"\begin{document}"]
    return [*head, *lines, r"\end{document}"]
