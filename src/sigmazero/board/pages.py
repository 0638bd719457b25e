"""The site of a leaderboard, from its folder alone: no model and no data is loaded, and no code runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from sigmazero.board.card import ModelCard
from sigmazero.board.entry import Held, held, lower_bounds
from sigmazero.board.folder import POINTS, BoardRules, Leaderboard
from sigmazero.core.model import ABILITIES
from sigmazero.models import find
from sigmazero.report.site import entry_page, score_page
from sigmazero.report.site.folder import place_site
from sigmazero.report.site.scores import MAIN, EntryCard, Score, ScoreBoard, boards_of
from sigmazero.store.facts import CellInfo
from sigmazero.store.proofs import Proof
from sigmazero.store.store import Store


def write_board(board: Leaderboard, path: Path) -> int:
    """Write the site and return the number of models on it; a leaderboard that was tampered with is refused."""
    for slug in board.slugs:
        board.refuse_broken(slug)
    boards = read_boards(board)
    models = {score.card.slug: score.card for each in boards for score in each.scores}
    pages = {"index.html": score_page.page(board.title, boards)}
    for slug, card in models.items():
        pages[f"models/{slug}.html"] = entry_page.page(card, boards)
    place_site(path, pages)
    return len(models)


def read_boards(board: Leaderboard) -> list[ScoreBoard]:
    """Every board with its models, a board per track."""
    found: dict[str, list[Score]] = {name: [] for name in board.boards}
    for slug in board.slugs:
        card = board.card(slug)
        with Store(board.entry(slug) / POINTS) as store:
            parts = {name: held(store, board.boards[name]) for name in card.boards}
            findings = store.findings()
            proofs = [proof for key in store.proof_keys() for proof in store.proofs(key).values()]
        told = {each["code"]: each for part in parts.values() for each in findings.get(part.cells[0].key, [])}
        by = {"certified by": ", ".join(methods)} if (methods := _methods(card, proofs)) else {}
        shown = EntryCard(card.name, slug, {**described(card), **by}, links(card), list(told.values()))
        for name, part in parts.items():
            found[name].append(_score(shown, card, board.entry(slug), board.boards[name], part))
    return [
        each
        for name, rules in board.boards.items()
        for each in boards_of(name, rules.data.source, rules.unit, rules.sha256, rules.ks, found[name])
    ]


def described(card: ModelCard) -> dict[str, str]:
    """What is known of a model: what the zoo says of a known one, then what its card says."""
    entry, known = find(card.model), {}
    if entry is not None:
        known = {
            "title": entry.title,
            "architecture": entry.architecture,
            "parameters": f"{entry.parameters:,}" if entry.parameters else "",
            "trained on": entry.dataset,
            "trained against": entry.threat_model,
            "note": entry.note,
        }
    said = {"built by": card.model, **({"weights file": card.weights} if card.weights else {})}
    told: Mapping[str, str] = {**known, **card.told, **said, "SHA-256": card.sha256}
    return {name: text for name, text in told.items() if text}


def _methods(card: ModelCard, proofs: Sequence[Proof]) -> list[str]:
    """What lower bounds were proved by: what the card says, and what the entry's store has."""
    said = [] if card.lower is None else [card.lower.method]
    return [*said, *sorted({f"sigmazero {proof.method} {proof.version}" for proof in proofs if proof.least > 1})]


def links(card: ModelCard) -> dict[str, str]:
    """Where more is told."""
    certified = {} if card.lower is None or card.lower.url is None else {"certificate": card.lower.url}
    return {**card.links, **certified}


def _score(shown: EntryCard, card: ModelCard, folder: Path, rules: BoardRules, best: Held) -> Score:
    found = np.isfinite(best.changes) & (best.changes > 0)
    whose = [info if hit else None for info, hit in zip(best.source, found, strict=True)]
    ability = best.cells[0].parameters.get("ability")
    return Score(
        shown,
        MAIN if ability == ABILITIES[0] else f"{ability}-only",
        best.facts.row,
        best.facts.label,
        best.changes,
        lower_bounds(card, folder, rules, best.facts.row, best.changes == 0),
        [str(info.parameters["by"]) if info else "" for info in whose],
        [str(info.parameters["tool"]) if info else "" for info in whose],
        [_date(info) if info else "" for info in whose],
        best.cells[0].about.get("classes"),
    )


def _date(info: CellInfo) -> str:
    """The day on which points came."""
    began = info.provenance.get("began", "")
    return str(began[0] if isinstance(began, list) and began else began)[:10]
