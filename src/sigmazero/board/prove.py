"""Proved lower bounds on a leaderboard: what nobody can lower, so that a row is an interval.

A point is believed because it can be replayed; a proof, because it can be made again. So bounds come from proving them
here, or from a store of proofs that whoever keeps the board has reason to believe, and `verify` can make them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import ModelSpec
from sigmazero.bench.proofs import METHOD, VERSION, proof_key, recall_proofs
from sigmazero.board.card import ModelCard
from sigmazero.board.entry import cells_on, held, load_network, lower_bounds
from sigmazero.board.folder import POINTS, BoardError, Leaderboard
from sigmazero.certifier.certify import certify
from sigmazero.data import Rows
from sigmazero.store.facts import Integers
from sigmazero.store.proofs import Proof, ProofKey, row_digests
from sigmazero.store.store import Store


@dataclass(frozen=True)
class RaisedBounds:
    """What proving did on one board: the rows whose bound rose, and how many are known exactly now, of how many."""

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
    """Prove of each sample of an entry that it needs more than so many changes, and keep what is proved.

    time_limit  seconds for one sample
    source      a store with proofs (`sigmazero certify --store`): what it has is believed, and not proved here
    """
    with board.changing():
        slug = board.find(entry)
        board.refuse_broken(slug)
        card = board.card(slug)
        network = load_network(card, board.entry(slug), loader)
        how = {"up_to": up_to, "time_limit": time_limit}
        return [_prove(board, slug, name, network, loader, source, how) for name in card.boards]


def _prove(
    board: Leaderboard,
    slug: str,
    name: str,
    network: nn.Module,
    loader: Loader,
    source: Path | None,
    how: dict[str, Any],
) -> RaisedBounds:
    card, rules, rows, allowed = (
        board.card(slug),
        board.boards[name],
        board.rows(name, loader),
        board.allowed(name, loader),
    )
    if allowed.space is not None:
        raise BoardError(f"board {name}: what may change there is no box, and nothing is proved in other spaces yet")
    with Store(board.entry(slug) / POINTS) as store:
        best = held(store, rules).changes
        own = _own_key(store, board, name)
    before = lower_bounds(card, board.entry(slug), rules, rows.ids.numpy(), best == 0)
    given = np.zeros(len(rows), np.int64)
    if source is not None:
        key = proof_key(network, rules.unit, allowed, rows, _spec(card, board.entry(slug)))
        given = recall_proofs(source, key, rows, network)
    # What nobody can improve, and what is proved beyond what is asked for, is not tried.
    left = np.flatnonzero((best > np.maximum(before, given)) & (np.maximum(before, given) <= how["up_to"]))
    proved = given.copy()
    if len(left):
        proved[left] = np.maximum(given[left], _certified(network, rows.select(left.tolist()), rules.unit, loader, how))
    digests = row_digests(rows.images, rows.labels)
    made = {digests[at]: Proof(int(proved[at]), METHOD, VERSION) for at in np.flatnonzero((proved > 0) & (best > 0))}
    with board.points(slug) as store:
        store.keep_digests(rows.content_hash, digests)
        store.prove(own, made)
    after = lower_bounds(card, board.entry(slug), rules, rows.ids.numpy(), best == 0)
    return RaisedBounds(name, rows.ids.numpy()[after > before].tolist(), int((after == best).sum()), len(rows))


def _spec(card: ModelCard, folder: Path) -> ModelSpec:
    """The model as a user would load it from the entry's folder: its code is known by its content, not by its place."""
    place = card.model if card.code_file is None else f"{folder / card.model}"
    return ModelSpec(card.name, place, card.weights, card.normalize)


def _own_key(store: Store, board: Leaderboard, name: str) -> ProofKey:
    key = ProofKey.of_cell(cells_on(store, board.boards[name])[0])
    assert key is not None  # cells of a board have an identity
    return key


def _certified(network: nn.Module, rows: Rows, unit: Any, loader: Loader, how: dict[str, Any]) -> Integers:
    """What can be proved of rows; points are known already, so no attack goes before."""
    images, labels = rows.images.to(loader.device), rows.labels.to(loader.device)
    found: Integers = certify(network, images, labels, unit=unit, attack=None, **how).lower.cpu().numpy()
    return found


def unproved(
    board: Leaderboard, slug: str, name: str, network: nn.Module, loader: Loader, seconds: float
) -> Iterator[str]:
    """Prove every bound of an entry on a board again; a line for each that does not come out in so many seconds."""
    rules, rows = board.boards[name], board.rows(name, loader)
    with Store(board.entry(slug) / POINTS) as store:
        least = store.proved(cells_on(store, rules)[0].key)
    for bound in sorted(set() if least is None else {int(each) for each in least if each > 1}):
        places = np.flatnonzero(least == bound)
        how = {"up_to": bound - 1, "time_limit": seconds}
        again = _certified(network, rows.select(torch.from_numpy(places).tolist()), rules.unit, loader, how)
        for place in places[again < bound]:
            short = f"that {bound} changes are needed did not come out again in {seconds:g} s"
            yield f"board {name}, row {int(rows.ids[place])}: {short}"
