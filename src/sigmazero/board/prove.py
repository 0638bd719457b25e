"""Prove lower bounds on a leaderboard: changes that a sample needs, so that its row becomes an interval.

A point can be replayed, and a proof can be made again. Bounds are proved here, or taken over from a store of proofs;
those are marked as not checked until they are proved here too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sigmazero.bench.loader import Loader
from sigmazero.bench.proofs import METHOD, OVER_REALS, VERSION, proof_key, recalled
from sigmazero.board.folder import POINTS, BoardError, Leaderboard
from sigmazero.board.points import Placement, placements
from sigmazero.certifier.certify import certify
from sigmazero.report.pages.leaderboard import UNCHECKED
from sigmazero.report.runs import Best
from sigmazero.store.proofs import Proof, ProofKey, row_digests
from sigmazero.store.store import Store


@dataclass(frozen=True)
class RaisedBounds:
    """The outcome of proving on one board: the rows whose bound rose, and how many of all are known exactly now."""

    board: str
    rows: list[int]
    exact: int
    of: int


def prove(
    board: Leaderboard,
    entry: str,
    loader: Loader,
    *,
    up_to: int = 1,
    time_limit: float | None = None,
    source: Path | None = None,
) -> list[RaisedBounds]:
    """Prove of each sample of an entry that it needs more than `up_to` changes, and store what is proved.

    time_limit  seconds for one sample
    source      a store with proofs (`sigmazero certify --store`): its bounds are taken over and marked as not checked
    """
    with board.changing():
        places = placements(board, board.find(entry), loader)
        return [_prove(place, up_to, time_limit, source) for place in places]


def _prove(place: Placement, up_to: int, time_limit: float | None, source: Path | None) -> RaisedBounds:
    rows, folder = place.rows, place.board.entry(place.slug)
    if place.allowed.space is not None:
        raise BoardError(f"board {place.name}: what may change there is no box, and nothing is proved in other spaces")
    digests = row_digests(rows.images, rows.labels)
    with Store(folder / POINTS) as store:
        own, before, stored = _known(store, place)
    checked = {row: one.least for row, one in stored.items() if not one.method.endswith(UNCHECKED)}
    bound = np.maximum([checked.get(row, 0) for row in digests], before.changes > 0)
    if source is not None:
        key = proof_key(place.network, place.rules.unit, place.allowed, rows, place.card.spec_in(folder))
        made = {
            digests[at]: replace(proof, method=f"{proof.method}, {UNCHECKED}")
            for at, proof in enumerate(recalled(source, key, rows, place.network))
            if proof is not None and proof.least > bound[at] and before.changes[at] > 0
        }
    else:  # of what is neither exact nor proved
        left = np.flatnonzero((before.changes > bound) & (bound <= up_to)).tolist()
        made = {digests[at]: proof for at, proof in _certified(place, left, up_to, time_limit).items()}
    with place.board.rewriting(place.slug) as part, Store(part / POINTS, write=True) as store:
        store.keep_digests(rows.content_hash, digests)
        store.prove(own, made)
        _, after, _ = _known(store, place)
    raised = rows.ids.numpy()[after.lower > before.lower].tolist()
    return RaisedBounds(place.name, raised, int((after.lower == after.changes).sum()), len(rows))


def _known(store: Store, place: Placement) -> tuple[ProofKey, Best, dict[str, Proof]]:
    """Return what proofs of an entry are about, the best of each sample, and the proofs by the rows' digests."""
    runs, best = place.known(store)
    key = ProofKey.of_cell(runs[0].info)
    assert key is not None  # cells of a board have an identity
    return key, best, store.proofs(key)


def _certified(place: Placement, at: list[int], up_to: int, time_limit: float | None) -> dict[int, Proof]:
    """Prove what can be proved of some rows, by their places; points are known already, so no attack goes first."""
    if not at:
        return {}
    images, labels = place.on_device(place.rows.select(at))
    how = {"unit": place.rules.unit, "up_to": up_to, "time_limit": time_limit}
    found = certify(place.network, images, labels, attack=None, **how)  # type: ignore[arg-type]
    methods = [OVER_REALS if reals else METHOD for reals in found.over_reals.tolist()]
    proofs = [Proof(least, method, VERSION) for least, method in zip(found.lower.tolist(), methods, strict=True)]
    return dict(zip(at, proofs, strict=True))


def claims(store: Store) -> int:
    """Return how many bounds of an entry were taken over and not proved here."""
    proofs = [proof for key in store.proof_keys() for proof in store.proofs(key).values()]
    return sum(proof.least > 1 and proof.method.endswith(UNCHECKED) for proof in proofs)


def unproved(place: Placement, seconds: float) -> Iterator[str]:
    """Prove every bound of an entry on a board again; yield a line for each that does not come out in time."""
    with Store(place.board.entry(place.slug) / POINTS) as store:
        stored = _known(store, place)[2]
    digests = row_digests(place.rows.images, place.rows.labels)
    proofs = {at: stored[row] for at, row in enumerate(digests) if row in stored}
    for bound in sorted({proof.least for proof in proofs.values() if proof.least > 1}):
        at = [each for each, proof in proofs.items() if proof.least == bound]
        for each, again in _certified(place, at, bound - 1, seconds).items():
            weaker = again.method == OVER_REALS and not proofs[each].method.startswith(OVER_REALS)
            if again.least < bound or weaker:
                short = f"that {bound} changes are needed did not come out again in {seconds:g} s"
                yield f"board {place.name}, row {int(place.rows.ids[each])}: {short}"
