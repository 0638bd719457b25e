"""Numbers as texts, and rows of texts as a table for the terminal or for Markdown; a row maps headings to texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from sigmazero.core.messages import visible

if TYPE_CHECKING:
    from rich.table import Table

NONE = "–"
TextRow = Mapping[str, str]
LEFT = (
    "model",
    "data",
    "attack",
    "goal",
    "unit",
    "state",
    "precision",
    "space",
)  # headings of columns of words in the tables of a store


def percent(share: float | None) -> str:
    """A share as a percentage with one decimal; a dash if there is none.

    >>> percent(0.656), percent(float("nan"))
    ('65.6 %', '–')
    """
    return NONE if share is None or math.isnan(share) else f"{100 * share:.1f} %"


def interval(low: float, high: float) -> str:
    """Where a share lies, in words.

    >>> interval(0.5, 0.75), interval(0.5, 0.5)
    ('between 50.0 % and 75.0 %', 'exactly 50.0 %')
    """
    return f"exactly {percent(low)}" if low == high else f"between {percent(low)} and {percent(high)}"


def number(value: float | None, decimals: int = 2) -> str:
    """A number with at most so many decimals; infinity as its sign, no value as a dash.

    >>> number(15.0), number(21.154), number(float("inf")), number(None)
    ('15', '21.15', '∞', '–')
    """
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def headings(rows: Sequence[TextRow]) -> list[str]:
    """Every heading of these rows, in the order of first use."""
    return list(dict.fromkeys(name for row in rows for name in row))


def rich_table(rows: Sequence[TextRow], left: Sequence[str] = (), *, down: bool = False) -> Table:
    """A table for the terminal, one row per line; `left` names the columns of words.

    With `down` every row becomes a column under its first text, which suits many figures of a few runs.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = headings(rows)
    lines = [[row.get(name, "") for name in names] for row in rows]
    if down:
        turned = list(zip(names, *lines, strict=True))
        names, lines, left = list(turned[0]), [list(line) for line in turned[1:]], turned[0][:1]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for place, name in enumerate(names):
        align: Literal["left", "right"] = "left" if name in left else "right"
        table.add_column(Text(visible(name)), justify=align, overflow="fold", no_wrap=place == 0)
    for line in lines:
        table.add_row(*(Text(visible(text).replace("\n", "\\n")) for text in line))
    return table


def markdown(rows: Sequence[TextRow]) -> str:
    r"""The rows as a Markdown table, one per line.

    >>> print(markdown([{"attack": "sigma-zero", "median l0": "15"}]))
    | attack | median l0 |
    | --- | --- |
    | sigma-zero | 15 |
    """
    names = headings(rows)
    lines = [names, ["---"] * len(names), *([row.get(name, "") for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
