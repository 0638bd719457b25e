"""A cell and a span of its rows in, facts out: no store in sight, and nothing that depends on another span.

What is costly to make stays warm from one span to the next: the rows on the device, the model in its number format, its
lowered copy, the recordings, the batch size that fits.
"""

import copy
from collections.abc import Hashable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero import models
from sigmazero.bench import identity
from sigmazero.bench.answers import steady
from sigmazero.bench.cells import Cell, Loader
from sigmazero.bench.provenance import peak_device, peak_process, reset_peak
from sigmazero.bench.recorder import Recorder
from sigmazero.core.attack import Precision
from sigmazero.core.findings import CODES
from sigmazero.core.problem import Problem
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.models.doctor import ROWS, examine
from sigmazero.run import Hardware, Prepared, Session
from sigmazero.run.memory import at_most
from sigmazero.store.batches import Packed
from sigmazero.store.facts import Facts
from sigmazero.store.trace import Trace


@dataclass(frozen=True)
class Subject:
    """What a cell asks about: a network, and a question about all of its rows, on the device and in its numbers."""

    network: nn.Module
    problem: Problem
    rows: Rows
    targets: Tensor | None
    weights: str  # their hash, as they were loaded

    def take(self, span: slice) -> Problem:
        """The question about some consecutive rows."""
        return self.problem.take(torch.arange(span.start, span.stop, device=self.problem.x.device))


@dataclass(frozen=True)
class Attacked:
    """What a batch of a cell's rows brought, and what it took; `places` says which rows, in rising order."""

    places: NDArray[np.int64]
    facts: Facts
    seconds: float
    peak_device: int | None
    peak_process: int | None
    trace: Trace | None = None
    packed: Packed | None = None  # the facts as a store keeps them, if the driver is to be spared that


class Worker:
    """Attacks spans of cells. Cells of one model share its lowered copy, those of one question also the recordings."""

    def __init__(self, loader: Loader) -> None:
        self.loader = loader
        self._subject: tuple[Hashable, Subject] | None = None
        self._double: tuple[nn.Module, nn.Module] | None = None
        self._prepared: tuple[nn.Module, Prepared] | None = None
        self._session: tuple[str, Session] | None = None
        self._clean: tuple[Session, Tensor] | None = None

    def attack(self, cell: Cell, span: slice, known: Tensor | None = None) -> Iterator[Attacked]:
        """The facts that a span of a cell's rows answers for, batch by batch, as soon as they are verified.

        Batches are always those of the whole cell: a batch belongs to the span that has the first of its rows that is
        wanted, so some rows may lie beyond the span. Whatever the spans, together they bring every row once, and each
        in the same company: on most networks a row's last bits depend on how many rows are asked about at once.

        `known` marks rows of the cell whose facts are not wanted.
        """
        subject, q = self.subject(cell), cell.question
        wanted = torch.ones(len(subject.rows), dtype=torch.bool, device="cpu") if known is None else ~known
        if q.trace:
            for place in range(span.start, span.stop):
                if wanted[place]:
                    yield self._traced(cell, place)
            return
        device, session = self.loader.device, self._of(cell)
        reset_peak(device)
        clean = self._clean_answers(cell)
        mine = _mine(session.searched(subject.problem, clean, at_most(subject.network, q.batch_size)), span, wanted)
        for rows, result in session.batches(subject.problem, known=~mine.to(device), clean=clean):
            order = rows.argsort()
            kept = order[mine.to(device)[rows[order]]]
            if len(kept):
                yield self._facts(cell, rows[kept].cpu(), result.take(kept))
            reset_peak(device)

    def _clean_answers(self, cell: Cell) -> Tensor:
        """What the cell's model says of all its rows; asked once for all spans of a cell."""
        if self._clean is None or self._clean[0] is not self._of(cell):
            self._clean = self._of(cell), self._of(cell).clean(self.subject(cell).problem)
        return self._clean[1]

    def _traced(self, cell: Cell, place: int) -> Attacked:
        """One row, with every point that was asked about."""
        subject = self.subject(cell)
        recorder = _recorder(cell, subject.network, subject.take(slice(place, place + 1)))
        # A recorded step would be noted once and replayed unseen.
        result = Session(
            self.loader.ready(cell.question.attack), recorder, Hardware("fp32", capture=False, prepare="none")
        ).run(recorder.problem)
        return replace(self._facts(cell, torch.tensor([place], device="cpu"), result), trace=recorder.trace())

    def _facts(self, cell: Cell, places: Tensor, result: Result) -> Attacked:
        subject = self.subject(cell)
        if identity.hash_weights(subject.network) != subject.weights:
            name = cell.question.model.name
            raise ValueError(f"the weights of {name} changed while it was attacked; what was found is not stored")
        targets = None if subject.targets is None else subject.targets[places]
        x = subject.problem.x[places.to(self.loader.device)]
        return Attacked(
            places=places.numpy(),
            facts=Facts.from_result(
                result, subject.rows.labels[places], targets, x, priced=subject.problem.domain.priced
            ),
            seconds=result.seconds,
            peak_device=peak_device(self.loader.device),
            peak_process=peak_process(),
        )

    def subject(self, cell: Cell) -> Subject:
        """Model and rows of a cell, in single precision unless it asks for double."""
        q = cell.question
        key = (q.model, q.data, q.precision, q.target, q.seed, q.unit, q.budget, q.margin, q.allowed)
        if self._subject is None or self._subject[0] != key:
            self._subject = None  # make room first
            self._subject = key, self._load(cell)
        return self._subject[1]

    def _load(self, cell: Cell) -> Subject:
        q = cell.question
        rows, targets = self.loader.asked(q.data, q.model, q.target, q.seed)
        network, x = self.loader.model(q.model), rows.images.to(self.loader.device)
        if identity.hash_weights(network) != cell.info.model_sha256:
            raise ValueError(f"the weights of {q.model.name} are not those that this cell is about; run the plan again")
        if rows.content_hash != cell.info.data_hash:
            raise ValueError(f"the rows of {q.data.name} are not those that this cell is about; run the plan again")
        if q.precision == "fp64":
            network, x = self._in_double(network), x.double()
        y = (rows.labels if targets is None else targets).to(self.loader.device)
        problem = q.allowed.pose(
            x,
            y,
            targeted=targets is not None,
            unit=q.unit,
            budget=q.budget,
            seed=q.seed,
            ids=rows.ids,
            margin=q.margin,
        )
        return Subject(network, problem, rows, targets, identity.hash_weights(network))

    def answers(self, cell: Cell) -> Tensor | None:
        """What the cell's model says of a few clean rows; None if it says something else each time."""
        subject = self.subject(cell)
        return steady(subject.network, subject.problem.x)

    def _in_double(self, network: nn.Module) -> nn.Module:
        if self._double is None or self._double[0] is not network:
            self._double = network, copy.deepcopy(network).double()
        return self._double[1]

    def _of(self, cell: Cell) -> Session:
        """The session of a cell, on what is prepared of its model."""
        network = self.subject(cell).network
        hardware = Hardware(forced(cell.info.precision), prepare=cell.question.prepare)
        if self._prepared is None or self._prepared[0] is not network or self._prepared[1].hardware != hardware:
            self._session, self._prepared = None, (network, Prepared(network, hardware))
        if self._session is None or self._session[0] != cell.info.key:
            size = at_most(network, cell.question.batch_size)
            shared = Session(
                self.loader.ready(cell.question.attack), network, batch_size=size, prepared=self._prepared[1]
            )
            self._session = cell.info.key, shared
        return self._session[1]

    @property
    def recordings(self) -> int:
        """How many steps were recorded on the model at hand."""
        return 0 if self._prepared is None else self._prepared[1].recordings

    def diagnose(self, cell: Cell) -> list[dict[str, str]]:
        """What the doctor says of a cell's model: each finding as texts, with what its code means.

        It sees no more rows at a time than an attack does, so that it needs no more memory.
        """
        subject = self.subject(cell)
        count = len(subject.rows)
        few = min(count, cell.question.batch_size, ROWS)
        picks = torch.linspace(0, count - 1, few, device="cpu").round().long()
        x = subject.problem.x[picks.to(self.loader.device)]
        return [
            {**asdict(finding), "about": CODES[finding.code]}
            for finding in examine(subject.network, x, subject.rows.labels[picks], claimed=_claimed(cell), **_box(cell))
        ]


def _box(cell: Cell) -> dict[str, Any]:
    """What the doctor is to judge the inputs by; ends for each sample would have to be chosen with the rows."""
    allowed = cell.question.allowed
    several = any(isinstance(bound, Tensor) and bound.ndim for bound in allowed.bounds)
    bounds = (-torch.inf, torch.inf) if several else allowed.bounds
    return {"bounds": bounds, "space": allowed.space}


def _claimed(cell: Cell) -> float | None:
    """The accuracy that the zoo knows of a cell's model; None for a model of one's own."""
    entry = models.find(cell.question.model.spec)
    return None if entry is None else entry.clean_accuracy or entry.implied_accuracy


def forced(precision: str) -> Precision | None:
    """The numbers that the search of a cell was told to compute in; None for those of the process around it.

    One in double precision computes in the inputs' own type.
    """
    known = "fp32" if precision == "fp64" else precision if precision in get_args(Precision) else None
    return cast("Precision | None", known)


def _mine(batches: list[Tensor], span: slice, wanted: Tensor) -> Tensor:
    """Which rows a span answers for, given the batches of the whole cell: of them the wanted ones."""
    mine = torch.zeros_like(wanted)
    mine[span] = True
    for rows in batches:
        asked = rows[wanted[rows]]
        mine[rows] = bool(len(asked)) and span.start <= int(asked[0]) < span.stop
    return mine & wanted


def _recorder(cell: Cell, network: nn.Module, problem: Problem) -> Recorder:
    if (precision := cell.info.precision) not in ("fp32", "fp64"):
        raise ValueError(f"a trace needs fp32 or fp64: a search in {precision} rounds the points it asks about")
    return Recorder(network, problem)
