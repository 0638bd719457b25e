"""Which features fall most often: per model a table of bars, from what the attacks changed in all samples."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sigmazero.core.metrics import Outcome
from sigmazero.report import patterns, spaces
from sigmazero.report.figures import curves
from sigmazero.report.html.shell import element, join
from sigmazero.report.html.tables import HtmlCell, HtmlTable
from sigmazero.report.measure import Measured
from sigmazero.store.store import Store

MOST = 20  # features shown of a model
WIDTH = 100  # of a bar at 100 %


def build(store: Store, cells: Sequence[Measured]) -> list[HtmlTable]:
    """A table per model on tabular data; nothing of images, whose pixels have no names."""
    tabular = [(info, facts) for info, facts in cells if spaces.is_table(info)]
    if not any((facts.outcome == Outcome.FOUND).any() for _, facts in tabular):
        return []
    groups = curves.panels(tabular, mix=True)
    named = zip(groups, curves.panel_titles(groups), strict=True)
    return [_table(f"features-{place}", store, group, title) for place, (group, title) in enumerate(named)]


def _table(name: str, store: Store, group: Sequence[Measured], title: str) -> HtmlTable:
    infos = [info for info, _ in group]
    sites, called = spaces.named_sites(infos[0]), curves.names(infos)
    shares = np.stack([patterns.fallen(info, store.facts(info.key)) for info in infos])
    order = np.argsort(-shares.mean(axis=0), kind="stable")
    shown = [k for k in order.tolist() if shares[:, k].max() > 0][:MOST]
    rows = [[HtmlCell(sites[k].name), *(_bar(share) for share in shares[:, k])] for k in shown]
    headings = [f"{called[info.key]}{'' if info.budget is None else f', budget {info.budget}'}" for info in infos]
    caption = (
        f"{title}: in how many % of the examples found each feature is changed ({len(shown)} of {len(sites)} shown)"
    )
    return HtmlTable(name, caption, ["feature", *headings], rows)


def _bar(share: float) -> HtmlCell:
    bar = element("rect", width=f"{WIDTH * share:.1f}", height="10", rx="2")
    drawn = element("svg", bar, viewBox=f"0 0 {WIDTH} 10", width=WIDTH, height=10, aria_hidden="true", class_="share")
    return HtmlCell(join([drawn, element("span", f"{100 * share:.1f}", class_="amount")]), 100 * share)
