"""Tables that stand as they are and that scripts make sortable, filterable and copyable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sigmazero.report.site.old.shell import Html, element


@dataclass(frozen=True)
class HtmlCell:
    """What a cell shows, and the number it sorts by; a cell of words sorts by its text."""

    text: object
    value: float | None = None
    strong: bool = False


@dataclass(frozen=True)
class HtmlTable:
    """A table: `words` of its columns come first and hold words; `copies` maps a format to the text to copy.

    `notes` explain headings to those who ask; `picks` are figures that a reader may choose to see instead.
    """

    name: str
    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[HtmlCell]]
    words: int = 1
    copies: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    picks: Mapping[str, object] | None = None


def render(table: HtmlTable) -> Html:
    """The table as HTML; without scripts it reads the same, but stays in this order."""
    head = [
        element(
            "th",
            heading,
            scope="col",
            class_=None if place < table.words else "number",
            title=table.notes.get(heading),
        )
        for place, heading in enumerate(table.headings)
    ]
    body = [element("tr", *(_cell(cell, i, table.words) for i, cell in enumerate(row))) for row in table.rows]
    # Not a <caption>: that would scroll away with a table that is wider than the screen.
    title = f"{table.name}-caption"
    made = element("table", element("thead", element("tr", *head)), element("tbody", *body), aria_labelledby=title)
    region = element("div", made, class_="scroll", role="region", tabindex="0", aria_labelledby=title)
    caption = element("p", table.caption, class_="caption", id=title)
    said = _terms(table)
    terms = [part for name, text in said for part in (element("dt", name), element("dd", text))]
    meant = [element("details", element("summary", "What the columns mean"), element("dl", *terms, class_="terms"))]
    return element(
        "div", caption, region, *(meant if said else ()), class_="table", id=table.name, data_table=table.name
    )


def _terms(table: HtmlTable) -> list[tuple[str, str]]:
    """The headings with what they mean; those that mean the same at various k as one."""
    names: dict[str, list[str]] = {}
    for heading in table.headings:
        if text := table.notes.get(heading):
            names.setdefault(text, []).append(heading)
    return [(f"{some[0].rsplit(' ', 1)[0]} k" if len(some) > 1 else some[0], text) for text, some in names.items()]


def picks(tables: Sequence[HtmlTable]) -> dict[str, Mapping[str, object]]:
    """What readers may choose to see in these tables: the page's data `picks`."""
    return {table.name: table.picks for table in tables if table.picks is not None}


def copies(tables: Sequence[HtmlTable]) -> dict[str, dict[str, str]]:
    """What the copy buttons of these tables copy: the page's data `copies`."""
    return {table.name: dict(table.copies) for table in tables if table.copies}


def _cell(cell: HtmlCell, place: int, words: int) -> Html:
    value = None if cell.value is None or math.isnan(cell.value) else _number(cell.value)
    text = element("strong", cell.text) if cell.strong else cell.text
    if place == 0:
        return element("th", text, scope="row", data_value=value)
    return element("td", text, class_=None if place < words else "number", data_value=value)


def _number(value: float) -> str:
    """A number as JavaScript reads it."""
    return repr(value) if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
