"""The page of one model: what it is, where it stands, its tables, curves and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sigmazero.report.site.index import criteria, heading, own, pairs, word
from sigmazero.report.site.old import about, charts, results
from sigmazero.report.site.old import htmltables as tables
from sigmazero.report.site.old.measure import Measured
from sigmazero.report.site.old.shell import Html, asset, document, element, join
from sigmazero.report.site.old.text import number, percent
from sigmazero.report.site.ranking import Board, ModelId, Standing
from sigmazero.store.store import CellStatus

ENVELOPE = "Best of all attacks per sample, every success verified; a rank among the models on the same rows."


def page(model: ModelId, boards: Sequence[Board], card: Mapping[str, str], ks: Sequence[float], mix: bool) -> str:
    """The page; `boards` are those that the model is on."""
    parts = [_Part(board, next(s for s in board.standings if s.model == model), ks, mix) for board in boards]
    links = [element("a", "Leaderboard", href="../index.html")]
    links += [element("a", heading(part.board), href=f"#{part.board.name}") for part in parts]
    cells = [cell for part in parts for cell in part.standing.cells]
    body = [
        element("p", element("a", "← Leaderboard", href="../index.html")),
        element("h1", model.name),
        pairs(card),
        *(part.section() for part in parts),
        element("h2", "Runs", id="runs"),
        tables.render(about.cells([status(cell) for cell in cells])),
        element("h3", "Made with"),
        about.software([info for info, _ in cells]),
    ]
    return document(
        f"{model.name} – sigmazero",
        join(body),
        data={
            "copies": tables.copies([table for part in parts for table in part.tables]),
            "charts": {chart.name: chart.data for part in parts for chart in part.charts},
        },
        scripts=[asset(name) for name in charts.SCRIPTS],
        styles=[*(asset(name) for name in charts.STYLES), own("site.css")],
        nav=element("nav", *links, aria_label="Sections"),
    )


class _Part:
    """What a page shows of one board; names on the page begin with the board's."""

    def __init__(self, board: Board, standing: Standing, ks: Sequence[float], mix: bool) -> None:
        self.board, self.standing, self.ks = board, standing, ks
        cells = list(standing.cells)
        self.tables = [replace(t, name=f"{board.name}-{t.name}") for t in results.build(cells, ks, mix)]
        self.charts = [
            replace(c, name=f"{board.name}-{c.name}", table=replace(c.table, name=f"{board.name}-{c.table.name}"))
            for c in charts.build(cells, mix)
        ]

    def section(self) -> Html:
        """The board's part of the page."""
        asked = criteria(self.ks)
        told = {word(one): self._figure(one) for one in sorted(asked, key=lambda k: float("inf") if k is None else k)}
        figures = {"clean accuracy": element("dd", percent(self.standing.clean)), **told}
        dl = [element("div", element("dt", name), figure) for name, figure in figures.items()]
        return element(
            "section",
            element("h2", heading(self.board)),
            element("p", ENVELOPE, class_="note"),
            element("dl", *dl, class_="facts"),
            *map(tables.render, self.tables),
            *map(charts.render, self.charts),
            id=self.board.name,
        )

    def _figure(self, criterion: float | None) -> Html:
        value = self.standing.median if criterion is None else self.standing.robust(criterion)
        rank = next(rank for rank, standing in self.board.ranked(criterion) if standing.model == self.standing.model)
        ranked = sum(standing.complete for standing in self.board.standings)
        shown = number(value, 1) if criterion is None else percent(value)
        return element("dd", shown, element("small", f"rank {rank} of {ranked}" if rank else "no rank: not finished"))


def status(cell: Measured) -> CellStatus:
    """How far a cell is."""
    info, facts = cell
    return CellStatus(
        info,
        done=len(facts),
        seconds=float(info.provenance.get("seconds", 0.0)),
        error=None,
        state="done" if len(facts) == info.rows else "begun",
    )
