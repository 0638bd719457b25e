"""Verify a leaderboard: rebuild every point, ask every model again, and compare cards, weights and rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sigmazero.bench import verify as recheck
from sigmazero.bench.loader import ABSENT, Loader, UntrustedCode
from sigmazero.board.folder import POINTS, BoardError, Leaderboard
from sigmazero.board.points import CLEAN, Placement, placements
from sigmazero.board.prove import claims, unproved
from sigmazero.report.intervals import wilson
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
        try:
            _verify_entry(board, slug, loader, done, again)
        except (*ABSENT, UntrustedCode, LookupError) as error:
            done.skipped.append(f"entries/{slug} cannot be checked here: {error}")
        except (ValueError, StoreError) as error:
            done.wrong.append(f"entries/{slug}: {error}")
    return done


def _verify_entry(board: Leaderboard, slug: str, loader: Loader, done: BoardVerdict, again: float | None) -> None:
    file = f"entries/{slug}"
    if board.card(slug).sha256 is None:
        raise BoardError("card.toml has no sha256; add the model again")
    places = placements(board, slug, loader)
    own = Loader(loader.device)  # it is given all it needs, and trusts nothing else that the store names
    with Store(board.entry(slug) / POINTS) as store:
        for place in places:
            own.give_model(place.card.spec, place.network)
            own.give_rows(place.rules.spec(place.name), place.rows)
        origins = {place.name: place.origin() for place in places}
        if other := sorted({info.attack for info in store.cells() if info.origin != origins.get(info.dataset)}):
            raise BoardError(f"{POINTS} says of {', '.join(other)} that the model or the rows are not the card's")
        verdict = recheck.verify(store, own)
        done.points += verdict.found
        done.unchecked += 0 if again is not None else claims(store)
        done.wrong += [f"{file}/{POINTS}: {each}" for each in verdict.disagreements]
        done.skipped += [f"{file}/{POINTS}: {each}" for each in verdict.skipped]
        for place in places if not verdict.disagreements else ():
            done.wrong += [f"{file}: {what}" for what in _broken_rules(place, store)]
            if again is not None:
                done.skipped += [f"{file}: {what}" for what in unproved(place, again)]


def _broken_rules(place: Placement, store: Store) -> Iterator[str]:
    """Yield what breaks the rules of the board, though every point holds."""
    card = place.card
    runs, best = place.known(store)
    for info in (run.info for run in runs):
        by, tool, turn = (info.parameters[key] for key in ("by", "tool", "turn"))
        if place.describe(by, tool, turn).key != info.key:
            yield f"{POINTS} has points by {by or CLEAN!r} that are about another model, board or space"
    right, rows = int((best.changes > 0).sum()), len(best.rows)
    if card.accuracy is not None and card.accuracy / 100 > wilson(right, rows, level=0.999)[1]:
        yield f"card.toml says {card.accuracy:g} % accuracy; on board {place.name} {right} of {rows} are right"
