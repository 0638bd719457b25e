"""Change a leaderboard: add a model, or lower some of its samples by submitted points."""

import shutil
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.auto import SparseAutoAttack
from sigmazero.bench.constraints import keep
from sigmazero.bench.identity import RANDOM, hash_weights
from sigmazero.bench.loader import Loader
from sigmazero.bench.provenance import provenance
from sigmazero.board.folder import CARD, POINTS, BoardError, Leaderboard, ModelCard, read_card
from sigmazero.board.points import CLEAN, Placement, Submission, load_network, placements, read_points
from sigmazero.core.findings import CODES, Finding, gating
from sigmazero.core.result import Outcome
from sigmazero.models.doctor import examine
from sigmazero.models.zoo import known_accuracy
from sigmazero.report import findings as report_findings
from sigmazero.report.pages.leaderboard import slug_of
from sigmazero.report.runs import Best, load
from sigmazero.run.check import check
from sigmazero.store.facts import Facts
from sigmazero.store.store import Store


@dataclass(frozen=True)
class Change:
    """The outcome of a submission on one board: the rows that it lowered, and how many points do not hold."""

    board: str
    lowered: list[int]
    refused: int
    offered: int


Lowered = list[tuple[str, NDArray[np.int64], Facts]]  # a tool, the places of the samples that it lowers, their facts


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
    then. The entry appears when all is done.
    """
    made = read_card(card)
    slug = slug_of(made.name)
    for name in made.boards:
        if name not in board.boards:
            raise BoardError(f"{card}: there is no board {name!r}; there are {', '.join(board.boards) or 'none'}")
    with board.changing():
        network = load_network(made, card.parent, loader)
        made = made.model_copy(update={"sha256": hash_weights(network)})
        if slug in board.slugs and board.card(slug).sha256 != made.sha256:
            raise BoardError(f"{board.entry(slug) / CARD} is another model of that name; choose another name")
        places = [Placement(board, slug, made, name, network, loader) for name in made.boards]
        findings = {place.name: _examine(place) for place in places}
        stored = [each for path in stores for each in _store_errors(path, str(made.sha256))]
        _refuse([*stored, *(each for found in findings.values() for each in found)], allow)
        attacked = {place.name: _cascade(place, version, batch_size) for place in places}
        _refuse([each for _, found in attacked.values() for each in found], allow)
        with board.rewriting(slug) as folder:
            _copy_card(card, made, folder)
            with Store(folder / POINTS, write=True) as store:
                run = store.begin(provenance(loader.device))
                for place in places:
                    _begin(store, place, run, [*findings[place.name], *attacked[place.name][1], *stored])
                offered = [pair for path in stores for pair in _offered(path, places, None)]
                offered += [(place, attacked[place.name][0]) for place in places if version is not None]
                done = []
                for place, points in offered:
                    change, lowered = _replay(place, place.known(store)[1], points)
                    _write(store, place, by, lowered)
                    done.append(change)
        return done


def submit(
    board: Leaderboard, path: Path, loader: Loader, *, by: str, tool: str | None = None, entry: str | None = None
) -> list[Change]:
    """Merge the points of a store, or of an .npz file, that fool a model with fewer changes than the best so far.

    The hash of the weights in a store says which model it is about; `entry` names one, whatever the points were found
    on. Every point is replayed. A sample that is not lowered stays as it is.
    """
    if not by.strip():
        raise BoardError("by is empty; name who found the points, since each sample keeps the name")
    done = []
    with board.changing():
        for slug in [board.find(entry)] if entry is not None else _matching(board, path):
            places = placements(board, slug, loader)
            lowering: list[tuple[Placement, Lowered]] = []
            for place, offered in _offered(path, places, None if entry is not None else places[0].card.sha256):
                with Store(board.entry(slug) / POINTS) as store:
                    points = offered if tool is None else [replace(each, tool=tool) for each in offered]
                    change, lowered = _replay(place, place.known(store)[1], points)
                done.append(change)
                lowering += [(place, lowered)] if lowered else []
            if lowering:
                with board.rewriting(slug) as folder, Store(folder / POINTS, write=True) as store:
                    for place, lowered in lowering:
                        _write(store, place, by, lowered)
    return done


def _matching(board: Leaderboard, path: Path) -> list[str]:
    """Return the entries whose weights a store is about; an .npz file does not say."""
    hashes = set()
    if path.suffix != ".npz":
        with Store(path) as store:
            hashes = {info.model_sha256 for info in store.cells()}
    found = [slug for slug in board.slugs if board.card(slug).sha256 in hashes]
    if not found:
        names = ", ".join(board.card(slug).name for slug in board.slugs) or "none"
        raise BoardError(f"{path} does not say which model it is about; name one of {names}")
    return found


def _store_errors(path: Path, sha256: str) -> list[Finding]:
    """Return the errors that make a store's figures about this model doubtful; none for an .npz file."""
    if path.suffix == ".npz" or not path.is_file():
        return []
    with Store(path) as store:
        keys = [info.key for info in store.cells() if info.model_sha256 == sha256]
        return report_findings.errors(report_findings.findings(store, load(store, keys)))


def _offered(path: Path, places: Sequence[Placement], sha256: str | None) -> list[tuple[Placement, list[Submission]]]:
    """Read the points of a file for each board that they fit; refuse a file that fits none of them."""
    found, wrong = [], None
    for place in places:
        try:
            found.append((place, list(read_points(path, place.rows, sha256))))
        except BoardError as error:
            wrong = error
    if wrong is not None and not found:
        raise wrong
    return found


def _cascade(place: Placement, version: str | None, batch_size: int) -> tuple[list[Submission], list[Finding]]:
    """Return the points that SparseAutoAttack finds, by the names of its members, and its findings."""
    if version is None:
        return [], []
    how: dict[str, Any] = {"bounds": place.allowed.bounds, "space": place.allowed.space, "unit": place.rules.unit}
    adversary = SparseAutoAttack(
        place.network, "L0", None, version=version, verbose=False, device=place.loader.device, **how
    )
    images, labels = place.on_device(place.rows)
    found = adversary.run(
        images, labels, batch_size=batch_size, ids=place.rows.ids, findings=[]
    )  # the doctor was asked
    names = np.array(found.found_by)
    points = []
    for name in dict.fromkeys(filter(None, found.found_by)):
        at = np.flatnonzero(names == name)
        points.append(
            Submission(f"{name} (SparseAutoAttack {found.cascade})", at, found.best.x_adv[torch.from_numpy(at)])
        )
    return points, list(found.findings)


def _examine(place: Placement) -> list[Finding]:
    """Return what the doctor finds; refuse a model with random answers."""
    images, labels = place.on_device(place.rows)
    claimed = known_accuracy(place.card.model) if place.card.accuracy is None else place.card.accuracy
    allowed = place.allowed
    found = examine(place.network, images, labels, bounds=allowed.bounds, space=allowed.space, claimed=claimed)
    if any(each.code == RANDOM for each in found):
        raise BoardError(f"{RANDOM}: the model answers differently when asked twice, so its points cannot be replayed")
    return found


def _refuse(findings: Iterable[Finding], allow: Collection[str]) -> None:
    for each in gating(findings, allow):
        raise BoardError(
            f"{each.code}: {each.title}; {each.detail}; {each.fix}; or allow {each.code}: the site shows it"
        )


def _copy_card(card: Path, made: ModelCard, folder: Path) -> None:
    """Copy a card and the files that it names, in place of the former ones; the hash of the weights is filled in."""
    for old in folder.iterdir():
        if old.name != POINTS:
            old.unlink()
    for file in made.files:
        shutil.copyfile(card.parent / file, folder / file)
    missing = "" if read_card(card).sha256 else f'sha256 = "{made.sha256}"\n'
    (folder / CARD).write_text(missing + card.read_text("utf-8-sig"), encoding="utf-8")


def _begin(store: Store, place: Placement, run: int, findings: list[Finding]) -> None:
    """Store the model's answers to the clean rows, once, and the findings of today."""
    info, every = place.describe("", CLEAN, 0), np.arange(len(place.rows))
    older = [each for each in store.cells() if each.dataset == place.name and each.key != info.key]
    store.register([info, *(replace(each, origin=info.origin, provenance={}) for each in older)])  # by this card now
    keep(store, place.allowed)
    if not store.stored(info.key).any():
        store.append(info.key, 0, _ask(place, every, place.rows.images), run=run)
    store.diagnose(info.key, [{**asdict(found), "about": CODES[found.code]} for found in dict.fromkeys(findings)])


def _ask(place: Placement, at: NDArray[np.int64], points: Tensor) -> Facts:
    """Ask the model about points for some rows, in strict fp32 and in the numbers of this process."""
    rows, allowed = place.rows.select(torch.from_numpy(at)), place.allowed
    images, labels = place.on_device(rows)
    points = points.cpu()
    finite = points.flatten(1).isfinite().all(1)
    points = torch.where(finite.view(-1, *[1] * (points.ndim - 1)), points, rows.images).to(images)  # fools no model
    how: dict[str, Any] = {"bounds": allowed.bounds, "space": allowed.space, "unit": place.rules.unit}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*points leave")  # they are counted as refused
        result = check(place.network, images, labels, points, ids=rows.ids, **how)
    priced = allowed.pose(rows.images, rows.labels).domain.priced
    return Facts.from_result(result, rows.labels, None, rows.images.to(result.x_adv.device), priced=priced)


def _replay(place: Placement, now: Best, offered: Iterable[Submission]) -> tuple[Change, Lowered]:
    """Ask the model about points and return what becomes of the board, with the best point of each lowered sample."""
    best, winner = now.changes.copy(), np.full(len(now.changes), -1)
    replayed: list[tuple[Submission, Facts]] = []
    count = refused = 0
    for each in offered:
        facts = _ask(place, each.places, each.points)
        needed, holds = now.changes[each.places] > 0, facts.outcome == Outcome.FOUND  # else it is wrong already
        count, refused = count + int(needed.sum()), refused + int((needed & ~holds).sum())
        changes = facts.l0_pixel if place.rules.unit == "pixel" else facts.l0
        better = needed & holds & (changes < best[each.places])
        best[each.places[better]], winner[each.places[better]] = changes[better], len(replayed)
        replayed.append((each, facts))
    ids = place.rows.ids.numpy()
    for at in np.flatnonzero((best < now.changes) & (best < now.lower)):
        raise BoardError(
            f"{place.card.name}, board {place.name}: row {ids[at]} is fooled by {best[at]:g} changes, and "
            f"{now.lower[at]:g} are proved to be needed; one of both is wrong: settle it first (docs/leaderboard.md)"
        )
    lowered = [
        (each.tool, each.places[mine], facts.take(mine))
        for number, (each, facts) in enumerate(replayed)
        if (mine := winner[each.places] == number).any()
    ]
    return Change(place.name, ids[winner >= 0].tolist(), refused, count), lowered


def _write(store: Store, place: Placement, by: str, lowered: Lowered) -> None:
    """Add a cell for each tool that lowered samples."""
    if not lowered:
        return
    turn = 1 + max(int(run.info.parameters["turn"]) for run in place.known(store)[0])
    run = store.begin(provenance(place.loader.device))
    for tool, places, facts in lowered:
        info = place.describe(by, tool, turn)
        store.register([info])
        store.append(info.key, places, facts, run=run)
