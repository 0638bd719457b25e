"""A store as one page: summary, tables, curves, samples, and where it all comes from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sigmazero.core.files import replacing
from sigmazero.report.doubts import findings
from sigmazero.report.html import about, charts, features, gaps, patterns, results, samples, summary, tables
from sigmazero.report.html.shell import Html, asset, document, element, join
from sigmazero.report.inputs import Clean
from sigmazero.report.measure import COST, load, over
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

SCRIPTS = (*charts.SCRIPTS, "assets/pictures.js", "assets/list.js", "assets/samples.js")
STYLES = (*charts.STYLES, "assets/samples.css")
LEAD = "How many input values must change before the model is wrong?"
CURVES = (
    "Share of all samples fooled with at most k changes. The band is the 95 % interval of the strongest attack, or of "
    "the curve or name that you point at. Point at the curves or use the arrow keys to read them, drag to zoom, press "
    "a name to hide its curve."
)
EFFORT = (
    "Share of all samples whose reported example was found within so many forward and backward passes, as if all steps "
    "of a search cost the same. Searches go on to make it sparser, so the strongest attack need not be the first."
)
FEATURES = "Which features the attacks change most often, over all samples that they fool."
GAP = (
    " Grey is the gap between what the attacks fool and what may fall at most, by what is proved: the truth for these "
    "samples lies in it."
)
PICTURES = " Pictures show values rounded to 8 bits; changed pixels are"
SECTIONS = {
    "summary": "Summary",
    "tables": "Tables",
    "curves": "Curves",
    "effort": "Effort",
    "patterns": "Patterns",
    "features": "Features",
    "samples": "Samples",
    "provenance": "Provenance",
}


def save_page(path: Path, text: str) -> None:
    """Write a page."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def make_page(
    store: Store,
    clean: Clean,
    *,
    ks: Sequence[float] | None = None,
    mix: bool = False,
    compare: results.Compare | None = None,
    limit: int | None = None,
) -> str:
    """The text of the page; `clean` gives the inputs of a cell, to show what was changed.

    `limit` is the number of samples that come with pictures or changes, by default what 5 MB hold; `ks` are the numbers
    of changes that tables are about, by default what fits the inputs.
    """
    cells = load(store)
    if not cells:
        raise ValueError("the store has no samples yet; run a plan into it first")
    states, found = store.status(), findings(store, cells)
    made = results.build(cells, ks, mix, compare)
    drawn = charts.build(cells, mix)
    drawn += charts.build(priced, mix) if (priced := over(cells, COST)) else []
    spent = patterns.effort_charts(cells, mix)
    fallen = features.build(store, cells)
    groups = samples.build(store, cells, clean, limit)
    infos = [info for info, _ in cells]
    parts = {
        "summary": summary.render(cells, states, found),
        "tables": [tables.render(table) for table in (*made, *gaps.build(cells))],
        "curves": [element("p", CURVES + (GAP if _gaps(drawn) else ""), class_="note"), *map(charts.render, drawn)],
        "effort": [element("p", EFFORT, class_="note"), *map(charts.render, spent)],
        "patterns": [element("p", patterns.NOTE, class_="note"), *patterns.build(store, cells, mix)],
        "features": [element("p", FEATURES, class_="note"), *map(tables.render, fallen)] if fallen else [],
        "samples": [_samples(group, place) for place, group in enumerate(groups)],
        "provenance": _provenance(store, infos, found),
    }
    body = [element("h1", store.path.stem), element("p", LEAD, class_="lead")]
    held = {name: content for name, content in parts.items() if content or name != "features"}
    for name, content in held.items():
        heading = element("h2", SECTIONS[name], id=f"{name}-title")
        body.append(element("section", heading, *content, id=name, aria_labelledby=f"{name}-title"))
    return document(
        f"{store.path.stem} – sigmazero",
        join(body),
        data={
            "copies": tables.copies(made),
            "picks": tables.picks(made),
            "charts": {chart.name: chart.data for chart in [*drawn, *spent]},
            "samples": [group.data for group in groups],
            "outcomes": {int(outcome): words for outcome, words in samples.OUTCOMES.items()},
        },
        scripts=[asset(name) for name in SCRIPTS],
        styles=[asset(name) for name in STYLES],
        nav=element("nav", *(element("a", SECTIONS[name], href=f"#{name}") for name in held), aria_label="Sections"),
    )


def _gaps(drawn: Sequence[charts.Chart]) -> bool:
    """Whether something is proved that a chart shows."""
    return any(entry.get("proved") for chart in drawn for entry in chart.data["series"])


def _provenance(store: Store, infos: Sequence[CellInfo], found: about.Findings) -> list[Html]:
    """Where it all comes from."""
    return [
        element("h3", "What the doctor says of the models"),
        about.doctor(infos, found),
        element("h3", "Made with"),
        about.software(infos),
        element("h3", "Cells"),
        tables.render(about.cells(store.status())),
        tables.render(about.parameters(infos)),
        element("p", "Every number can be verified again: ", element("code", f"sigmazero verify {store.path.name}")),
    ]


def _samples(group: samples.Group, place: int) -> Html:
    some = f"{group.shown} of {group.total} samples are on this page"
    fewer = ", evenly spread; --samples sets how many" if group.shown < group.total else ""
    more, less = (  # a colour and what it means stay on one line
        element("span", element("span", class_=f"key {kind}", aria_hidden="true"), text, class_="keyed")
        for kind, text in (("more", "orange where the value rose"), ("less", "purple where it fell"))
    )
    told = [PICTURES, more, ", ", less, "."]
    pictures = told if "images" in group.data else []
    return element(
        "section",
        element("h3", group.title),
        element("p", f"{some}{fewer}.", *pictures, class_="note"),
        element("p", group.lack, class_="finding") if group.lack else "",
        element("noscript", "Samples need scripts, which this browser does not run."),
        element("div", class_="explorer", data_group=str(place), data_title=group.title),
    )
