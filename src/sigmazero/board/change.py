"""What changes a leaderboard: a model is added, or somebody's points lower some of its samples."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero.auto import SparseAutoAttack
from sigmazero.bench.constraints import Allowed, keep
from sigmazero.bench.identity import hash_file
from sigmazero.bench.loader import Loader
from sigmazero.bench.provenance import provenance
from sigmazero.board.card import ModelCard, read_card
from sigmazero.board.entry import CLEAN, cells_on, describe, held, load_network, lower_bounds, on_device
from sigmazero.board.folder import CARD, POINTS, BoardError, BoardRules, Leaderboard, slug_of
from sigmazero.board.points import Claim, about_models, claims, said_of
from sigmazero.core.findings import CODES, Finding, gating
from sigmazero.core.model import ability_of
from sigmazero.core.result import Outcome, Result
from sigmazero.data import Rows
from sigmazero.models import find
from sigmazero.models.doctor import examine
from sigmazero.report.site.old.measure import changes
from sigmazero.run.check import check
from sigmazero.store.facts import Facts, Floats
from sigmazero.store.store import Store

RANDOM = "SZ003"  # such a model answers otherwise when asked again: nothing can be replayed


@dataclass(frozen=True)
class Change:
    """What a submission did on one board: the numbers of the rows that it lowered, and how many points do not hold."""

    board: str
    lowered: list[int]
    refused: int
    offered: int


def add(
    board: Leaderboard,
    card: Path,
    loader: Loader,
    *,
    by: str,
    stores: Sequence[Path] = (),
    version: str | None = "standard",
    allow: Collection[str] = (),
    batch_size: int = 250,
) -> list[Change]:
    """Add a model by its card, with the points of these stores and of the cascade of that version (None for none).

    A model that is there already keeps its points and gets this card, if the weights are the same. A finding of
    severity error, of the doctor, the cascade or the stores, is refused, unless `allow` has its code; the page shows it
    then. Nothing is written before that is known.
    """
    made, slug = read_card(card), slug_of(read_card(card).name)
    for name in made.boards:
        if name not in board.boards:
            raise BoardError(f"{card}: there is no board {name!r}; there are {', '.join(board.boards) or 'none'}")
    with board.changing():
        network = load_network(made, card.parent, loader)
        old = board.entry(slug)
        if (old / CARD).exists() and board.card(slug).sha256 != made.sha256:
            raise BoardError(f"{old / CARD} is another model of that name, with other weights; choose another name")
        findings = {name: _examined(board, name, made, network, loader) for name in made.boards}
        told = [each for path in stores for each in said_of(path, made.sha256)]
        _refuse([*told, *(each for found in findings.values() for each in found)], allow)
        attacked = {name: _cascade(board, name, network, loader, version, batch_size) for name in made.boards}
        _refuse([each for _, found in attacked.values() for each in found], allow)
        if (old / POINTS).exists():
            board.refuse_broken(slug, POINTS)
        _place(board, card, made, slug)
        with board.points(slug) as store:
            run = store.begin(provenance(loader.device))
            for name, found in findings.items():
                every = list({each.code: each for each in (*attacked[name][1], *told, *found)}.values())
                _begin(store, made, board.boards[name], board.rows(name, loader), network, loader, every, run)
        done = [each for path in stores for each in _submit(board, path, loader, by, None, made.name)]
        for name, (points, _) in attacked.items() if version is not None else ():
            done.append(_merge(board, slug, made, name, network, loader, by, points))
        return done


def submit(
    board: Leaderboard, path: Path, loader: Loader, *, by: str, tool: str | None = None, entry: str | None = None
) -> list[Change]:
    """Merge the points of a store, or of an .npz file, that fool a model with fewer changes than the best that is held.

    Which model a store is about is told by the hash of its weights; `entry` names one, whatever the points were found
    on. Every point is replayed. A sample that is not lowered stays as it is.
    """
    if not by.strip():
        raise BoardError("by is empty; say who found the points, since each sample keeps the name")
    with board.changing():
        return _submit(board, path, loader, by, tool, entry)


def _submit(
    board: Leaderboard, path: Path, loader: Loader, by: str, tool: str | None, entry: str | None
) -> list[Change]:
    slugs = [board.find(entry)] if entry is not None else _meant(board, path)
    done = []
    for slug in slugs:
        board.refuse_broken(slug)
        card = board.card(slug)
        network = load_network(card, board.entry(slug), loader)
        for name in card.boards:
            rows = board.rows(name, loader)
            try:
                found = list(claims(path, rows, None if entry is not None else card.sha256))
            except BoardError:
                if len(card.boards) == 1:
                    raise
                continue  # arrays of another board's shape
            said = [replace(claim, tool=tool) for claim in found] if tool is not None else found
            done.append(_merge(board, slug, card, name, network, loader, by, said))
    return done


def _cascade(
    board: Leaderboard, name: str, network: nn.Module, loader: Loader, version: str | None, batch_size: int
) -> tuple[list[Claim], list[Finding]]:
    """What SparseAutoAttack finds, by the names of its members, and what makes its figures doubtful."""
    if version is None:
        return [], []
    rows, rules, allowed = board.rows(name, loader), board.boards[name], board.allowed(name, loader)
    how = {"bounds": allowed.bounds, "space": allowed.space, "unit": rules.unit, "device": loader.device}
    adversary = SparseAutoAttack(network, "L0", None, version=version, verbose=False, **how)  # type: ignore[arg-type]
    images, labels = on_device(rows, loader)
    found = adversary.run(images, labels, batch_size=batch_size, ids=rows.ids, findings=[])  # the doctor was asked
    points, names = found.best.x_adv, found.found_by
    said = f"SparseAutoAttack {found.cascade}"
    claims = [
        Claim(f"{member} ({said})", places, points[torch.from_numpy(places)])
        for member in dict.fromkeys(name for name in names if name)
        for places in [np.array([place for place, name in enumerate(names) if name == member], np.int64)]
    ]
    return claims, list(found.findings)


def _examined(board: Leaderboard, name: str, card: ModelCard, network: nn.Module, loader: Loader) -> list[Finding]:
    """Return what the doctor finds; a model with random answers is refused."""
    images, labels = on_device(board.rows(name, loader), loader)
    allowed, entry = board.allowed(name, loader), find(card.model)
    known = None if entry is None else entry.clean_accuracy or entry.implied_accuracy
    claimed = known if card.accuracy is None else card.accuracy
    found = examine(network, images, labels, bounds=allowed.bounds, space=allowed.space, claimed=claimed)
    if any(each.code == RANDOM for each in found):
        raise BoardError(f"{RANDOM}: the model answers differently when asked twice, so its points cannot be replayed")
    return found


def _refuse(findings: Iterable[Finding], allow: Collection[str]) -> None:
    for each in gating(findings, allow):
        raise BoardError(f"{each.code}: {each.title}; {each.detail}; {each.fix}; or allow {each.code} and say so")


def _place(board: Leaderboard, card: Path, made: ModelCard, slug: str) -> None:
    """Copy the card and the files it names into the entry's folder, and seal them."""
    folder = board.entry(slug)
    folder.mkdir(parents=True, exist_ok=True)
    for file in [card, *(card.parent / name for name in made.files)]:
        name = CARD if file == card else file.name
        part = folder / f".{name}.{os.getpid()}.part"
        shutil.copyfile(file, part)
        os.replace(part, folder / name)
    names = [CARD, *made.files]
    sealed = {f"entries/{slug}/{name}": [hash_file(folder / name)] for name in names}
    points = f"entries/{slug}/{POINTS}"
    old = {points: board.seals[points]} if points in board.seals else {}
    board.seal({**sealed, **old}, gone=f"entries/{slug}/")


def _begin(
    store: Store,
    card: ModelCard,
    rules: BoardRules,
    rows: Rows,
    network: nn.Module,
    loader: Loader,
    findings: list[Finding],
    run: int,
) -> None:
    """Keep what the model says of the rows as they are, once, and what the doctor said of it now."""
    allowed = Allowed().on(rows)
    info = describe(card, rules, rows, allowed, ability_of(network), "", CLEAN, 0)
    older = [replace(each, origin=info.origin, provenance={}) for each in cells_on(store, rules)]
    store.register([info, *(each for each in older if each.key != info.key)])  # a new card may build it otherwise
    keep(store, allowed)
    if not store.stored(info.key).any():
        result = replayed(network, rows, rules, allowed, rows.images, loader)
        store.append(info.key, 0, _facts(result, rows, np.arange(len(rows))), run=run)
    store.diagnose(info.key, [{**asdict(found), "about": CODES[found.code]} for found in findings])


def replayed(
    network: nn.Module, rows: Rows, rules: BoardRules, allowed: Allowed, points: Tensor, loader: Loader
) -> Result:
    """Ask the model about points for all these rows, in strict fp32 and in the numbers of this process."""
    images, labels = on_device(rows, loader)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*points leave")  # they are counted as refused
        how = {"bounds": allowed.bounds, "space": allowed.space, "unit": rules.unit, "ids": rows.ids}
        return check(network, images, labels, points.to(images), **how)  # type: ignore[arg-type]


def _facts(result: Result, rows: Rows, places: NDArray[np.int64]) -> Facts:
    part = rows.select(torch.from_numpy(places))
    allowed = Allowed().on(rows)
    priced = allowed.pose(part.images, part.labels).domain.priced
    return Facts.from_result(result, part.labels, None, part.images.to(result.x_adv.device), priced=priced)


def _merge(
    board: Leaderboard,
    slug: str,
    card: ModelCard,
    name: str,
    network: nn.Module,
    loader: Loader,
    by: str,
    found: Iterable[Claim],
) -> Change:
    """Replay claims on a board and keep those points that lower a sample: of each tool a cell."""
    rows, rules, allowed = board.rows(name, loader), board.boards[name], board.allowed(name, loader)
    with Store(board.entry(slug) / POINTS) as store:
        now = held(store, rules)
    best, refused, offered = now.changes.copy(), 0, 0
    winner = np.full(len(rows), -1)
    asked: list[tuple[str, NDArray[np.int64], Facts]] = []
    for number, claim in enumerate(found):
        places = claim.places
        result = replayed(network, rows.select(torch.from_numpy(places)), rules, allowed, claim.points, loader)
        facts, right = _facts(result, rows, places), best[places] > 0  # what is wrong as it is needs no point
        holds = facts.outcome == Outcome.FOUND
        offered, refused = offered + int(right.sum()), refused + int((right & ~holds).sum())
        counted = changes(facts, rules.unit)
        better = holds & (counted < best[places])
        best[places[better]], winner[places[better]] = counted[better], number
        asked.append((claim.tool, places, facts))
    _refuse_below(card, board.entry(slug), rules, rows, now.changes, best)
    lowered: dict[str, list[tuple[NDArray[np.int64], Facts]]] = {}
    for number, (tool, places, facts) in enumerate(asked):
        mine = winner[places] == number
        if mine.any():
            lowered.setdefault(tool, []).append((places[mine], facts.take(mine)))
    if lowered:
        turn = 1 + max(int(info.parameters["turn"]) for info in now.cells)
        with board.points(slug) as store:
            run = store.begin(provenance(loader.device))
            for tool, parts in lowered.items():
                places = np.concatenate([each for each, _ in parts])
                facts, order = Facts.join([each for _, each in parts]), np.argsort(places)
                info = describe(card, rules, rows, allowed, ability_of(network), by, tool, turn)
                store.register([info])
                store.append(info.key, places[order], facts.take(order), run=run)
    return Change(name, rows.ids.numpy()[winner >= 0].tolist(), refused, offered)


def _refuse_below(card: ModelCard, folder: Path, rules: BoardRules, rows: Rows, before: Floats, best: Floats) -> None:
    """A point below a certified bound shows that one of both is wrong: people decide which."""
    lower = lower_bounds(card, folder, rules, rows.ids.numpy(), before == 0)
    for place in np.flatnonzero((best < before) & (best < lower)):
        raise BoardError(
            f"{card.name}, board {rules.name}: row {int(rows.ids[place])} is fooled by {best[place]:g} changes, and "
            f"{lower[place]:g} are certified to be needed; one of both is wrong: settle it first (docs/leaderboard.md)"
        )


def _meant(board: Leaderboard, path: Path) -> list[str]:
    """The entries that a store is about."""
    hashes = about_models(path)
    found = [slug for slug in board.slugs if board.card(slug).sha256 in hashes]
    if not found:
        names = ", ".join(board.card(slug).name for slug in board.slugs) or "none"
        raise BoardError(f"{path} does not say which model it is about; name one of {names}")
    return found
