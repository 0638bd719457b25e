"""Attack batches of a cell and return their facts; nothing here knows the store.

Batch i of a cell is rows i·b to (i+1)·b, where b is the cell's batch size. So a row's batch depends on its position
alone, and a resumed run repeats the batches of an undisturbed one; on the same machine it gives the same bits.

The worker keeps what is costly to make from one unit to the next: the subject of the cell, the prepared copy of its
model, the recordings, and the batch size that fits.
"""

from __future__ import annotations

import platform
import traceback
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero.bench.cells import Cell, Subject
from sigmazero.bench.identity import is_random, probe
from sigmazero.bench.loader import Loader
from sigmazero.bench.provenance import peak_device, provenance, reset_peak
from sigmazero.core import faults
from sigmazero.core.findings import CODES
from sigmazero.core.hardware import Precision
from sigmazero.core.messages import describe
from sigmazero.core.model import Stopped, logits_in
from sigmazero.core.problem import Problem
from sigmazero.core.result import Result
from sigmazero.models.doctor import ROWS, examine
from sigmazero.models.zoo import known_accuracy
from sigmazero.run import Hardware, Prepared, Session
from sigmazero.run.memory import at_most
from sigmazero.run.precision import Numbers
from sigmazero.store.facts import SIDE, Facts, Trace

NUMBERED_OTHERWISE = "SZ034"  # labels and classes are numbered differently


@dataclass(frozen=True)
class Unit:
    """A batch of a cell for one worker: the rows from `start` up to `stop`.

    examine   also run the doctor on the cell's model
    tries     how often this unit has failed
    """

    cell: Cell
    start: int
    stop: int
    examine: bool = False
    tries: int = 0


@dataclass
class UnitResult:
    """What a worker returns: the facts of a batch, or of its first rows and the error that ended it.

    error, line   the error's traceback and its first line
    seen          the doctor's line: clean accuracy, classes, range of the values, gradients
    """

    positions: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    facts: Facts = field(default_factory=Facts.empty)
    peak_device: int | None = None
    trace: Trace | None = None
    findings: list[dict[str, str]] | None = None
    answers: Tensor | None = None
    error: str = ""
    line: str = ""
    seen: str = ""


class Worker:
    """Attack units. Cells of one model share its prepared copy; batches of one cell also share the recordings.

    foreign   another process made the cells, so apply the float32 settings that they name
    """

    def __init__(self, loader: Loader, *, foreign: bool = False) -> None:
        self.loader, self.foreign = loader, foreign
        self._subject: tuple[str, Subject] | None = None
        self._prepared: tuple[nn.Module, Prepared] | None = None
        self._session: tuple[str, Session] | None = None

    def introduce(self) -> tuple[str, dict[str, Any]]:
        """Return the name of this machine, and the worker's provenance."""
        return platform.node(), provenance(self.loader.device)

    def attack(self, unit: Unit) -> UnitResult:
        """Attack the batch of a unit."""
        faults.reach("unit.taken")
        cell, done = unit.cell, UnitResult()
        try:
            if unit.examine:
                done.findings, done.seen = self.diagnose(cell)
                _refuse_other_numbers(done.findings)
                done.answers = self._answers(cell, done.findings)
            with self._numbers(cell):
                (self._traced if cell.question.trace else self._batch)(unit, done)
        except Exception as error:
            # An attack or a model may raise anything. Return its text: the error itself may not be picklable.
            done.error = _printable("".join(traceback.format_exception(error)))
            done.line = _printable(describe(error))
        faults.reach("unit.done")
        return done

    def _numbers(self, cell: Cell) -> AbstractContextManager[None]:
        """Apply the float32 settings of the process that made the cell, unless the question names its own."""
        if not self.foreign or cell.question.precision is not None:
            return nullcontext()
        return Numbers.from_name(cell.info.precision, self.loader.device).applied()

    def _batch(self, unit: Unit, done: UnitResult) -> None:
        """Attack one batch, in parts if memory is short; if the model stops answering, keep the parts before."""
        session, positions = self._of(unit.cell), torch.arange(unit.start, unit.stop, device="cpu")
        reset_peak(self.loader.device)
        parts: list[tuple[Tensor, Result]] = []
        try:
            parts.extend(session.batches(self.subject(unit.cell).take(positions)))
        except Stopped:
            if parts:
                self._keep(unit, positions, parts, done)
            raise
        self._keep(unit, positions, parts, done)

    def _traced(self, unit: Unit, done: UnitResult) -> None:
        """Attack one row and record every query."""
        if (precision := unit.cell.info.precision) not in ("fp32", "fp64"):
            raise ValueError(f"a trace needs fp32 or fp64: a search in {precision} rounds the points it asks about")
        subject, positions = self.subject(unit.cell), torch.arange(unit.start, unit.stop, device="cpu")
        recorder = Recorder(subject.network, subject.take(positions))
        # The recorder sees no query of a captured step.
        hardware = Hardware("fp32", capture=False, prepare="none")
        result = Session(self.loader.ready(unit.cell.question.attack), recorder, hardware).run(recorder.problem)
        self._keep(unit, positions, [(positions - unit.start, result)], done)
        done.trace = recorder.trace()

    def _keep(self, unit: Unit, positions: Tensor, parts: list[tuple[Tensor, Result]], done: UnitResult) -> None:
        """Put the results of the parts of a batch together, in the order of its rows."""
        rows = torch.cat([part for part, _ in parts])
        order = rows.argsort()
        result, positions = Result.join([result for _, result in parts]).take(order), positions[rows[order].to("cpu")]
        done.positions, done.facts = positions.numpy(), self.subject(unit.cell).facts(result, positions)
        done.peak_device = peak_device(self.loader.device)

    def subject(self, cell: Cell) -> Subject:
        """Return the subject of a cell; refuse weights or rows that are not the cell's."""
        if self._subject is None or self._subject[0] != cell.info.key:
            self._subject = None  # make room first
            subject = Subject.of_cell(cell, self.loader)
            if wrong := subject.differences(cell.info):
                raise ValueError(f"{cell.info.model} on {cell.info.dataset}: {wrong[0]}; run the plan again")
            self._subject = cell.info.key, subject
        return self._subject[1]

    def _of(self, cell: Cell) -> Session:
        """Return the session of a cell, on the prepared copy of its model."""
        network = self.subject(cell).network
        hardware = Hardware(forced(cell.info.precision), prepare=cell.question.prepare)
        if self._prepared is None or self._prepared[0] is not network or self._prepared[1].hardware != hardware:
            self._session, self._prepared = None, (network, Prepared(network, hardware))
        if self._session is None or self._session[0] != cell.info.key:
            size = at_most(network, cell.batch_size)
            attack = self.loader.ready(cell.question.attack)
            session = Session(attack, network, batch_size=size, prepared=self._prepared[1], rows=cell.info.rows)
            self._session = cell.info.key, session
        return self._session[1]

    def _answers(self, cell: Cell, findings: list[dict[str, str]]) -> Tensor | None:
        """Return the model's logits for a few clean rows; None if the doctor found them to be random."""
        if is_random(findings):
            return None
        subject = self.subject(cell)
        return probe(subject.network, subject.problem.x)

    def diagnose(self, cell: Cell) -> tuple[list[dict[str, str]], str]:
        """Return the doctor's findings about a cell's model, each with its meaning, and its line about the model.

        The doctor uses no larger batches than the attack, so that it needs no more memory.
        """
        subject, allowed = self.subject(cell), cell.question.allowed
        count = len(subject.rows)
        picks = torch.linspace(0, count - 1, min(count, cell.batch_size, ROWS), device="cpu").round().long()
        # Bounds for each sample would have to be selected with the rows.
        several = any(isinstance(bound, Tensor) and bound.ndim for bound in allowed.bounds)
        box: dict[str, Any] = {"bounds": (-torch.inf, torch.inf) if several else allowed.bounds, "space": allowed.space}
        lines: list[str] = []
        about: dict[str, Any] = {"claimed": known_accuracy(cell.question.model.spec), "say": lines.append, **box}
        found = examine(subject.network, subject.take(picks).x, subject.rows.labels[picks], **about)
        return [{**asdict(finding), "about": CODES[finding.code]} for finding in found], " ".join(lines)


def _refuse_other_numbers(findings: Sequence[Mapping[str, str]]) -> None:
    """Raise an error if labels and classes are numbered differently: every figure would be wrong."""
    for each in findings:
        if each["code"] == NUMBERED_OTHERWISE:
            raise ValueError(f"{NUMBERED_OTHERWISE}: {each['title']}. {each['detail']} Fix: {each['fix']}")


def _printable(text: str) -> str:
    """Escape characters that cannot be encoded, such as parts of file names."""
    return text.encode(errors="backslashreplace").decode()


def forced(precision: str) -> Precision | None:
    """Return the number format that a cell's search names; None for the settings of the process around it.

    A search in double precision computes in the type of its inputs.
    """
    known = "fp32" if precision == "fp64" else precision if precision in get_args(Precision) else None
    return cast("Precision | None", known)


class Recorder(nn.Module):
    """A network that records the queries about one sample; the answers are the network's own."""

    def __init__(self, network: nn.Module, problem: Problem) -> None:
        super().__init__()
        if len(problem) != 1:
            raise ValueError(f"a trace is of one sample; {len(problem)} were given")
        self.network, self.problem = network, problem
        self.notes: defaultdict[str, list[Tensor]] = defaultdict(list)  # by column, call by call
        self.ability = getattr(network, "ability", "gradients")

    def forward(self, x: Tensor) -> Tensor:
        """Ask the network, and record the query."""
        logits = logits_in(self.network(x.clone()))  # which it may write to
        # Only queries in strict fp32: the check in the caller's float32 settings repeats points that are recorded.
        if Numbers.current(x.device).strictly:
            with torch.no_grad():
                self._note(x.detach(), logits.detach())
        return logits

    def _note(self, x: Tensor, logits: Tensor) -> None:
        problem = self.problem.take(torch.zeros(len(x), dtype=torch.int64, device=x.device))
        changed = (x != problem.x).flatten(1)
        noted = {
            "margin": problem.goal.margin(logits),
            "prediction": logits.argmax(1),
            "adversarial": problem.goal.reached(logits) & problem.domain.within(x),
            "count": changed.sum(1),
            "index": changed.nonzero()[:, 1],
            "value": x.flatten(1)[changed],
        }
        for name, values in noted.items():
            self.notes[name].append(values.cpu())

    def trace(self) -> Trace:
        """Return all queries, and the landscape of a problem that can be drawn."""
        columns = {name: torch.cat(values).numpy() for name, values in self.notes.items()}
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(columns.pop("count"))])
        columns["margin"] = columns["margin"].astype(np.float64)
        clean = self.problem.x[0].cpu().numpy()
        return Trace(clean, offsets=offsets, landscape=self._landscape(), **columns)

    @torch.no_grad()
    def _landscape(self) -> NDArray[np.float64] | None:
        x = self.problem.x
        if x[0].numel() != 2:
            return None
        along = [torch.linspace(0, 1, SIDE, dtype=x.dtype, device=x.device)] * 2
        down, across = torch.meshgrid(*along, indexing="ij")
        points = torch.stack([across, down], -1).reshape(-1, *x.shape[1:])
        problem = self.problem.take(torch.zeros(len(points), dtype=torch.int64, device=x.device))
        return problem.goal.margin(logits_in(self.network(points))).double().cpu().numpy().reshape(SIDE, SIDE)
