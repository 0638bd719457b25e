"""The first page of a leaderboard: a ranked table and the curves of each board, and the cards of the models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sigmazero.core.metrics import Floats
from sigmazero.report.figures import style
from sigmazero.report.formats import count
from sigmazero.report.site.index import own, pairs, word
from sigmazero.report.site.old import charts, colours
from sigmazero.report.site.old import htmltables as tables
from sigmazero.report.site.old.charts import Chart
from sigmazero.report.site.old.htmltables import HtmlCell, HtmlTable
from sigmazero.report.site.old.measure import axis
from sigmazero.report.site.old.shell import Html, asset, document, element, join
from sigmazero.report.site.old.text import number
from sigmazero.report.site.ranking import Criterion
from sigmazero.report.site.scores import MAIN, RANDOM, EntryCard, Score, ScoreBoard

LEAD = (
    "How few input values must change before each model is wrong. Every number has its proof: for each fooled sample "
    "the changed values are kept, and were shown to the model again. Anyone may lower a number by finding fewer "
    "changes, with whatever tool."
)
BOUNDS = (
    "Small figures below a share: its 95 % interval and, after ≥, the share that is certified to stay right, where "
    "lower bounds are known. The truth for these rows lies between the certified share and the large figure."
)
BLIND = " These models give no gradients, so fewer attacks apply to them."
VOTES = " These models are random: the answer that most of 64 draws give counts, always the same draws."
PALETTE = style.OTHERS


def page(title: str, boards: Sequence[ScoreBoard]) -> str:
    """The page with every board and every model."""
    links = [element("a", board.title, href=f"#{board.anchor}") for board in boards]
    nav = element("nav", *links, element("a", "Models", href="#models"), aria_label="Boards")
    drawn = {board.anchor: chart(board.anchor, board, board.scores) for board in boards}
    models = {score.card.slug: score.card for board in boards for score in board.scores}
    body = [
        element("h1", title),
        element("p", LEAD, class_="lead"),
        element("p", BOUNDS, class_="note"),
        *(section(board, drawn[board.anchor]) for board in boards),
        element("section", element("h2", "Models"), cards(list(models.values())), id="models"),
    ]
    return document(
        title,
        join(body),
        data={
            "orders": {board.anchor: order_data(board) for board in boards},
            "charts": {each.name: each.data for each in drawn.values()},
        },
        scripts=[own("site.js"), *(asset(name) for name in charts.SCRIPTS)],
        styles=[*(asset(name) for name in charts.STYLES), own("site.css")],
        nav=nav,
    )


def criteria(board: ScoreBoard) -> list[Criterion]:
    """What a board can be ranked by, the usual one first."""
    return [float(board.first), *(float(k) for k in board.ks if k != board.first), None]


def order_data(board: ScoreBoard) -> list[list[tuple[int, int]]]:
    """For each criterion, the place of every row in the table as written, from first to last, and its rank."""
    asked = criteria(board)
    written = {score.card.slug: place for place, (_, score) in enumerate(board.ranked(asked[0]))}
    return [[(written[score.card.slug], rank) for rank, score in board.ranked(one)] for one in asked]


def section(board: ScoreBoard, drawn: Chart) -> Html:
    """A board: what it asks, the choice of order, the table and the curves."""
    options = [element("option", word(one), value=str(place)) for place, one in enumerate(criteria(board))]
    choice = element(
        "p",
        element("label", "Rank by ", for_=f"{board.anchor}-by"),
        element("select", *options, id=f"{board.anchor}-by", data_board=board.anchor),
        class_="choice",
        hidden=True,
    )
    rows = len(board.scores[0].rows)
    told = f"{rows:,} rows of {board.data}, counted by {board.unit}, rows' SHA-256 {board.sha256[:12]}"
    apart = {MAIN: "", RANDOM: VOTES}.get(board.track, BLIND)
    return element(
        "section",
        element("h2", board.title),
        element("p", f"{told}.{apart}", class_="muted"),
        choice,
        tables.render(table(board)),
        charts.render(drawn),
        id=board.anchor,
    )


def table(board: ScoreBoard) -> HtmlTable:
    """The board in numbers."""
    told = {
        "clean": "Share classified right without any change, in %.",
        **{f"k = {k}": f"Share that nobody fooled with at most {k} changes, in %." for k in board.ks},
        "median l0": "Median of the fewest changes that anyone found; ∞ where nobody did.",
        "fooled": "Samples that were right and that somebody fooled.",
        "found by": "Who holds the most samples, and how many others hold some.",
    }
    rows = [
        [
            HtmlCell(_linked(rank, score), float(rank)),
            HtmlCell(f"{100 * score.clean:.1f}", score.clean),
            *(_share(score, k) for k in board.ks),
            HtmlCell(number(score.median, 1), score.median),
            HtmlCell(f"{(fooled := int(np.isin(score.changes, (0.0, np.inf), invert=True).sum()))}", float(fooled)),
            HtmlCell(_finders(score.finders)),
        ]
        for rank, score in board.ranked(float(board.first))
    ]
    what = f"in % what nobody fooled with at most k {board.unit}s changed"
    caption = f"{board.title}: {count(len(rows), 'model')}; {what}"
    return HtmlTable(f"{board.anchor}-table", caption, ["model", *told], rows, notes=told)


def _linked(rank: int, score: Score) -> Html:
    link = element("a", score.card.name, href=f"models/{score.card.slug}.html")
    marks = [element("small", each["code"], class_=each["severity"]) for each in score.card.findings]
    return element("span", element("span", f"{rank}", class_="rank"), " ", link, *marks, class_="place")


def _share(score: Score, k: int) -> HtmlCell:
    low, high = (100 * end for end in score.interval(k))
    certified = f", ≥ {100 * score.certified(k):.1f}" if score.bounded else ""
    small = element("small", f"{low:.1f}–{high:.1f}{certified}")
    return HtmlCell(join([f"{100 * score.robust(k):.1f}", small]), score.robust(k))


def _finders(names: Sequence[str]) -> str:
    return "–" if not names else names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def chart(name: str, board: ScoreBoard, scores: Sequence[Score]) -> Chart:
    """The share fooled over k: a curve with its 95 % band per model, and what is certified, where it is."""
    found = {score.card.name: score.changes for score in scores}
    found |= {f"{score.card.name}, at most": score.lower for score in scores if score.bounded}
    finite = [l0[np.isfinite(l0)] for l0 in found.values()]
    end = max([float(max(board.ks)), *(float(each.max()) for each in finite if len(each))]) + 1
    ks = charts.places(list(found.values()), end)
    series = [_line(place, score, ks) for place, score in enumerate(scores)]
    series += [_at_most(line, score, ks) for line, score in zip(series, scores, strict=True) if score.bounded]
    title = f"{board.title}: share fooled"
    data: dict[str, Any] = {
        "title": title,
        "axis": axis(board.unit),
        "word": "k",
        "end": end,
        "ks": ks.tolist(),
        "series": series,
        "points": [],
    }
    listed = sorted({0.0, *map(float, board.ks)})
    caption = f"{title} in % with at most so many {board.unit}s changed, and its 95 % interval"
    return Chart(f"{name}-curves", title, data, charts.in_numbers(f"{name}-numbers", caption, found, [], listed))


def _line(place: int, score: Score, ks: Floats) -> dict[str, Any]:
    light = PALETTE[place % len(PALETTE)]
    dash = style.DASHES[place // len(PALETTE) % len(style.DASHES)]
    lengths = [] if isinstance(dash, str) else [2.0 * length for length in dash[1]]
    pair = {"light": light, "dark": colours.lightened(light)}
    return {"label": score.card.name, **pair, "dash": lengths, **charts.rates(score.changes, ks)}


def _at_most(line: dict[str, Any], score: Score, ks: Floats) -> dict[str, Any]:
    """What may fall at most, by what is certified; the gap down to what is fooled is drawn as a band."""
    most = charts.rates(score.lower, ks)["rate"]
    ends = {"rate": most, "low": line["rate"], "high": most, "proved": True}
    return {**line, "label": f"{score.card.name}, at most", "dash": [2, 3], **ends}


def cards(models: Sequence[EntryCard]) -> Html:
    """A card per model, by name."""
    made = [
        element(
            "article",
            element("h3", element("a", card.name, href=f"models/{card.slug}.html")),
            pairs(card.told),
            addresses(card),
            class_="card",
        )
        for card in sorted(models, key=lambda card: card.name.lower())
    ]
    return element("div", *made, class_="cards")


def addresses(card: EntryCard) -> Html:
    """Where more is told of a model; its card was refused if these were no addresses of pages."""
    made = [element("a", name, href=url, rel="noopener noreferrer") for name, url in card.links.items()]
    return element("p", *(part for link in made for part in (link, " ")), class_="links") if made else Html("")
