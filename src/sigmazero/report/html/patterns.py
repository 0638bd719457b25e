"""What the samples of each model have in common, for a page: how many changes, which classes, where, who agrees."""

from __future__ import annotations

from collections.abc import Sequence

from sigmazero.core.messages import class_name
from sigmazero.report import measure, patterns
from sigmazero.report.figures import agreement, classes, curves, effort, transfer, window
from sigmazero.report.html import charts, colours, drawings, tables
from sigmazero.report.html.charts import Chart
from sigmazero.report.html.shell import Html, element
from sigmazero.report.html.tables import HtmlCell, HtmlTable
from sigmazero.report.measure import Measured
from sigmazero.report.tables.text import number, percent
from sigmazero.store.store import Store

NOTE = "Per model: how many changes samples need, which classes give way, which pixels fall, and who finds the same."
BETWEEN = {
    agreement.LEFT: "{row} and {column} share {share} % of the features that either changes",
    agreement.RIGHT: "{row} needs fewer changes than {column} on {share} % of the samples",
}
PLACES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)


def effort_charts(cells: Sequence[Measured], mix: bool) -> list[Chart]:
    """Per model, the share of all samples that are fooled after so many queries."""
    groups = curves.panels(cells, mix)
    titles = curves.panel_titles(groups)
    return [_effort(f"effort-{at}", *each) for at, each in enumerate(zip(groups, titles, strict=True))]


def _effort(name: str, group: Sequence[Measured], title: str) -> Chart:
    words = effort.called(group)
    found = {words[info.key]: patterns.effort(info, facts) for info, facts in group}
    end, view = (how([*found.values()]) for how in (window.last, window.sensible_end))
    ks = charts.places([*found.values()], end, view)
    looks = {words[info.key]: (colours.pair(info.attack), colours.dash(info.attack)) for info, _ in group}
    series = [
        {"label": key, **looks[key][0], "dash": looks[key][1], **charts.rates(l0, ks)} for key, l0 in found.items()
    ]
    title = f"{title}, {curves.counted(group)}"
    data = {
        **{"title": f"{title}: success against queries", "axis": "queries per sample at most", "word": "queries"},
        **{"end": end, "view": view, "cut": window.said(window.cut(found, view), view, "queries")},
        **{"leader": window.leader(found, view), "ks": ks.tolist(), "series": series, "points": []},
    }
    caption = f"{title}: share fooled in % after at most so many queries, and its 95 % interval"
    listed = [float(k) for k in PLACES if k < end]
    return Chart(name, title, data, charts.in_numbers(f"{name}-table", caption, found, [], listed))


def build(store: Store, cells: Sequence[Measured], mix: bool) -> list[Html]:
    """A fold per model, the first of them open."""
    groups = curves.panels(cells, mix)
    titles = curves.panel_titles(groups)
    return [*transfers(store, cells)] + [
        element("details", element("summary", title), *_model(store, group, place), open=place == 0, class_="fold")
        for place, (group, title) in enumerate(zip(groups, titles, strict=True))
    ]


def transfers(store: Store, cells: Sequence[Measured]) -> list[Html]:
    """Whether examples fool other models, where the models were asked."""
    held = transfer.matrices(store, cells)
    about = "{share} % of what fools {row} fools {column}"
    drawn = [
        (
            drawings.grid(one.shares, (one.rows, one.columns), f"Transfer on {one.title}", about),
            f"{one.title}: from (down) to (across)",
        )
        for one in held
    ]
    if not drawn:
        return []
    return [
        element("h3", "What fools others, too"),
        element("p", transfer.NOTE, class_="note"),
        drawings.figures(drawn, "grids"),
    ]


def _model(store: Store, group: Sequence[Measured], place: int) -> list[Html]:
    made = [*_histograms(group), *_classes(group, place), *_heat(store, group)]
    called, *grids = agreement.pairs(store, group)
    if len(called) > 1:
        made += [element("h3", "Who finds the same"), element("p", agreement.NOTE, class_="note")]
        drawn = [
            (drawings.grid(grid, (called, called), what, BETWEEN[what]), f"{what[0].upper()}{what[1:]}.")
            for grid, what in zip(grids, BETWEEN, strict=True)
        ]
        made.append(drawings.figures(drawn, "grids"))
    return made


def _histograms(group: Sequence[Measured]) -> list[Html]:
    free = [(info, facts) for info, facts in group if info.budget is None]
    if not free:
        return []
    called = curves.names([info for info, _ in group])
    found = {info.key: measure.changes(facts, info.unit) for info, facts in free}
    edges = patterns.bins([*found.values()], window.sensible_end([*found.values()]))
    held = {key: patterns.histogram(l0, edges) for key, l0 in found.items()}
    most = max(int(each.counts.max()) for each in held.values())
    drawn = [(drawings.bars(held[i.key], edges, i.attack, most), _told(called[i.key], held[i.key])) for i, _ in free]
    lead = f"Samples by the number of {free[0][0].unit}s that must change; all drawings have the same axes."
    return [element("h3", "How many changes"), element("p", lead, class_="note"), drawings.figures(drawn, "histograms")]


def _told(name: str, held: patterns.Histogram) -> str:
    rest = [(held.already, "wrong already"), (held.beyond, "beyond the axis"), (held.never, "not fooled")]
    return "; ".join([name, *(f"{count} {what}" for count, what in rest if count)])


def _classes(group: Sequence[Measured], place: int) -> list[Html]:
    cell = classes.strongest(group)
    info, facts = cell
    named, shares, out = classes.told(cell)
    attack = curves.names([one for one, _ in group])[info.key]
    names = info.about.get("classes")
    rows = []
    for line in patterns.by_class(info, facts):
        becomes = "–" if line.becomes is None else class_name(names, line.becomes)
        rows.append(
            [
                HtmlCell(class_name(names, line.label), float(line.label)),
                HtmlCell(str(line.samples), line.samples),
                HtmlCell(percent(line.clean), line.clean),
                HtmlCell(number(line.median, 1), line.median),
                HtmlCell(percent(line.fooled), line.fooled),
                HtmlCell("–" if line.becomes is None else f"{becomes} ({percent(line.share)})", line.share),
            ]
        )
    headings = ["class", "n", "clean accuracy", "median l0", "fooled", "mostly taken for"]
    table = HtmlTable(f"classes-{place}", f"By true class, {attack}, the strongest attack", headings, rows)
    made = [element("h3", "Which classes"), tables.render(table)]
    if len(named):
        about = "of the examples of {row}, {share} % are taken for {column}"
        left = f"; {out} rarer classes are left out" if out else ""
        text = f"From the true class (down) to the one it is taken for (across), in % of the examples of a class{left}."
        made.append(drawings.figures([(drawings.grid(shares, (named, named), text, about), text)], "grids"))
    return made


def _heat(store: Store, group: Sequence[Measured]) -> list[Html]:
    called = effort.called(group)
    maps = [(info, patterns.heat(info, store.facts(info.key))) for info, _ in group]
    shown = [(info, share) for info, share in maps if share is not None]
    if not shown:
        return []
    top = max([float(share.max()) for _, share in shown] + [1e-9])
    drawn = [
        (
            drawings.heat_map(share, top, f"Where {called[i.key]} changes pixels"),
            f"{called[i.key]}: at most {percent(float(share.max()))}",
        )
        for i, share in shown
    ]
    lead = f"In how many of the examples found each pixel is changed: black is none, the brightest {percent(top)}."
    return [element("h3", "Which pixels"), element("p", lead, class_="note"), drawings.figures(drawn, "heats")]
