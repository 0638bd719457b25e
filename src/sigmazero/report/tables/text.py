"""The figures of runs, as a table for the terminal or as Markdown.

A table is a list of rows; a row maps headings to texts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from sigmazero.core.result import Result

if TYPE_CHECKING:
    from rich.table import Table

Row = Mapping[str, str]

BUDGETS = (10, 24, 50)


def figures(result: Result, labels: Tensor, budgets: Sequence[int] = BUDGETS) -> dict[str, str]:
    """What one reports of a run, ready to print; `labels` are the true classes, also after a targeted attack.

    Success rates are shares of all samples and a sample that was not fooled counts as infinity. With a budget only the
    rate there is known: a sample ends with the first point within it, and none is looked for beyond.
    """
    summary = result.summary()
    right = (result.clean_prediction == labels.to(result.clean_prediction.device)).double().mean()
    unit = " (pixels)" if result.unit == "pixel" else ""
    if result.budget is None:
        rates = {f"ASR at {k}": percent(result.asr(k)) for k in sorted(budgets)}
        rates["ASR at ∞"] = percent(result.asr())
        rates[f"median l0{unit}"] = number(result.median_l0, 1)
        rates[f"mean l0{unit}"] = number(result.mean_l0, 2)
    else:
        rates = {f"ASR at {result.budget}{unit}": percent(result.asr(result.budget))}
    return {
        "samples": f"{len(result)}",
        "clean accuracy": percent(float(right)),
        **rates,
        "queries per sample": number(summary["queries"], 1),
        "seconds per sample": number(summary["seconds_per_sample"], 4),
    }


def percent(share: float) -> str:
    """A share as a percentage with one decimal.

    >>> percent(0.656), percent(float("nan"))
    ('65.6 %', '–')
    """
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"


def number(value: float, decimals: int = 2) -> str:
    """A number with at most so many decimals; infinity as its sign, no value as a dash.

    >>> number(15.0), number(21.154), number(float("inf"))
    ('15', '21.15', '∞')
    """
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def headings(rows: Sequence[Row]) -> list[str]:
    """Every heading of these rows, in the order of first use."""
    return list(dict.fromkeys(name for row in rows for name in row))


def rich_table(rows: Sequence[Row], left: Sequence[str] = (), *, down: bool = False) -> Table:
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
        table.add_column(Text(name), justify=align, overflow="fold", no_wrap=place == 0)
    for line in lines:
        table.add_row(*map(Text, line))
    return table


def markdown(rows: Sequence[Row]) -> str:
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
