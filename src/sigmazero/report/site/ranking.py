"""Which models compare, and their order: by how many samples stand against all attacks together.

Every stored point was verified, so each is a witness: the fewest changes that any attack found for a sample bound its
robustness from above, runs with a budget included. A model that met fewer attacks may look better than it is; `lacks`
names what it did not meet. Only complete models get a rank.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import numpy as np

from sigmazero.core import metrics
from sigmazero.report.site.old import curves, measure
from sigmazero.report.site.old.measure import Measured
from sigmazero.report.site.old.optimality import envelope
from sigmazero.store.facts import CellInfo, Floats

FIRST = 24.0  # the k that a board is ranked by at first, where it is among the ks
Method = tuple[str, int, int | None]
Criterion = float | None  # a number of changes, or None for the median


@dataclass(frozen=True, order=True)
class ModelId:
    """A model: its name and the hash of its weights, since two may share a name."""

    name: str
    weights: str

    @property
    def slug(self) -> str:
        """A file name that is safe everywhere and belongs to this model alone.

        >>> ModelId("../<b>M1", "ab").slug
        'b-m1-5107f438'
        """
        words = re.sub(r"[^a-z0-9]+", "-", self.name.lower())[:40].strip("-") or "model"
        whole = hashlib.sha256(json.dumps([self.name, self.weights]).encode()).hexdigest()
        return f"{words}-{whole[:8]}"


@dataclass(frozen=True)
class Best:
    """What the strongest single attack leaves, and its name; None where no attack tells."""

    value: float | None
    attack: str = ""


@dataclass(frozen=True)
class Standing:
    """A model on a board: its cells, the rows that all of them have, the rows there are, and what it did not meet."""

    model: ModelId
    cells: tuple[Measured, ...]
    rows: int
    lacks: tuple[Method, ...] = ()

    @cached_property
    def common(self) -> tuple[Measured, ...]:
        """The cells with the facts of those rows alone that every cell has."""
        rows = reduce(np.intersect1d, [facts.row for _, facts in self.cells])
        return tuple((info, facts.take(np.isin(facts.row, rows))) for info, facts in self.cells)

    @cached_property
    def l0(self) -> Floats:
        """The fewest changes found for each sample by any attack."""
        info, facts = self.common[0]
        return envelope([f for _, f in self.common], info.unit).l0 if len(facts) else np.zeros(0)

    @property
    def complete(self) -> bool:
        """Whether every attack has done every row."""
        return len(self.l0) == self.rows

    def robust(self, k: float) -> float | None:
        """The share that no attack fooled with at most k changes."""
        return metrics.robust(self.l0, k) if len(self.l0) else None

    @cached_property
    def median(self) -> float | None:
        """The median of the fewest changes found."""
        return metrics.median(self.l0) if len(self.l0) else None

    @cached_property
    def clean(self) -> float | None:
        """The share classified right without any change."""
        info, facts = self.common[0]
        return metrics.clean_accuracy(measure.samples(info, facts)) if len(facts) else None

    def alone(self, criterion: Criterion) -> Best:
        """The single attack that leaves the least: robust accuracy at k, or the median."""
        called = curves.names([info for info, _ in self.cells])
        found = []
        for info, facts in self.common:
            l0 = measure.changes(facts, info.unit)
            if len(l0) and (info.budget is None or info.budget == criterion):
                value = metrics.median(l0) if criterion is None else metrics.robust(l0, criterion)
                found.append((value, called[info.key]))
        return Best(*min(found)) if found else Best(None)


@dataclass(frozen=True)
class Board:
    """Models that compare: the same rows of the same data, unit, goal and precision."""

    settings: Mapping[str, str]
    rows: int
    standings: tuple[Standing, ...]

    @property
    def name(self) -> str:
        """A name for links on the page."""
        return ModelId(self.settings["data"], repr(sorted(self.settings.items()))).slug

    def ranked(self, criterion: Criterion) -> list[tuple[int | None, Standing]]:
        """The standings from the most to the least robust, each with its rank; what is unfinished has none.

        Equals share a rank. They stand in the order of the other criterion (k = 24 beside the median), then by name.
        """
        done = sorted((s for s in self.standings if s.complete), key=lambda s: _order(s, criterion))
        scores = [_score(standing, criterion) for standing in done]
        places = [(1 + scores.index(score), standing) for score, standing in zip(scores, done, strict=True)]
        rest = sorted((s for s in self.standings if not s.complete), key=lambda s: s.model)
        return [*places, *((None, standing) for standing in rest)]


def _score(standing: Standing, criterion: Criterion) -> float:
    found = standing.median if criterion is None else standing.robust(criterion)
    assert found is not None  # complete standings have rows
    return found


def _order(standing: Standing, criterion: Criterion) -> tuple[float, float, ModelId]:
    second = FIRST if criterion is None else None
    return -_score(standing, criterion), -_score(standing, second), standing.model


def settings(info: CellInfo) -> dict[str, str]:
    """What must be the same for models to compare."""
    target = info.origin.get("target")
    return {
        "data": info.dataset,
        "rows": info.data_hash,
        "unit": info.unit,
        "goal": info.goal + ("" if target is None else f", target {target}"),
        "precision": info.precision,
        **({} if info.space == "–" else {"space": info.space}),
    }


def method(info: CellInfo) -> Method:
    """An attack as it was run, whatever the model."""
    return info.attack, info.steps, info.budget


def boards(cells: Sequence[Measured], mix: bool = False) -> list[Board]:
    """The boards of these cells, in the order of first appearance.

    Attacks of different versions do not compare and are refused, unless `mix` allows them.
    """
    if not cells:
        raise ValueError("the stores have no samples yet; run a plan into one first")
    groups: dict[tuple[str, ...], dict[ModelId, list[Measured]]] = {}
    for info, facts in cells:
        group = groups.setdefault(tuple(settings(info).values()), {})
        group.setdefault(ModelId(info.model, info.model_sha256), []).append((info, facts))
    made = []
    for group in groups.values():
        members = [info for cells in group.values() for info, _ in cells]
        if not mix:  # two models of one name stand apart here
            measure.refuse_mixture([replace(info, model=f"{info.model} {info.model_sha256}") for info in members])
        made.append(_board(group, members))
    return made


def _board(group: Mapping[ModelId, Sequence[Measured]], members: Sequence[CellInfo]) -> Board:
    rows = max(info.rows for info in members)
    met = {model: {method(info) for info, _ in cells} for model, cells in group.items()}
    every = list(dict.fromkeys(method(info) for info in members))
    standings = [
        Standing(model, tuple(cells), rows, tuple(one for one in every if one not in met[model]))
        for model, cells in group.items()
    ]
    return Board(settings(members[0]), rows, tuple(standings))


def unique(cells: Sequence[Measured]) -> list[Measured]:
    """Cells of several stores, each once: the one with the most samples."""
    kept: dict[str, Measured] = {}
    for info, facts in cells:
        if info.key not in kept or len(facts) > len(kept[info.key][1]):
            kept[info.key] = info, facts
    return list(kept.values())
