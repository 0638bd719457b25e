"""From questions to cells: models and rows are loaded, hashed, and loaded again when their turn comes."""

from __future__ import annotations

import copy
import hashlib
import importlib
from collections.abc import Container, Hashable, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from sigmazero import data, models
from sigmazero.bench import identity
from sigmazero.bench.allowed import Allowed
from sigmazero.bench.model_identity import describe_code, describe_module
from sigmazero.bench.plan import DataSpec, ModelSpec, Question, is_code
from sigmazero.bench.trust import refuse_untrusted
from sigmazero.core.ability import check_ability
from sigmazero.core.attack import Attack
from sigmazero.core.outputs import logits_in
from sigmazero.core.parameters import NamedModel
from sigmazero.data import Rows
from sigmazero.run.numbers import Numbers
from sigmazero.spaces.space import Space
from sigmazero.store.facts import CellInfo

# What a folder, a file or an extra that is not here raises: such cells wait, the others run.
ABSENT = (FileNotFoundError, ImportError)


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
        """What the error says."""
        return str(self.error)


class Loader:
    """Loads models and rows, one of each at a time: a plan may name more than memory holds.

    trust   the names of code (file.py:build, module:function, programs) that may be run; `trust.EVERYTHING` for all.
            Other code raises `UntrustedCode`; known models, data sets and files of arrays need no trust
    runs_on the device that cells are run on, if it is another one: it decides the numbers of their searches
    """

    def __init__(
        self,
        device: str | torch.device = "cpu",
        model_dir: str | PathLike[str] | None = None,
        data_dir: str | PathLike[str] | None = None,
        trust: Container[str] = (),
        runs_on: str | torch.device | None = None,
    ) -> None:
        self.trust = trust
        self.runs_on = torch.device(device if runs_on is None else runs_on)
        self.device, self.model_dir = torch.device(device), model_dir
        self.data_dir = None if data_dir is None else Path(data_dir)
        self._model: tuple[ModelSpec, nn.Module] | None = None
        self._rows: tuple[DataSpec, Rows] | None = None
        self._given_models: dict[ModelSpec, nn.Module] = {}
        self._surrogates: dict[NamedModel, nn.Module] = {}
        self._given_rows: dict[DataSpec, Rows] = {}
        self.spaces: dict[str, Space] = {}  # with functions, which a store does not hold; by `allowed.space_key`
        self.checked: set[Hashable] = set()  # rows and spaces that fit

    def give_model(self, spec: ModelSpec, network: nn.Module) -> None:
        """Use this module for that name instead of loading one."""
        self._given_models[spec] = network

    def give_rows(self, spec: DataSpec, rows: Rows) -> None:
        """Use these rows for that name."""
        self._given_rows[spec] = rows

    def has(self, spec: ModelSpec | DataSpec) -> bool:
        """Whether a module or rows were given for that name."""
        return spec in self._given_models or spec in self._given_rows

    def model(self, spec: ModelSpec) -> nn.Module:
        """The network, on the device, in evaluation mode."""
        if spec in self._given_models:
            return self._given_models[spec]
        if self._model is None or self._model[0] != spec:
            refuse_untrusted([spec], self.trust)
            self._model = None  # make room first
            loaded = models.load(
                spec.spec,
                weights=spec.weights,
                model_dir=self.model_dir,
                normalize=spec.normalize,
                device=self.device,
            )
            self._model = spec, loaded
        return self._model[1]

    def ready(self, attack: Attack) -> Attack:
        """An attack with the network that it names, on the device; one that names none as it is."""
        named = attack.parameters().get("surrogate")
        if not isinstance(named, NamedModel):
            return attack
        if named not in self._surrogates:
            refuse_untrusted([ModelSpec(named.name, named.name)], self.trust)
            loaded = models.load(named.name, model_dir=self.model_dir, device=self.device)
            self._surrogates[named] = loaded.requires_grad_(False)
        changed: dict[str, Any] = {"surrogate": self._surrogates[named]}
        return replace(attack, **changed)

    def rows(self, spec: DataSpec) -> Rows:
        """The rows, on the processor."""
        if spec in self._given_rows:
            return self._given_rows[spec]
        if self._rows is None or self._rows[0] != spec:
            refuse_untrusted([spec], self.trust)
            self._rows = None
            self._rows = spec, load_rows(spec, self.data_dir)
        return self._rows[1]

    def code(self, spec: ModelSpec) -> dict[str, Any]:
        """What identifies the model besides its weights."""
        network = self.model(spec)
        given = spec in self._given_models
        return describe_module(network) if given else describe_code(spec, network)

    def asked(
        self, spec: DataSpec, model: ModelSpec, target: str | int | None, seed: int
    ) -> tuple[Rows, Tensor | None]:
        """The rows of a question and, if it is targeted, the classes to reach; rows of a fixed target stay out."""
        rows = self.rows(spec)
        if target is None:
            return rows, None
        with torch.no_grad():
            classes = logits_in(self.model(model)(rows.images[:1].to(self.device))).shape[1]
        if isinstance(target, int) and target >= classes:
            raise ValueError(f"target = {target}: {model.name} knows classes 0 to {classes - 1}")
        rows = without_target(rows, target)
        return rows, targets(rows, target, classes, seed)


def load_rows(spec: DataSpec, data_dir: Path | None = None) -> Rows:
    """The rows that a plan names: of a data set, of an .npz file, or of a function that returns `Rows`."""
    chosen = list(spec.rows) if isinstance(spec.rows, tuple) else spec.rows
    if not is_code(spec.source):
        return data.load(spec.source, rows=chosen, limit=spec.limit, seed=spec.seed, data_dir=data_dir)
    place, _, name = spec.source.rpartition(":")
    function = getattr(importlib.import_module(place), name, None)
    made = function() if callable(function) else None
    if not isinstance(made, Rows):
        raise ValueError(f"data {spec.source!r}: {place} needs a function {name} that returns sigmazero.data.Rows")
    rows = made if chosen is None else made.select(chosen)
    return rows if spec.limit is None else rows.limit(spec.limit, spec.seed)


def without_target(rows: Rows, target: str | int | None) -> Rows:
    """The rows of a question: those that are of a fixed target class already stay out."""
    return rows.select((rows.labels != target).nonzero().squeeze(1)) if isinstance(target, int) else rows


class Origin(NamedTuple):
    """Where model and rows of a stored cell came from."""

    model: ModelSpec
    data: DataSpec
    target: str | int | None


def origin(info: CellInfo) -> Origin:
    """Where model and rows of a stored cell came from, as a `Loader` takes them; refused where it is not written."""
    try:
        model, kept, target = (info.origin[name] for name in ("model", "data", "target"))
        rows = kept.get("rows")
        data = DataSpec(**{**kept, "rows": tuple(rows) if isinstance(rows, list) else rows})
        found = Origin(ModelSpec(**model), data, target)
        texts = [found.model.name, found.model.spec, data.name, data.source]
        others = [found.model.weights, found.model.normalize, data.limit, data.seed, target]
        if not all(isinstance(each, str) for each in texts) or any(isinstance(each, list | dict) for each in others):
            raise TypeError("it holds values of other kinds")
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"the store does not say where model and rows of this cell came from ({error})") from error
    return found


def targets(rows: Rows, rule: str | int, classes: int, seed: int) -> Tensor:
    """The class to reach for each row; a drawn one depends on the seed and the row's number alone."""
    if isinstance(rule, int):
        return torch.full_like(rows.labels, rule)
    if rule == "next":
        return (rows.labels + 1) % classes

    def draw(row: int) -> int:
        return int.from_bytes(hashlib.sha256(f"target {seed} {row}".encode()).digest()[:8], "big") % (classes - 1)

    step = torch.tensor([1 + draw(row) for row in rows.ids.tolist()], dtype=torch.int64, device="cpu")
    return (rows.labels + step) % classes


def in_format(network: nn.Module, x: Tensor, precision: str) -> tuple[nn.Module, Tensor]:
    """Model and inputs in the number format of a cell: as they are, or in double precision."""
    return (copy.deepcopy(network).double(), x.double()) if precision == "fp64" else (network, x)


def expand(questions: Sequence[Question], loader: Loader) -> tuple[list[Cell], list[Missing]]:
    """Cells, by data and model so that each is loaded once in a row, and what cannot be asked here."""
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
    """What reports call the features and classes of some rows, as far as it is known."""
    space = allowed.space
    names = rows.names or (None if space is None else space.names)
    known = {"names": names, "classes": rows.classes}
    return {"shape": list(rows.images.shape[1:]), **{word: list(held) for word, held in known.items() if held}}


def _refuse_misfit(question: Question, rows: Rows, loader: Loader) -> None:
    """Refuse inputs that are not in their own space before anything is run, and a mask that a target would cut."""
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
