"""The page of one model of a leaderboard: its card, where it stands, its curves, and who found what for each sample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sigmazero.core.messages import class_name
from sigmazero.report.site.index import own, pairs, word
from sigmazero.report.site.old import about, charts
from sigmazero.report.site.old import htmltables as tables
from sigmazero.report.site.old.htmltables import HtmlCell, HtmlTable
from sigmazero.report.site.old.shell import Html, asset, document, element, join
from sigmazero.report.site.old.text import number, percent
from sigmazero.report.site.ranking import Criterion
from sigmazero.report.site.score_page import addresses, chart
from sigmazero.report.site.scores import EntryCard, Score, ScoreBoard, held_by

MOST = 2000  # samples that a page lists


def page(card: EntryCard, boards: Sequence[ScoreBoard]) -> str:
    """The page; of the boards those that the model is on."""
    on = [(board, score) for board in boards for score in board.scores if score.card.slug == card.slug]
    drawn = [chart(f"{board.anchor}-own", board, [score]) for board, score in on]
    links = [element("a", "Leaderboard", href="../index.html")]
    links += [element("a", board.title, href=f"#{board.anchor}") for board, _ in on]
    body = [
        element("p", element("a", "← Leaderboard", href="../index.html")),
        element("h1", card.name),
        pairs(card.told),
        addresses(card),
        *(about.finding(card.name, each) for each in card.findings),
        *(_section(board, score, made) for (board, score), made in zip(on, drawn, strict=True)),
    ]
    return document(
        f"{card.name} – sigmazero",
        join(body),
        data={"charts": {each.name: each.data for each in drawn}},
        scripts=[asset(name) for name in charts.SCRIPTS],
        styles=[*(asset(name) for name in charts.STYLES), own("site.css")],
        nav=element("nav", *links, aria_label="Boards"),
    )


def _section(board: ScoreBoard, score: Score, drawn: charts.Chart) -> Html:
    asked: list[Criterion] = [*(float(k) for k in board.ks), None]
    figures = {"clean accuracy": element("dd", percent(score.clean))}
    figures |= {word(one): _figure(board, score, one) for one in asked}
    facts = [element("div", element("dt", name), figure) for name, figure in figures.items()]
    return element(
        "section",
        element("h2", board.title),
        element("dl", *facts, class_="facts"),
        charts.render(drawn),
        tables.render(finders(board, score)),
        tables.render(samples(board, score)),
        id=board.anchor,
    )


def _figure(board: ScoreBoard, score: Score, criterion: Criterion) -> Html:
    rank = next(rank for rank, each in board.ranked(criterion) if each is score)
    place = f"rank {rank} of {len(board.scores)}"
    if criterion is None:
        return element("dd", number(score.median, 1), element("small", place))
    low, high = score.interval(criterion)
    certified = f"; certified {percent(score.certified(criterion))}" if score.bounded else ""
    text = f"{place}; 95 % interval {percent(low)} to {percent(high)}{certified}"
    return element("dd", percent(score.robust(criterion)), element("small", text))


def finders(board: ScoreBoard, score: Score) -> HtmlTable:
    """Who holds how many samples, with which tools."""
    names, tools = np.array(score.by), np.array(score.tool)
    rows = [
        [
            HtmlCell(name),
            HtmlCell(", ".join(dict.fromkeys(tools[names == name].tolist()))),
            HtmlCell(held, float(held)),
        ]
        for name, held in held_by(score).items()
    ]
    return HtmlTable(
        f"{board.anchor}-finders", "Who found the fewest changes", ["found by", "with", "samples"], rows, words=2
    )


def samples(board: ScoreBoard, score: Score) -> HtmlTable:
    """Each sample with what is known of it."""
    rows = [
        [
            HtmlCell(int(score.rows[i]), float(score.rows[i])),
            HtmlCell(score.by[i] or ("wrong as it is" if score.changes[i] == 0 else "nobody")),
            HtmlCell(score.tool[i] or "–"),
            HtmlCell(score.date[i] or "–"),
            HtmlCell(class_name(score.classes, int(score.labels[i])), float(score.labels[i])),
            HtmlCell(number(float(score.lower[i])), float(score.lower[i])),
            HtmlCell(number(float(score.changes[i])), float(score.changes[i])),
        ]
        for i in range(min(len(score.rows), MOST))
    ]
    more = f"; the first {MOST:,} of {len(score.rows):,}" if len(score.rows) > MOST else ""
    caption = f"Samples: changes that are needed at least, and the fewest that were found{more}"
    headings = ["row", "found by", "with", "on", "class", "at least", "found"]
    return HtmlTable(f"{board.anchor}-samples", caption, headings, rows, words=5)
