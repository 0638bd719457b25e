"""Where the numbers of a page come from: software, machines, cells, and what the doctor said of the models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sigmazero.report.site.old.htmltables import HtmlCell, HtmlTable
from sigmazero.report.site.old.shell import Html, element, join
from sigmazero.report.site.old.text import number
from sigmazero.report.status import duration
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import CellStatus

RUN = {
    "sigmazero": "sigmazero",
    "commit": "Commit",
    "torch": "PyTorch",
    "numpy": "NumPy",
    "python": "Python",
    "device": "Device",
    "threads": "Threads",
    "began": "Began",
}
Findings = Mapping[str, Sequence[Mapping[str, str]]]


def software(infos: Sequence[CellInfo]) -> Html:
    """What all runs were made with; several values where they differ."""
    pairs = []
    for name, heading in RUN.items():
        values = [_text(name, value) for info in infos for value in _listed(info.provenance.get(name))]
        if values:
            pairs.append(element("div", element("dt", heading), element("dd", ", ".join(dict.fromkeys(values)))))
    changed = any(True in _listed(info.provenance.get("dirty")) for info in infos)
    note = element("p", "The code had changes that were not committed.", class_="note") if changed else ""
    return join([element("dl", *pairs, class_="pairs"), note])


def _listed(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _text(name: str, value: Any) -> str:
    if name == "commit":
        return str(value)[:12]
    return str(value).replace("T", " ") if name == "began" else str(value)


def cells(states: Sequence[CellStatus]) -> HtmlTable:
    """Every cell: how far it is, and the hashes that identify what it is about."""
    words, numbers = ["model", "attack", "data", "state"], ["budget", "seed", "samples", "time"]
    hashes = ["weights", "rows", "cell"]
    rows = []
    for one in states:
        info = one.cell
        known = [info.model_sha256[:8], info.data_hash[:8], info.key[:12]]
        figures = [
            HtmlCell(number(info.budget), info.budget),
            HtmlCell(str(info.seed), info.seed),
            HtmlCell(f"{one.done}" if one.done == info.rows else f"{one.done} of {info.rows}", one.done),
            HtmlCell(duration(one.seconds), one.seconds),
        ]
        texts = [info.model, info.attack, info.dataset, one.state]
        rows.append([*map(HtmlCell, texts), *figures, *(HtmlCell(element("code", text)) for text in known)])
    caption = "Each cell is an attack against a model on some rows; the hashes are those of weights, rows and question"
    return HtmlTable("cells", caption, [*words, *numbers, *hashes], rows, words=len(words))


def parameters(infos: Sequence[CellInfo]) -> HtmlTable:
    """Every attack with all its parameters."""
    shown = {
        (info.attack, str(info.version), ", ".join(f"{name}={value}" for name, value in info.parameters.items()))
        for info in infos
    }
    rows = [[HtmlCell(text) for text in line] for line in sorted(shown)]
    return HtmlTable("parameters", "Parameters of the attacks", ["attack", "version", "parameters"], rows, words=3)


def incomplete(states: Sequence[CellStatus]) -> Html:
    """What is not there yet, or failed; nothing if all is done."""
    notes = []
    for one in states:
        if one.state == "done":
            continue
        what = f"{one.cell.attack} against {one.cell.model} on {one.cell.dataset}"
        why = (
            f"failed: {one.error.strip().splitlines()[-1]}" if one.error else f"{one.done} of {one.cell.rows} rows done"
        )
        notes.append(element("p", element("strong", what), f" {why}."))
    return element("div", *notes, class_="finding error") if notes else Html("")


def doctor(infos: Sequence[CellInfo], findings: Findings) -> Html:
    """What the doctor found, per model and data set, each code with what it means."""
    asked = [info for info in infos if info.key in findings]
    if not asked:
        lead = "The doctor was not asked when this store was filled; "
        return element("p", lead, element("code", "sigmazero doctor MODEL DATA"), " asks it.", class_="muted")
    found = {
        (f"{info.model} on {info.dataset}", each["code"], each["detail"]): each
        for info in asked
        for each in findings[info.key]
    }
    models = len({(info.model, info.dataset) for info in asked})
    if not found:
        checked = "the model" if models == 1 else f"{models} pairs of model and data"
        return element("p", f"The doctor looked at {checked} and found nothing wrong.")
    return join([finding(name, each) for (name, *_), each in found.items()])


def finding(name: str, each: Mapping[str, str]) -> Html:
    """One thing that the doctor said of a model."""
    head = element("p", element("strong", f"{each['code']} {each['severity']}"), f" {name}: {each['detail']}")
    about = element("p", each["about"], class_="muted")
    return element("div", head, about, element("p", f"Fix: {each['fix']}."), class_=f"finding {each['severity']}")
