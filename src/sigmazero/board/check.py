"""Believe nothing of a leaderboard: compare every seal, rebuild every point, and ask every model again."""

from __future__ import annotations

from dataclasses import dataclass, field

from sigmazero.bench import verify as recheck
from sigmazero.bench.loader import ABSENT, Loader, UntrustedCode
from sigmazero.board.card import ModelCard
from sigmazero.board.entry import CLEAN, cells_on, describe, held, load_network, lower_bounds, origin_of
from sigmazero.board.folder import POINTS, BoardError, Leaderboard
from sigmazero.board.prove import unproved
from sigmazero.core.model import Ability, ability_of
from sigmazero.report.intervals import wilson
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store, StoreError


@dataclass
class BoardVerdict:
    """What a check found: `wrong` and `skipped` are lines that name the file; `points` counts what was replayed."""

    points: int = 0
    entries: int = 0
    wrong: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def verify(board: Leaderboard, loader: Loader, again: float | None = None) -> BoardVerdict:
    """Check seals, cards, weights, rows and every point of a leaderboard.

    Each point is asked about in strict fp32 and in the numbers of this process. What cannot be loaded here, or is code
    that is not trusted, is skipped and said. A proved bound above a point is wrong; with `again`, every bound is also
    proved again, in so many seconds each, and what does not come out is skipped and said.
    """
    done = BoardVerdict()
    try:
        done.wrong += list(board.broken())
    except BoardError as error:
        done.wrong.append(str(error))
    for slug in board.slugs:
        done.entries += 1
        place = f"entries/{slug}"
        try:
            _verify_entry(board, slug, loader, done, again)
        except (BoardError, StoreError) as error:
            done.wrong.append(f"{place}: {error}")
        except (*ABSENT, UntrustedCode, LookupError) as error:
            done.skipped.append(f"{place} cannot be checked here: {error}")
        except ValueError as error:
            done.wrong.append(f"{place}: {error}")
    return done


def _verify_entry(board: Leaderboard, slug: str, loader: Loader, done: BoardVerdict, again: float | None) -> None:
    card, place = board.card(slug), f"entries/{slug}"
    network = load_network(card, board.entry(slug), loader)
    own = Loader(loader.device)  # it is given all it needs, and trusts nothing else that the store names
    own.give_model(card.spec, network)
    with Store(board.entry(slug) / POINTS) as store:
        for name in card.boards:
            if name not in board.boards:
                raise BoardError(f"card.toml names a board {name!r} that is not there")
            own.give_rows(board.boards[name].data, board.rows(name, loader))
        if other := sorted({info.attack for info in store.cells() if not _built_so(board, card, info)}):
            raise BoardError(f"{POINTS} says of {', '.join(other)} that the model or the rows are not the card's")
        verdict = recheck.verify(store, own)
        done.points += verdict.found
        done.wrong += [f"{place}/{POINTS}: {each}" for each in verdict.disagreements]
        done.skipped += [f"{place}/{POINTS}: {each}" for each in verdict.skipped]
        if not verdict.disagreements:
            for name in card.boards:
                done.wrong += [
                    f"{place}: {what}" for what in _rules_kept(board, slug, name, store, loader, ability_of(network))
                ]
                if again is not None:
                    done.skipped += [f"{place}: {what}" for what in unproved(board, slug, name, network, loader, again)]


def _built_so(board: Leaderboard, card: ModelCard, info: CellInfo) -> bool:
    """Whether a cell says of model and rows what the card and the rules say."""
    rules = board.boards.get(info.dataset)
    return rules is not None and info.dataset in card.boards and info.origin == origin_of(card, rules)


def _rules_kept(board: Leaderboard, slug: str, name: str, store: Store, loader: Loader, ability: Ability) -> list[str]:
    """What of an entry is not as the rules of the board ask, though every point holds."""
    card, rules, rows = board.card(slug), board.boards[name], board.rows(name, loader)
    wrong: list[str] = []
    for info in cells_on(store, rules):
        told = info.parameters
        allowed = board.allowed(name, loader)
        due = describe(card, rules, rows, allowed, ability, told["by"], told["tool"], told["turn"])
        if due.key != info.key:
            wrong.append(f"{POINTS} has points by {told['by'] or CLEAN!r} that are about another model, board or space")
    best = held(store, rules)
    lower = lower_bounds(card, board.entry(slug), rules, rows.ids.numpy(), best.changes == 0)
    for place in (best.changes < lower).nonzero()[0]:
        bounds = f"{best.changes[place]:g} changes fool it, and {lower[place]:g} are certified to be needed"
        wrong.append(f"board {name}, row {int(rows.ids[place])}: {bounds}")
    right = int((best.changes > 0).sum())
    if card.accuracy is not None and card.accuracy / 100 > wilson(right, len(rows), level=0.999)[1]:
        wrong.append(f"card.toml says {card.accuracy:g} % accuracy; on board {name} {right} of {len(rows)} are right")
    return wrong
