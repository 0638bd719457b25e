"""The first page: a board per kind of question, and a card per model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from sigmazero.report.formats import count
from sigmazero.report.site.old import htmltables as tables
from sigmazero.report.site.old.htmltables import HtmlCell, HtmlTable
from sigmazero.report.site.old.shell import Html, document, element, join
from sigmazero.report.site.old.text import number
from sigmazero.report.site.ranking import FIRST, Best, Board, Criterion, ModelId, Standing

Card = Mapping[str, str]
LEAD = (
    "How many input values must change before each model is wrong. A sample counts as fooled if any of the attacks "
    "fooled it, and every stored success was verified, so robust accuracy and median are upper bounds: a better attack "
    "can only lower them. Columns called alone are about the single strongest attack."
)


def own(name: str) -> str:
    """The text of a file of the site."""
    return files("sigmazero.report.site").joinpath(name).read_text(encoding="utf-8")


def page(title: str, boards: Sequence[Board], cards: Mapping[ModelId, Card], ks: Sequence[float]) -> str:
    """The page with every board and every model."""
    links = [element("a", heading(board), href=f"#{board.name}") for board in boards]
    nav = element("nav", *links, element("a", "Models", href="#models"), aria_label="Boards")
    orders = {board.name: order_data(board, criteria(ks)) for board in boards}
    body = [
        element("h1", title),
        element("p", LEAD, class_="lead"),
        *(section(board, ks) for board in boards),
        element(
            "section", element("h2", "Models"), element("div", *_cards(boards, cards), class_="cards"), id="models"
        ),
    ]
    return document(
        title, join(body), data={"orders": orders}, scripts=[own("site.js")], styles=[own("site.css")], nav=nav
    )


def heading(board: Board) -> str:
    """What a board is about, in a few words."""
    goal = board.settings["goal"]
    return board.settings["data"] + ("" if goal == "untargeted" else f", {goal}")


def criteria(ks: Sequence[float]) -> list[Criterion]:
    """What a board can be ranked by, the usual one first."""
    first = FIRST if FIRST in ks else ks[0]
    return [first, *(k for k in ks if k != first), None]


def word(criterion: Criterion) -> str:
    """What a criterion is called."""
    return "median l0" if criterion is None else f"robust accuracy at k = {number(criterion)}"


def order_data(board: Board, asked: Sequence[Criterion]) -> list[list[tuple[int, int | None]]]:
    """For each criterion, the place of every row in the table as written, from first to last, and its rank."""
    written = {standing.model: place for place, (_, standing) in enumerate(board.ranked(asked[0]))}
    return [[(written[standing.model], rank) for rank, standing in board.ranked(one)] for one in asked]


def section(board: Board, ks: Sequence[float]) -> Html:
    """A board: what it asks, the choice of order, the table, and what to beware of."""
    asked, unit = criteria(ks), board.settings["unit"]
    told = {
        "rows": f"{board.rows:,}",
        "unit": unit,
        "goal": board.settings["goal"],
        "search in": board.settings["precision"],
        "rows' hash": board.settings["rows"][:12],
        **({"space": board.settings["space"]} if "space" in board.settings else {}),
    }
    options = [element("option", word(one), value=str(place)) for place, one in enumerate(asked)]
    choice = element(
        "p",
        element("label", "Rank by ", for_=f"{board.name}-by"),
        element("select", *options, id=f"{board.name}-by", data_board=board.name),
        class_="choice",
        hidden=True,
    )
    return element(
        "section",
        element("h2", heading(board)),
        element("p", ", ".join(f"{name} {value}" for name, value in told.items()), class_="muted"),
        choice,
        tables.render(table(board, ks)),
        *notes(board),
        id=board.name,
    )


def table(board: Board, ks: Sequence[float]) -> HtmlTable:
    """The board in numbers."""
    first = criteria(ks)[0]
    assert first is not None
    robust = {f"k = {number(k)}": f"Share that no attack fooled with at most {number(k)} changes, in %." for k in ks}
    told = {
        "clean": "Share classified right without any change, in %.",
        **robust,
        "median l0": "Median of the fewest changes that any attack found; ∞ where none did.",
        f"alone k = {number(first)}": f"Robust at {number(first)} against the single attack that leaves the least.",
        "alone median": "The lowest median that a single attack reaches.",
        "rows": "Samples that met all of the model's attacks.",
        "runs": "Attacks with their settings, against the model; * where others met more.",
    }
    rows = [
        [
            HtmlCell(_linked(rank, standing), None if rank is None else float(rank)),
            _share(standing.clean),
            *(_share(standing.robust(k)) for k in ks),
            _count(standing.median),
            _best(standing.alone(first), share=True),
            _best(standing.alone(None), share=False),
            HtmlCell(f"{len(standing.l0)}" + ("" if standing.complete else f" of {standing.rows}"), len(standing.l0)),
            HtmlCell(f"{len(standing.cells)}" + ("*" if standing.lacks else ""), len(standing.cells)),
        ]
        for rank, standing in board.ranked(first)
    ]
    what = f"in % what no attack fooled with at most k {board.settings['unit']}s changed"
    caption = f"{heading(board)}: {count(len(rows), 'model')}; {what}"
    return HtmlTable(f"{board.name}-table", caption, ["model", *told], rows, notes=told)


def _linked(rank: int | None, standing: Standing) -> Html:
    place = element("span", "–" if rank is None else f"{rank}", class_="rank")
    link = element("a", standing.model.name, href=f"models/{standing.model.slug}.html")
    return element("span", place, " ", link, class_="place")


def _share(value: float | None) -> HtmlCell:
    return HtmlCell("–" if value is None else f"{100 * value:.1f}", value)


def _count(value: float | None) -> HtmlCell:
    return HtmlCell(number(value, 1), value)


def _best(best: Best, *, share: bool) -> HtmlCell:
    shown = (_share if share else _count)(best.value)
    small = element("small", best.attack) if best.attack else ""
    return HtmlCell(join([shown.text, small]), best.value)


def notes(board: Board) -> list[Html]:
    """Notes on models whose figures compare less well than they seem to."""
    made = []
    for standing in board.standings:
        if not standing.complete:
            met = f"{len(standing.l0)} of {standing.rows} rows met all of its attacks"
            text = f" is not finished: {met}, so it has no rank."
            made.append(element("p", element("strong", standing.model.name), text, class_="note"))
        elif standing.lacks:
            missing = ", ".join(dict.fromkeys(attack for attack, _, _ in standing.lacks))
            text = f"* did not meet all attacks that others did, and may look better for it. Other runs: {missing}."
            made.append(element("p", element("strong", standing.model.name), text, class_="note"))
    return made


def _cards(boards: Sequence[Board], cards: Mapping[ModelId, Card]) -> list[Html]:
    models = sorted({standing.model for board in boards for standing in board.standings})
    return [
        element(
            "article",
            element("h3", element("a", model.name, href=f"models/{model.slug}.html")),
            pairs(cards[model]),
            class_="card",
        )
        for model in models
    ]


def pairs(told: Card) -> Html:
    """Names and what they stand for."""
    rows = [element("div", element("dt", name), element("dd", value)) for name, value in told.items()]
    return element("dl", *rows, class_="pairs")
