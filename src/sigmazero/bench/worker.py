"""Attack batches of a cell and return their facts; nothing here knows the store.

Batch i of a cell is rows i·b to (i+1)·b, where b is the cell's batch size. So a row's batch depends on nothing but its
position, and a resumed run repeats the batches, and on the same machine the bits, of an undisturbed one.

What is costly to make stays from one unit to the next: the rows on the device, the model in its number format, its
prepared copy, the recordings, the batch size that fits.
"""

from __future__ import annotations

import copy
import os
import platform
import traceback
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero import models
from sigmazero.bench import identity
from sigmazero.bench.answers import steady
from sigmazero.bench.cells import Cell
from sigmazero.bench.loader import Loader
from sigmazero.bench.provenance import peak_device, peak_process, provenance, reset_peak
from sigmazero.bench.recorder import Recorder
from sigmazero.core import faults
from sigmazero.core.findings import CODES
from sigmazero.core.hardware import Precision
from sigmazero.core.model import Stopped
from sigmazero.core.problem import Problem
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.models.doctor import ROWS, examine
from sigmazero.run import Hardware, Prepared, Session
from sigmazero.run.memory import at_most
from sigmazero.run.precision import Numbers
from sigmazero.store.facts import Facts
from sigmazero.store.trace import Trace


@dataclass(frozen=True)
class Unit:
    """Consecutive batches of a cell for one worker: the rows from `start` up to `stop`.

    examine   run the doctor on the cell's model, too
    tries     how often this unit has failed so far
    """

    cell: Cell
    start: int
    stop: int
    examine: bool = False
    tries: int = 0

    def batches(self) -> Iterator[slice]:
        """The batches of the unit; a traced cell has one row in each."""
        size = batch_rows(self.cell)
        for start in range(self.start, self.stop, size):
            yield slice(start, min(start + size, self.stop))


def batch_rows(cell: Cell) -> int:
    """Return how many rows a batch of a cell has."""
    return 1 if cell.question.trace else cell.question.batch_size


@dataclass(frozen=True)
class Batch:
    """The facts of some rows of a cell, what they took, and the trace of a single row if the cell asks for it."""

    positions: NDArray[np.int64]
    facts: Facts
    seconds: float
    peak_device: int | None
    peak_process: int | None
    trace: Trace | None = None


@dataclass(frozen=True)
class UnitResult:
    """The batches of a unit that are done, and the error that ended it: its traceback and its first line."""

    batches: list[Batch] = field(default_factory=list)
    findings: list[dict[str, str]] | None = None
    answers: NDArray[np.float64] | None = None
    error: str = ""
    line: str = ""


@dataclass(frozen=True)
class Introduction:
    """Where a worker computes, and with which versions."""

    place: str
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """A network and the problem of all rows of a cell, on the device and in the cell's number format."""

    network: nn.Module
    problem: Problem
    rows: Rows
    targets: Tensor | None


class Worker:
    """Attack units. Cells of one model share its prepared copy; batches of one cell also share the recordings.

    foreign   the loader's process is not the one that asked: apply the float32 settings of the cell
    """

    def __init__(self, loader: Loader, *, foreign: bool = False) -> None:
        self.loader, self.foreign = loader, foreign
        self._subject: tuple[Hashable, Subject] | None = None
        self._double: tuple[nn.Module, nn.Module] | None = None
        self._prepared: tuple[nn.Module, Prepared] | None = None
        self._session: tuple[str, Session] | None = None

    def introduce(self) -> Introduction:
        """Return where this worker computes, and with which versions."""
        return Introduction(f"{platform.node()} {os.getpid()}", provenance(self.loader.device))

    def attack(self, unit: Unit) -> UnitResult:
        """Attack the batches of a unit; an error ends it, and the batches before it are kept."""
        faults.reach("unit.taken")
        batches: list[Batch] = []
        findings, answers, error, line = None, None, "", ""
        try:
            if unit.examine:
                steady_answers = self.answers(unit.cell)
                answers = None if steady_answers is None else steady_answers.numpy()
                findings = self.diagnose(unit.cell)
            with self._numbers(unit.cell):
                attack = self._traced if unit.cell.question.trace else self._batch
                for rows in unit.batches():
                    for batch in attack(unit.cell, rows):
                        batches.append(batch)  # one by one: those before an error count
        except Exception as raised:
            # An attack or a model may raise anything. The text travels, since the error itself may not be picklable.
            error = _printable("".join(traceback.format_exception(raised)))
            line = _printable((str(raised) or type(raised).__name__).splitlines()[0])
        faults.reach("unit.done")
        return UnitResult(batches, findings, answers, error, line)

    def _numbers(self, cell: Cell) -> AbstractContextManager[None]:
        """Apply the float32 settings of the process that asked, for a cell that names none of its own."""
        if not self.foreign or cell.question.precision is not None:
            return nullcontext()
        return Numbers.named(cell.info.precision, self.loader.device).applied()

    def _batch(self, cell: Cell, rows: slice) -> Iterator[Batch]:
        """Attack one batch, in parts if memory does not suffice; of a model that stops answering keep what is done."""
        device, session = self.loader.device, self._of(cell)
        places = torch.arange(rows.start, rows.stop, device="cpu")
        problem = self.subject(cell).problem.take(places.to(device))
        reset_peak(device)
        parts: list[tuple[Tensor, Result]] = []
        stopped = None
        try:
            parts.extend(session.batches(problem))
        except Stopped as error:
            stopped = error
        if parts:
            done = torch.cat([part for part, _ in parts])
            order = done.argsort()
            result = Result.join([result for _, result in parts]).take(order)
            yield self._facts(cell, places[done[order].to("cpu")], result)
        if stopped is not None:
            raise stopped

    def _traced(self, cell: Cell, rows: slice) -> Iterator[Batch]:
        """Attack one row and record every point that is asked about."""
        if (precision := cell.info.precision) not in ("fp32", "fp64"):
            raise ValueError(f"a trace needs fp32 or fp64: a search in {precision} rounds the points it asks about")
        subject, places = self.subject(cell), torch.arange(rows.start, rows.stop, device="cpu")
        recorder = Recorder(subject.network, subject.problem.take(places.to(self.loader.device)))
        # A captured step would be recorded once and replayed unseen.
        hardware = Hardware("fp32", capture=False, prepare="none")
        result = Session(self.loader.ready(cell.question.attack), recorder, hardware).run(recorder.problem)
        yield self._facts(cell, places, result, recorder.trace())

    def _facts(self, cell: Cell, places: Tensor, result: Result, trace: Trace | None = None) -> Batch:
        subject = self.subject(cell)
        targets = None if subject.targets is None else subject.targets[places]
        x = subject.problem.x[places.to(self.loader.device)]
        labels, priced = subject.rows.labels[places], subject.problem.domain.priced
        return Batch(
            positions=places.numpy(),
            facts=Facts.from_result(result, labels, targets, x, priced=priced),
            seconds=result.seconds,
            peak_device=peak_device(self.loader.device),
            peak_process=peak_process(),
            trace=trace,
        )

    def subject(self, cell: Cell) -> Subject:
        """Return model and rows of a cell, in single precision unless it asks for double."""
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
        return Subject(network, problem, rows, targets)

    def answers(self, cell: Cell) -> Tensor | None:
        """Return the model's logits of a few clean rows; None if they differ each time."""
        subject = self.subject(cell)
        return steady(subject.network, subject.problem.x)

    def _in_double(self, network: nn.Module) -> nn.Module:
        if self._double is None or self._double[0] is not network:
            self._double = network, copy.deepcopy(network).double()
        return self._double[1]

    def _of(self, cell: Cell) -> Session:
        """Return the session of a cell, on the prepared copy of its model."""
        network = self.subject(cell).network
        hardware = Hardware(forced(cell.info.precision), prepare=cell.question.prepare)
        if self._prepared is None or self._prepared[0] is not network or self._prepared[1].hardware != hardware:
            self._session, self._prepared = None, (network, Prepared(network, hardware))
        if self._session is None or self._session[0] != cell.info.key:
            size = at_most(network, cell.question.batch_size)
            attack = self.loader.ready(cell.question.attack)
            shared = Session(attack, network, batch_size=size, prepared=self._prepared[1], rows=cell.info.rows)
            self._session = cell.info.key, shared
        return self._session[1]

    def diagnose(self, cell: Cell) -> list[dict[str, str]]:
        """Return the doctor's findings about a cell's model as texts, each with what its code means.

        The doctor asks about no more rows at a time than an attack does, so that it needs no more memory.
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


def _printable(text: str) -> str:
    """Spell out what no encoding can write, such as parts of file names."""
    return text.encode(errors="backslashreplace").decode()


_current: ContextVar[Worker] = ContextVar("worker")


@contextmanager
def current(worker: Worker) -> Iterator[None]:
    """Let `attack_unit` and `introduce` use this worker inside the block."""
    before = _current.set(worker)
    try:
        yield
    finally:
        _current.reset(before)


def become(worker: Worker) -> None:
    """Let `attack_unit` and `introduce` use this worker for the rest of this process."""
    _current.set(worker)


def attack_unit(unit: Unit) -> UnitResult:
    """Attack a unit on the worker of this process; executors are given this function."""
    return _current.get().attack(unit)


def introduce() -> Introduction:
    """Return where the worker of this process computes, and with which versions."""
    return _current.get().introduce()


def _box(cell: Cell) -> dict[str, Any]:
    """Return the limits that the doctor judges inputs by; limits for each sample would have to be chosen with them."""
    allowed = cell.question.allowed
    several = any(isinstance(bound, Tensor) and bound.ndim for bound in allowed.bounds)
    bounds = (-torch.inf, torch.inf) if several else allowed.bounds
    return {"bounds": bounds, "space": allowed.space}


def _claimed(cell: Cell) -> float | None:
    """Return the accuracy that the zoo knows of a cell's model; None for a model of one's own."""
    entry = models.find(cell.question.model.spec)
    return None if entry is None else entry.clean_accuracy or entry.implied_accuracy


def forced(precision: str) -> Precision | None:
    """Return the number format that a cell's search asks for; None for that of the process around it.

    One in double precision computes in the inputs' own type.
    """
    known = "fp32" if precision == "fp64" else precision if precision in get_args(Precision) else None
    return cast("Precision | None", known)
