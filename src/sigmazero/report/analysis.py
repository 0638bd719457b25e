"""Break results down: by class, by changed feature, attack against attack, and from model to model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sigmazero.core import metrics
from sigmazero.core.messages import class_name
from sigmazero.core.metrics import Floats, Outcome
from sigmazero.report import spaces
from sigmazero.report.runs import TRANSFER, Group, Run, groups
from sigmazero.store.facts import CellInfo, Integers
from sigmazero.store.store import Store

MAX_CLASSES = 20  # of a grid; more would not be read


@dataclass(frozen=True)
class Grid:
    """Shares from rows to columns, NaN where nothing is known; `left_out` rows and columns were too many to show."""

    rows: list[str]
    columns: list[str]
    shares: Floats
    title: str = ""
    left_out: int = 0


def confusion(run: Run) -> Grid:
    """Return which class examples lead to, in shares of the examples found of each true class.

    A class of which no example was found has no shares.
    """
    facts = run.facts
    found = facts.outcome == Outcome.FOUND
    classes, counts = np.unique(np.concatenate([facts.label[found], facts.prediction[found]]), return_counts=True)
    shown = np.sort(np.argsort(-counts, kind="stable")[:MAX_CLASSES])
    pairs = np.zeros((len(classes), len(classes)))
    np.add.at(pairs, tuple(np.searchsorted(classes, each[found]) for each in (facts.label, facts.prediction)), 1)
    total = pairs.sum(1, keepdims=True)
    shares = np.divide(pairs, total, out=np.full_like(pairs, np.nan), where=total > 0)[np.ix_(shown, shown)]
    names = [class_name(run.info.about.get("classes"), int(classes[k])) for k in shown]
    return Grid(names, names, shares, left_out=len(classes) - len(shown))


def wins(group: Group) -> Grid:
    """Return for each two runs without a budget the share of rows on which the first needs fewer changes."""
    rows = group.best.rows
    found = [run.changes[run.places(rows)] for run in group.free]
    names = [run.name for run in group.free]
    shares = np.full((len(found), len(found)), np.nan)
    for (row, column), _ in np.ndenumerate(shares):
        if row != column and len(rows):
            shares[row, column] = float((found[row] < found[column]).mean())
    return Grid(names, names, shares)


def changed_sites(run: Run) -> Floats:
    """Return for each site (a feature, or a group that counts as one) in which share of the examples it is changed."""
    sites = spaces.named_sites(run.info)
    owner = np.zeros(math.prod(run.info.about["shape"]), dtype=np.int64)
    for place, site in enumerate(sites):
        owner[list(site.members)] = place
    shares = _shares(run, owner, len(sites))
    shares[[site.derived for site in sites]] = 0  # what follows from others was not chosen
    return shares


def changed_pixels(run: Run) -> Floats | None:
    """Return for each position of an image in which share of the examples it is changed; None for other inputs."""
    if not is_picture(run.info):
        return None
    shape = run.info.about["shape"]
    area = shape[1] * shape[2]
    return _shares(run, np.arange(math.prod(shape)) % area, area).reshape(shape[1:])


def is_picture(info: CellInfo) -> bool:
    """Return whether the inputs of a cell are images, by their shape."""
    shape = info.about.get("shape")
    return shape is not None and len(shape) == 3 and shape[0] in (1, 3) and not spaces.is_table(info)


def _shares(run: Run, owner: Integers, size: int) -> Floats:
    """Return in which share of the examples something of each owner is changed, however many of its features are."""
    found = run.perturbed.take(run.facts.outcome == Outcome.FOUND)
    sample = np.repeat(np.arange(len(found)), np.diff(found.offsets))
    pairs = np.unique(np.stack([sample, owner[found.index]]), axis=1)
    return np.bincount(pairs[1].astype(np.int64), minlength=size) / max(len(found), 1)


def transfer(store: Store, runs: Sequence[Run]) -> list[Grid]:
    """Return per data set which models fall to examples found on others, from what `sigmazero transfer` stored.

    The examples are those of the strongest attack on each model. A share is of the samples whose example fools the
    model in the row and that the model in the column classifies correctly.
    """
    answered = {(info.origin[TRANSFER], info.model_sha256): info for info in store.cells() if TRANSFER in info.origin}
    free = [run for run in runs if run.budget is None and run.info.goal == "untargeted"]
    sets: dict[tuple[str, str], list[Run]] = {}
    for group in groups(free, mix=True) if free and answered else []:
        sets.setdefault((group.info.dataset, group.info.data_hash), []).append(group.strongest)
    made = []
    for (name, _), chosen in sets.items():
        shares = np.full((len(chosen), len(chosen)), np.nan)
        for row, run in enumerate(chosen):
            found = run.facts.row[run.facts.outcome == Outcome.FOUND]
            shares[row, row] = 1.0 if len(found) else np.nan
            for column, other in enumerate(chosen):
                cell = answered.get((run.info.key, other.info.model_sha256))
                if cell is not None and row != column:
                    answers = store.facts(cell.key, perturbations=False)
                    right = np.isin(answers.row, found) & (answers.outcome != Outcome.ALREADY)
                    shares[row, column] = metrics.average(answers.outcome[right] == Outcome.FOUND)
        if np.isfinite(shares[~np.eye(len(chosen), dtype=bool)]).any():
            rows = [f"{run.info.model} ({run.info.attack})" for run in chosen]
            made.append(Grid(rows, [run.info.model for run in chosen], shares, name))
    return made
