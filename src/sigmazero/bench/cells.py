"""Turn questions into cells with keys, and load the model and rows of a cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero.attacks import get as get_attack
from sigmazero.bench import identity
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.constraints import recall as recall_constraints
from sigmazero.bench.loader import ABSENT, GIVEN, Loader, origin, recall, refuse_untrusted, surrogate_spec
from sigmazero.bench.plan import PRECISIONS, DataSpec, ModelSpec, Question
from sigmazero.core.attack import Attack
from sigmazero.core.model import check_ability
from sigmazero.core.problem import Problem
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.models.wrapping.limits import refuse_small_limit
from sigmazero.run.precision import Numbers
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import Store


@dataclass(frozen=True)
class Cell:
    """A question whose key is known."""

    info: CellInfo
    question: Question

    @property
    def batch_size(self) -> int:
        """Return how many rows a batch has; a traced cell has batches of one row."""
        return 1 if self.question.trace else self.question.batch_size


@dataclass(frozen=True)
class Missing:
    """Questions that cannot be run here; the error says what to fetch first."""

    what: str
    error: Exception
    questions: int


def expand(questions: Sequence[Question], loader: Loader) -> tuple[list[Cell], list[Missing]]:
    """Return cells, by data and model so that each is loaded once, and the questions that cannot be run here."""
    groups: dict[tuple[DataSpec, ModelSpec], list[Question]] = {}
    for question in questions:
        groups.setdefault((question.data, question.model), []).append(question)
    # By data first: its rows stay loaded for all its models.
    order = {spec: number for number, spec in reversed(list(enumerate(q.data for q in questions)))}
    cells: dict[str, Cell] = {}  # by key: two names may stand for equal data
    missing: dict[tuple[str, str], Missing] = {}
    known: dict[ModelSpec, dict[str, Any]] = {}

    def note(what: str, error: Exception, count: int) -> None:
        before = missing.get((what, str(error)), Missing(what, error, 0))
        missing[what, str(error)] = replace(before, questions=before.questions + count)

    for (data, model), group in sorted(groups.items(), key=lambda item: order[item[0][0]]):
        try:
            loader.rows(data)
        except ABSENT as error:
            note(data.name, error, len(group))
            continue
        try:
            if model not in known:
                weights = identity.hash_weights(loader.model(model))
                known[model] = {"weights": weights, "code": loader.code(model)}
            fitting: set[Any] = set()
            for question in group:
                check_ability(question.label, question.attack.needs, loader.model(model))
                cell = _cell(question, loader, known[model], fitting)
                refuse_small_limit(loader.model(model), min(cell.info.rows, cell.batch_size))
                cells.setdefault(cell.info.key, cell)
        except ABSENT as error:
            note(model.name, error, len(group))
    return list(cells.values()), list(missing.values())


def _cell(question: Question, loader: Loader, model: dict[str, Any], fitting: set[Any]) -> Cell:
    rows, targets = loader.rows_and_targets(question)
    precision = question.precision or Numbers.current(loader.device).name
    # Resolved here: a worker may get the rows without their space.
    question = replace(question, allowed=question.allowed.on(rows))
    if (question.unit, question.allowed) not in fitting:
        _refuse_misfit(question, rows)
        fitting.add((question.unit, question.allowed))
    network, surrogate = loader.ready(question.attack).parameters().get("surrogate"), None
    if network is not None:  # which guides the attack
        code = identity.describe_model(network, surrogate_spec(question.attack))
        surrogate = {"weights": identity.hash_weights(network), "code": code}
    described = identity.describe_cell(question, model, rows, targets, precision, surrogate)
    info = CellInfo.of(
        described,
        model=question.model.name,
        dataset=question.data.name,
        attack=question.label,
        rows=len(rows),
        origin={"model": asdict(question.model), "data": asdict(question.data), "target": question.target},
        about=about(rows, question.allowed),
    )
    return Cell(info, question)


def about(rows: Rows, allowed: Allowed) -> dict[str, Any]:
    """Return the shape of some rows and the names of their features and classes, for reports."""
    names = rows.names or (None if allowed.space is None else allowed.space.names)
    known = {"names": names, "classes": rows.classes}
    return {"shape": list(rows.images.shape[1:]), **{key: list(value) for key, value in known.items() if value}}


def _refuse_misfit(question: Question, rows: Rows) -> None:
    """Refuse inputs outside their space, and masks for each sample with a target that leaves samples out."""
    allowed, shape = question.allowed, tuple(rows.images.shape[1:])
    if allowed.space is not None:
        try:
            if len(allowed.space.columns(shape).rise) > 1:
                raise ValueError("space: a store cannot hold directions per sample; give one per feature")
            allowed.pose(rows.images, rows.labels, unit=question.unit)
        except ValueError as error:
            raise ValueError(f"{question.data.name}: {error}") from None
    tensors = [each for each in (*allowed.bounds, allowed.mask) if isinstance(each, Tensor)]
    if isinstance(question.target, int) and any(each.ndim == 1 + len(shape) and len(each) > 1 for each in tensors):
        raise ValueError("a mask or bounds with a row per sample do not go with one target class; give one for all")


@dataclass(frozen=True)
class Shard:
    """One of n parts of a plan, counted from 1, for machines that do not share a store.

    Batch i of a cell belongs to part (i + a number from the cell's key) modulo n. So each row is in exactly one part,
    even if some machines lack a model.
    """

    number: int
    count: int

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @staticmethod
    def parse(text: str) -> Shard:
        """Return the shard of a text such as 3/16.

        >>> Shard.parse("3/16")
        Shard(number=3, count=16)
        """
        found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text, re.ASCII)
        if found is None or not 1 <= int(found[1]) <= int(found[2]):
            raise ValueError(f"invalid shard {text!r}: expected I/N with I from 1 to N, such as 3/16")
        return Shard(int(found[1]), int(found[2]))

    def rows(self, cells: Sequence[Cell]) -> dict[str, NDArray[np.bool_]]:
        """Return which rows of each cell belong to this part, by the cell's key."""
        found = {}
        for cell in cells:
            batch = np.arange(cell.info.rows) // cell.batch_size
            first = int(cell.info.key[:8], 16) % self.count
            found[cell.info.key] = (batch + first) % self.count == self.number - 1
        return found


def stored_question(store: Store, info: CellInfo, loader: Loader, attack: Attack | None = None) -> Question:
    """Return the question of a stored cell; without its attack another one stands there."""
    model, data, target = origin(info)
    refuse_untrusted([spec for spec in (model, data) if not loader.has(spec)], loader.trust)
    if model.spec == GIVEN and not loader.has(model):
        raise LookupError(
            f"{model.name} was a module, which a store does not hold; call verify() on what sz.evaluate(...) "
            "returns, or give it a model that can be loaded again, such as file.py:build"
        )
    settings: dict[str, Any] = {name: getattr(info, name) for name in ("unit", "goal", "budget", "seed", "margin")}
    return Question(
        model,
        recall(store, info, loader),
        info.attack,
        attack or get_attack("sigma-zero"),
        target=target,
        precision=info.precision if info.precision in PRECISIONS else None,
        allowed=recall_constraints(store, info, loader.spaces),
        **settings,
    )


@dataclass(frozen=True)
class Subject:
    """The network of a cell and the problem of all its rows, on the device and in the cell's number format.

    loaded   the network as loaded; `network` may be its copy in double precision
    """

    loaded: nn.Module
    network: nn.Module
    problem: Problem
    rows: Rows
    targets: Tensor | None

    @staticmethod
    def of_cell(cell: Cell, loader: Loader) -> Subject:
        """Load the subject of a cell."""
        q = cell.question
        double = cell.info.precision == "fp64"
        rows, targets = loader.rows_and_targets(q)
        x = rows.images.to(loader.device)
        problem = q.allowed.pose(
            x.double() if double else x,
            (rows.labels if targets is None else targets).to(loader.device),
            targeted=targets is not None,
            unit=q.unit,
            budget=q.budget,
            seed=q.seed,
            ids=rows.ids,
            margin=q.margin,
        )
        return Subject(loader.model(q.model), loader.model(q.model, double), problem, rows, targets)

    @staticmethod
    def of_store(store: Store, info: CellInfo, loader: Loader) -> Subject:
        """Load the subject of a stored cell again."""
        return Subject.of_cell(Cell(info, stored_question(store, info, loader)), loader)

    def take(self, positions: Tensor) -> Problem:
        """Return the problem of some rows."""
        return self.problem.take(positions.to(self.problem.x.device))

    def facts(self, result: Result, positions: Tensor) -> Facts:
        """Return the facts of a result about the rows at these positions."""
        problem, positions = self.take(positions), positions.cpu()
        targets = None if self.targets is None else self.targets[positions]
        return Facts.from_result(result, self.rows.labels[positions], targets, problem.x, priced=problem.domain.priced)

    def differences(self, info: CellInfo) -> list[str]:
        """Return how weights and rows differ from those that a cell is about."""
        pairs = {
            "the model here has other weights": (identity.hash_weights(self.loaded), info.model_sha256),
            "the rows here have other content": (self.rows.content_hash, info.data_hash),
        }
        return [f"{what} (sha256 {here[:12]}, stored {old[:12]})" for what, (here, old) in pairs.items() if here != old]
