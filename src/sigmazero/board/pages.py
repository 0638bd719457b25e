"""Write the pages of a leaderboard from its folder: no model is loaded, no code runs, and inputs are for pictures."""

from contextlib import ExitStack
from pathlib import Path

from sigmazero.bench.loader import Loader
from sigmazero.board.folder import POINTS, Leaderboard
from sigmazero.models import find
from sigmazero.report.pages.leaderboard import Board, Card, Source, boards, write_site
from sigmazero.store.store import Store

LEAD = (
    "Robust accuracy: the share of samples that stay correct although some input values change. Every point behind "
    "these numbers can be replayed. Anyone may lower a number by sending points; it cannot be raised."
)


def write_board(board: Leaderboard, path: Path, loader: Loader | None = None) -> int:
    """Write the pages and return the number of models on them; pictures are left out where there are no inputs."""
    with ExitStack() as opened:
        return write_site(path, board.title, LEAD, read_boards(board, opened, loader or Loader("cpu")))


def read_boards(board: Leaderboard, opened: ExitStack, loader: Loader) -> list[Board]:
    """Return every board with its models, in the order of board.toml, a board per track.

    Stores stay open as long as `opened`.
    """

    def source(slug: str) -> Source:
        card = board.card(slug)
        shown = Card({**zoo_card(card.model), **card.about}, card.links)
        store = opened.enter_context(Store(board.entry(slug) / POINTS))
        return Source(store, lambda _: shown, lambda info: board.rows(info.dataset, loader))

    sources = [source(slug) for slug in board.slugs]
    made = boards(sources, lambda name: board.boards[name].ks) if sources else []
    return sorted(made, key=lambda each: [*board.boards].index(each.info.dataset))


def zoo_card(model: str) -> dict[str, str]:
    """Return what the zoo knows of a model; empty for a user's own model, which may have the same name."""
    entry = find(model)
    if entry is None:
        return {}
    known = {
        "model": entry.title,
        "architecture": entry.architecture,
        "parameters": f"{entry.parameters:,}" if entry.parameters else "",
        "trained on": entry.dataset,
        "trained against": entry.threat_model,
        "RobustBench": entry.robustbench or "",
        "published at": entry.source,
        "note": entry.note,
    }
    return {name: text for name, text in known.items() if text}
