"""A store while it is being filled: how far it is, above the page of what is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sigmazero.report.html.shell import Html, asset, document, element, join
from sigmazero.report.html.tables import HtmlCell, HtmlTable, render
from sigmazero.report.status import running, status_rows
from sigmazero.store.store import CellStatus, Failure, Store

WORDS = ("state", "model", "data", "attack")
SHOWN = 20  # failures


def version(store: Store) -> str:
    """What changes whenever the page of a store would."""
    states = store.status()
    return f"{sum(one.done for one in states)}/{len(states)}/{sum(one.error is not None for one in states)}"


def progress(store: Store) -> Html:
    """How far each cell is, how fast the run at work is, and what failed."""
    states, note = store.status(), store.progress()
    done, of = sum(one.done for one in states), sum(one.cell.rows for one in states)
    ended = f"{done} of {of} rows; nothing is running" if done < of else f"all {of} rows are done"
    line = element("p", running(note) if note else ended, class_="pace")
    bar = element("progress", value=done, max=max(of, 1), aria_label="rows done")
    return join([line, bar, _failures(states, store.failures()), _table("cells-live", "Cells", status_rows(states), 4)])


def _table(name: str, caption: str, rows: Sequence[Mapping[str, str]], words: int) -> Html:
    if not rows:
        return element("p", "There are no cells yet.", class_="muted")
    cells = [[HtmlCell(text) for text in row.values()] for row in rows]
    return render(HtmlTable(name, caption, list(rows[0]), cells, words=words))


def _failures(states: Sequence[CellStatus], failures: Sequence[Failure]) -> Html:
    names = {one.cell.key: f"{one.cell.attack} against {one.cell.model}" for one in states}
    said = [(names.get(one.cell.key, ""), one.error) for one in states if one.error is not None]
    said += [(f"{names.get(one.key, one.key[:12])}, rows {one.start} to {one.stop - 1}", one.error) for one in failures]
    notes = [element("p", element("strong", what), f" failed: {_last(why)}") for what, why in said[:SHOWN]]
    if len(said) > SHOWN:
        notes.append(element("p", f"and {len(said) - SHOWN} more"))
    return element("div", *notes, class_="finding error") if notes else Html("")


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


def live_page(name: str, seconds: float) -> str:
    """The page that asks again every so many seconds, and shows the report below."""
    body = [
        element("h1", name),
        element("p", "While facts arrive: what is there now, asked for again by itself.", class_="lead"),
        element("p", "", id="trouble", class_="finding error", role="alert", hidden=True),
        element("section", element("p", "Asking …", class_="muted"), id="progress", aria_label="Progress"),
        element("iframe", id="report", title=f"Report of {name}", src="page"),
    ]
    data: dict[str, Any] = {"live": {"milliseconds": round(seconds * 1000)}}
    return document(
        f"{name} – sigmazero",
        join(body),
        data=data,
        scripts=[asset("assets/live.js")],
        styles=[asset("assets/live.css")],
        own=("connect-src", "frame-src"),
    )


def notice(name: str, text: str) -> str:
    """A page that says why there is no report."""
    return document(name, element("p", text, class_="muted"))
