"""From questions to cells: load models and rows, hash them, and give each question its key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor

from sigmazero.bench import identity
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.loader import ABSENT, Loader
from sigmazero.bench.plan import DataSpec, ModelSpec, Question
from sigmazero.core.model import check_ability
from sigmazero.data import Rows
from sigmazero.run.precision import Numbers
from sigmazero.store.facts import CellInfo


@dataclass(frozen=True)
class Cell:
    """A question whose key is known."""

    info: CellInfo
    question: Question


@dataclass(frozen=True)
class Missing:
    """Questions that cannot be asked here; the error says what to fetch first."""

    what: str
    error: Exception
    questions: int

    @property
    def advice(self) -> str:
        """Return the error's text."""
        return str(self.error)


def expand(questions: Sequence[Question], loader: Loader) -> tuple[list[Cell], list[Missing]]:
    """Return cells, by data and model so that each is loaded once, and the questions that cannot be asked here."""
    groups: dict[tuple[DataSpec, ModelSpec], list[Question]] = {}
    for question in questions:
        groups.setdefault((question.data, question.model), []).append(question)
    # Rows first: those of one data set stay loaded while its models come and go.
    order = {spec: place for place, spec in reversed(list(enumerate(q.data for q in questions)))}
    cells: list[Cell] = []
    absent: dict[tuple[str, str], Missing] = {}

    def note(what: str, error: Exception, count: int) -> None:
        known = absent.get((what, str(error)), Missing(what, error, 0))
        absent[what, str(error)] = replace(known, questions=known.questions + count)

    known: dict[ModelSpec, tuple[str, dict[str, Any]]] = {}
    for (spec, network), group in sorted(groups.items(), key=lambda item: order[item[0][0]]):
        try:
            loader.rows(spec)
        except ABSENT as error:
            note(spec.name, error, len(group))
            continue
        try:
            if network not in known:
                known[network] = identity.hash_weights(loader.model(network)), loader.code(network)
            for question in group:
                check_ability(question.label, question.attack.needs, loader.model(network))
            cells += [_cell(question, loader, *known[network]) for question in group]
        except ABSENT as error:
            note(network.name, error, len(group))
    # One question may be asked twice: of equal data by two names, or in equal spaces from two places.
    return list({cell.info.key: cell for cell in reversed(cells)}.values())[::-1], list(absent.values())


def _cell(question: Question, loader: Loader, weights: str, code: dict[str, Any]) -> Cell:
    rows, goals = loader.asked(question.data, question.model, question.target, question.seed)
    precision = question.precision or Numbers.current(loader.runs_on).name
    # Resolved here: a worker may get the rows without what else the data knew.
    question = replace(question, allowed=question.allowed.on(rows))
    shape = tuple(rows.images.shape[1:])
    _refuse_misfit(question, rows, loader)
    asked = identity.describe_cell(
        question.attack,
        weights=weights,
        code=code,
        rows=rows,
        targets=goals,
        unit=question.unit,
        budget=question.budget,
        seed=question.seed,
        precision=precision,
        margin=question.margin,
        **question.allowed.identity(shape),
        surrogate=loader.ready(question.attack).parameters().get("surrogate"),
    )
    info = CellInfo(
        key=identity.digest(asked),
        model=question.model.name,
        dataset=question.data.name,
        attack=question.label,
        parameters=identity.plain_parameters(question.attack),
        version=question.attack.version,
        steps=question.attack.steps,
        unit=question.unit,
        goal=question.goal,
        budget=question.budget,
        seed=question.seed,
        precision=precision,
        rows=len(rows),
        model_sha256=weights,
        data_hash=rows.content_hash,
        bounds=(asked["bounds"][0], asked["bounds"][1]),
        margin=question.margin,
        identity=asked,
        origin={"model": asdict(question.model), "data": asdict(question.data), "target": question.target},
        about=about(rows, question.allowed),
    )
    return Cell(info, question)


def about(rows: Rows, allowed: Allowed) -> dict[str, Any]:
    """Return the names of features and classes of some rows for reports, as far as they are known."""
    space = allowed.space
    names = rows.names or (None if space is None else space.names)
    known = {"names": names, "classes": rows.classes}
    return {"shape": list(rows.images.shape[1:]), **{word: list(held) for word, held in known.items() if held}}


def _refuse_misfit(question: Question, rows: Rows, loader: Loader) -> None:
    """Refuse inputs outside their own space before anything runs, and a mask that a target would cut."""
    allowed, shape = question.allowed, tuple(rows.images.shape[1:])
    if allowed.space is not None:
        if (rows.content_hash, question.unit, allowed) in loader.checked:
            return
        try:
            if len(allowed.space.columns(shape).rise) > 1:
                raise ValueError("space: a store cannot hold directions per sample; give one per feature")
            allowed.pose(rows.images, rows.labels, unit=question.unit)
        except ValueError as error:
            raise ValueError(f"{question.data.name}: {error}") from None
        loader.checked.add((rows.content_hash, question.unit, allowed))
    tensors = [each for each in (*allowed.bounds, allowed.mask) if isinstance(each, Tensor)]
    if isinstance(question.target, int) and any(each.ndim == 1 + len(shape) and len(each) > 1 for each in tensors):
        raise ValueError("a mask or bounds with a row per sample do not go with one target class; give one for all")
