"""Verify a leaderboard: rebuild every point, ask every model again, and compare cards, weights and rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from sigmazero.bench import verify as recheck
from sigmazero.bench.loader import ABSENT, Loader, UntrustedCode
from sigmazero.board.card import ModelCard
from sigmazero.board.entry import CLEAN, describe, known, load_network, origin_of
from sigmazero.board.folder import POINTS, BoardError, Leaderboard
from sigmazero.board.prove import claims, unproved
from sigmazero.core.model import Ability, ability_of
from sigmazero.report.intervals import wilson
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store, StoreError


@dataclass
class BoardVerdict:
    """The outcome of a check: `wrong` and `skipped` are lines that name the file.

    points     points that were replayed
    unchecked  lower bounds whose proofs were taken over, and not made again
    """

    points: int = 0
    entries: int = 0
    unchecked: int = 0
    wrong: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def verify(board: Leaderboard, loader: Loader, again: float | None = None) -> BoardVerdict:
    """Check cards, weights, rows and every point of a leaderboard.

    Each point is replayed in strict fp32 and in the numbers of this process. A bound above a point is wrong. With
    `again`, every bound is also proved again, in that many seconds each; one that does not come out is skipped. So is
    an entry that cannot be loaded here, or whose code is not trusted.
    """
    done = BoardVerdict()
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
    if card.sha256 is None:
        raise BoardError("card.toml has no sha256; add the model again")
    network = load_network(card, board.entry(slug), loader)
    own = Loader(loader.device)  # it is given all it needs, and trusts nothing else that the store names
    own.give_model(card.spec, network)
    with Store(board.entry(slug) / POINTS) as store:
        for name in card.boards:
            if name not in board.boards:
                raise BoardError(f"card.toml names a board {name!r} that is not there")
            own.give_rows(board.boards[name].data, board.rows(name, loader))
        if other := sorted({info.attack for info in store.cells() if not _fits_card(board, card, info)}):
            raise BoardError(f"{POINTS} says of {', '.join(other)} that the model or the rows are not the card's")
        verdict = recheck.verify(store, own)
        done.points += verdict.found
        done.unchecked += 0 if again is not None else claims(store)
        done.wrong += [f"{place}/{POINTS}: {each}" for each in verdict.disagreements]
        done.skipped += [f"{place}/{POINTS}: {each}" for each in verdict.skipped]
        if not verdict.disagreements:
            for name in card.boards:
                broken = _broken_rules(board, card, name, store, loader, ability_of(network))
                done.wrong += [f"{place}: {what}" for what in broken]
                if again is not None:
                    done.skipped += [f"{place}: {what}" for what in unproved(board, slug, name, network, loader, again)]


def _fits_card(board: Leaderboard, card: ModelCard, info: CellInfo) -> bool:
    """Return whether a cell states the model and rows of the card and the rules."""
    rules = board.boards.get(info.dataset)
    return rules is not None and info.dataset in card.boards and info.origin == origin_of(card, rules)


def _broken_rules(
    board: Leaderboard, card: ModelCard, name: str, store: Store, loader: Loader, ability: Ability
) -> list[str]:
    """Return what breaks the rules of the board, though every point holds."""
    rules, rows, allowed = board.boards[name], board.rows(name, loader), board.allowed(name, loader)
    wrong: list[str] = []
    runs, best = known(store, rules)  # refuses points below what is proved
    for info in (run.info for run in runs):
        by, tool, turn = (info.parameters[key] for key in ("by", "tool", "turn"))
        if describe(card, rules, rows, allowed, ability, by, tool, turn).key != info.key:
            wrong.append(f"{POINTS} has points by {by or CLEAN!r} that are about another model, board or space")
    right = int((best.changes > 0).sum())
    if card.accuracy is not None and card.accuracy / 100 > wilson(right, len(rows), level=0.999)[1]:
        wrong.append(f"card.toml says {card.accuracy:g} % accuracy; on board {name} {right} of {len(rows)} are right")
    return wrong
