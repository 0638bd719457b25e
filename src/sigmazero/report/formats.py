"""Write figures as text: numbers, and tables for the terminal, Markdown and CSV (LaTeX is in `latex`)."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from sigmazero.core import metrics
from sigmazero.core.messages import harmless, visible
from sigmazero.core.metrics import Metric, Samples
from sigmazero.report.intervals import wilson
from sigmazero.report.runs import choose_ks
from sigmazero.report.table import ENDS, Line, Table, best, difference

if TYPE_CHECKING:
    from rich.table import Table as RichTable

TextRow = Mapping[str, str]
Text = Callable[[str], str]

NONE = "–"
# Headings of columns of words in the tables of a store.
LEFT = ("model", "data", "attack", "goal", "unit", "state", "precision", "space")
QUERIES = "the paper's queries leave out the clean check and the final verification."
CAVEAT = f"In brackets ours less the paper's; {QUERIES}"
FEW = 500  # samples below which a difference from the paper is likely to be chance


def percent(share: float | None) -> str:
    """Return a share as a percentage with one decimal, a dash where there is none.

    >>> percent(0.656), percent(float("nan"))
    ('65.6 %', '–')
    """
    return NONE if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def interval(low: float, high: float) -> str:
    """Return where a share lies, in words.

    >>> interval(0.5, 0.75), interval(0.5, 0.5)
    ('between 50.0 % and 75.0 %', 'exactly 50.0 %')
    """
    return f"exactly {percent(low)}" if low == high else f"between {percent(low)} and {percent(high)}"


def number(value: float | None, decimals: int = 2) -> str:
    """Return a number without zeros at its end; infinity as its sign, no value as a dash.

    >>> number(15.0), number(21.154), number(float("inf")), number(None)
    ('15', '21.15', '∞', '–')
    """
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(many: int, what: str) -> str:
    """Return a number of things.

    >>> count(1, "model"), count(2, "model")
    ('1 model', '2 models')
    """
    return f"{many} {what}{'' if many == 1 else 's'}"


def figure(value: float | None, column: Metric) -> str:
    """Return a figure of a table; shares in percent, without the sign."""
    if value is None:
        return NONE
    if column.kind == "share":
        return f"{100 * value:.1f}"
    if column.kind == "l0" or math.isinf(value):
        return number(value, 1)
    # Two decimals are not enough for small networks.
    return f"{value:.2f}" if value >= 0.1 or value == 0 else f"{value:.2g}"


def ends_text(line: Line, column: Metric) -> str:
    """Return the 95 % interval of a figure in brackets, nothing where it has none."""
    found = line.ends(column)
    return "" if found is None else f"({figure(found[0], column)}–{figure(found[1], column)})"


def rows(table: Table, *, word: Text = str, strong: Text = str) -> list[dict[str, str]]:
    """Return one dictionary of texts per line.

    `word` is applied to names, headings and numbers, `strong` to the best figure of each group.
    """
    made = []
    for line, rivals in ((line, block) for block in table.blocks for line in block):
        row = {word(name): word(line.words[name]) for name in table.words}
        for column in table.columns:
            value, theirs = line.figures[column.name], line.paper.get(column.name)
            between = f" {ends_text(line, column)}" if table.intervals else ""
            text = word(f"{figure(value, column)}{between}".rstrip())
            row[word(column.heading)] = strong(text) if value is not None and value == best(rivals, column) else text
            if table.compared:
                gap = difference(value, theirs)
                less = "" if gap is None else f" ({'−' if gap < 0 else '+'}{figure(abs(gap), column)})"
                row[word(f"{column.heading} paper")] = word(figure(theirs, column) + less)
        made.append(row)
    return made


def caution(table: Table) -> str:
    """Return a warning if the paper has no figures for these runs, or if the samples are few; empty otherwise."""
    if not any(line.paper for line in table.lines):
        return "The paper has no figures for these runs: models, data, attacks and steps must be those of experiments/."
    fewest = min(int(line.figures.get("samples") or line.run.info.rows) for line in table.lines)
    if fewest >= FEW:
        return ""
    low, high = wilson(fewest // 2, fewest)
    wide = f"a rate of 50 % is known to within {100 * (high - low) / 2:.0f} points"
    return f"Caution: with n = {fewest} samples {wide}; most smaller differences from the paper are chance."


def sample_row(
    samples: Samples, budget: int | None = None, unit: str = "feature", ks: Sequence[float] | None = None
) -> dict[str, str]:
    """Return the figures of one run as texts.

    ks  numbers of changes to give success rates at; by default the quartiles

    With a budget only the rate there is known: a sample ends with the first point within it.
    """
    wanted = choose_ks([samples.changes]) if ks is None else sorted(ks)
    row = {"samples": f"{len(samples)}"}
    for each in metrics.figures("run", [*wanted, math.inf] if budget is None else [budget]):
        value = each.value(samples)
        if each.known(budget) and (not each.hidden or (each.seldom and value is not None)):
            counted = each.kind == "l0" or (each.k is not None and budget is not None)
            heading = each.title + (" (pixels)" if counted and unit == "pixel" else "")
            row[heading] = percent(value) if each.kind == "share" else number(value, each.decimals)
    return row


def headings(lines: Sequence[TextRow]) -> list[str]:
    """Return every heading of these rows, in the order of first use."""
    return list(dict.fromkeys(name for row in lines for name in row))


def rich_table(lines: Sequence[TextRow], left: Sequence[str] = (), *, down: bool = False) -> RichTable:
    """Return a table for the terminal, one row per line; `left` names the columns of words.

    With `down` every row becomes a column under its first text: for many figures of a few runs.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = headings(lines)
    cells = [[row.get(name, "") for name in names] for row in lines]
    if down:
        turned = list(zip(names, *cells, strict=True))
        names, cells, left = list(turned[0]), [list(line) for line in turned[1:]], turned[0][:1]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for place, name in enumerate(names):
        justify = "left" if name in left else "right"
        table.add_column(Text(visible(name)), justify=justify, overflow="fold", no_wrap=place == 0)  # type: ignore[arg-type]
    for line in cells:
        table.add_row(*(Text(visible(text).replace("\n", "\\n")) for text in line))
    return table


def markdown(lines: Sequence[TextRow]) -> str:
    r"""Return rows as a Markdown table, one per line.

    >>> print(markdown([{"attack": "sigma-zero", "median l0": "15"}]))
    | attack | median l0 |
    | --- | --- |
    | sigma-zero | 15 |
    """
    names = headings(lines)
    cells = [names, ["---"] * len(names), *([row.get(name, "") for name in names] for row in lines)]
    return "\n".join(
        "| " + " | ".join(" ".join(text.replace("|", "\\|").split()) for text in line) + " |" for line in cells
    )


def escape_markdown(text: str) -> str:
    r"""Return a text that Markdown shows as it is; `markdown` takes care of bars.

    >>> escape_markdown("a_b&<script>")
    'a\\_b&amp;&lt;script&gt;'
    """
    return html.escape(re.sub(r"([\\`*_{}\[\]#!~$])", r"\\\1", text), quote=False)


def to_markdown(table: Table, bold: bool = True, escape: Callable[[str], str] = escape_markdown) -> str:
    """Return a caption and a Markdown table, the best of each group in bold."""
    made = markdown(rows(table, word=escape, strong=lambda text: f"**{text}**" if bold else text))
    parts = [escape(table.caption) + ".", made, *([CAVEAT] if table.compared else [])]
    return "\n\n".join(parts) + "\n"


def to_csv(table: Table) -> str:
    """Return every line with all its settings and every digit of its figures.

    Success rates are shares, infinity is `inf`, and what is not known is empty.
    """
    lines = []
    for line in table.lines:
        numbers: dict[str, float | None] = {}
        for column in (*table.constant, *table.columns):
            name, theirs = column.name, line.paper.get(column.name)
            numbers[name] = line.figures[name]
            if table.compared:
                numbers |= {f"{name}_paper": theirs, f"{name}_difference": difference(numbers[name], theirs)}
            if table.intervals:
                numbers |= {name + end: line.figures.get(name + end) for end in ENDS}
        lines.append(
            line.words | {name: "" if value is None else repr(float(value)) for name, value in numbers.items()}
        )
    return csv_text(lines)


def csv_text(lines: Sequence[TextRow]) -> str:
    """Return rows as CSV that a spreadsheet shows as it is."""
    file = io.StringIO()
    out = csv.DictWriter(file, headings(lines), restval="", lineterminator="\n")
    out.writeheader()
    out.writerows({name: harmless(text) for name, text in line.items()} for line in lines)
    return file.getvalue()
