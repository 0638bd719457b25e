"""The driver: hands units to workers, stores what they bring, and sees to it that dead ones are replaced.

This is the only place that writes facts. With workers in other processes the facts of several batches share a
transaction, since a commit takes as long for one row as for a thousand; what was not committed when the driver is
killed is made again.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from sigmazero.bench.cells import Cell
from sigmazero.bench.engines.base import Engine, Examined, Gone, Message, Raised, Ready, Task
from sigmazero.bench.engines.hand import code_hash
from sigmazero.bench.progress import Crew, WorkerState
from sigmazero.bench.provenance import versions
from sigmazero.bench.units import Backlog, Mask, WorkUnit
from sigmazero.bench.worker import Attacked
from sigmazero.core import faults
from sigmazero.run.progress import Advance
from sigmazero.store.store import Store

Say = Callable[[str], None]

TRIES = 3  # workers that a unit may cost
HELD = 0.5  # seconds that facts may wait for others, to be stored together
PATIENCE = 60.0  # seconds without any worker after which the user is told
TICK = 0.25  # seconds after which the driver looks up, if nobody says anything


class NoWorkers(RuntimeError):
    """No worker can be started, or none that may be used."""


@dataclass
class RunSummary:
    """What a call did: rows stored, cells that failed (with the error's first line), whether it was stopped.

    `writing` has the seconds spent storing.
    """

    rows: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    writing: float = 0.0


class Driver:
    """One run of some cells on an engine, into a store.

    wanted   which rows of each cell are to be run; whoever runs the others, their batches are the same
    about    what to note with the provenance of the facts
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        wanted: Sequence[Mask],
        store: Store,
        engine: Engine,
        crew: Crew,
        *,
        stop: threading.Event,
        advance: Advance,
        say: Say,
        estimate: Callable[[Cell], float] | None = None,
        about: Mapping[str, str] | None = None,
    ) -> None:
        self.cells, self.store, self.engine, self.about = cells, store, engine, about or {}
        self.stop, self.advance, self.say = stop, advance, say
        self.summary = RunSummary()
        self.backlog = Backlog(cells, wanted, engine.size, whole=engine.whole, estimate=estimate)
        self.crew = crew
        self._known = [Task.pack(~mask) for mask in wanted]
        self._left = [mask.copy() for mask in wanted]
        self._stored = [store.stored(cell.info.key) for cell in cells]
        self._looks: dict[int, int] = {}  # how often a worker was asked to examine a cell's model
        self._examined: set[int] = set()
        self._at: dict[int, WorkUnit | None] = {}  # what each worker that may be used is at
        self._runs: dict[int, int] = {}  # the number of the run that a worker's facts go with
        self._known_runs: list[tuple[dict[str, Any], int]] = []
        self._held: list[tuple[WorkUnit, int, int, Attacked | Examined]] = []  # with the worker and its run
        self._since = 0.0
        self._starts: Counter[int] = Counter()  # how often a worker died before its first sign of life, in a row
        self._before = -1  # how many rows were left when all was handed out the last time

    def run(self) -> RunSummary:
        """Until everything is stored or has failed, or somebody asks to stop."""
        patience = time.monotonic() + PATIENCE
        for worker in range(self.engine.size):
            self._open(worker)
        while not self.stop.is_set():
            self._feed()
            if not any(self._at.values()) and self.backlog.empty and not self._rest():
                break
            for worker, message in self.engine.wait(TICK):
                self._hear(worker, message)
            self._flush(self._since + HELD)
            if not self._at and time.monotonic() > patience:
                self.say(f"no worker is ready yet: {self.engine.size} are starting, or wait for room on the cluster")
                patience = math.inf
        self._flush()
        self.summary.interrupted = self.stop.is_set()
        with self.store.together():
            self.store.note_progress({})
        return self.summary

    def _rest(self) -> bool:
        """Hand out once more what nobody brought, if it became less since the last time.

        Workers on which the model answers otherwise than on others do not agree on who has which batch.
        """
        self._flush()
        for place, (cell, rows) in enumerate(zip(self.cells, self._left, strict=True)):
            if cell.info.key not in self.summary.failed:
                self.backlog.refill(place, rows)
                self._known[place] = Task.pack(~rows)
        left = sum(int(rows.sum()) for rows in self._left)
        again, self._before = not self.backlog.empty and left != self._before, left
        return again

    def _open(self, worker: int) -> None:
        self._at.pop(worker, None)
        self.crew.workers[worker] = WorkerState(rows=getattr(self.crew.workers.get(worker), "rows", 0))
        self.engine.open(worker)

    def _feed(self) -> None:
        """A unit for every worker that has none, as long as there are any."""
        new = False
        for worker, unit in self._at.items():
            if unit is not None or (unit := self.backlog.take(worker)) is None:
                continue
            cell, looked = self.cells[unit.cell], self._looks.get(unit.cell, 0)
            if not looked:
                self.store.retry(cell.info.key)
                new = True
            # Once for a cell; once more if that worker died, perhaps of it.
            examine = looked == 0 or (looked == 1 and unit.tries > 0 and unit.cell not in self._examined)
            self._looks[unit.cell] = looked + examine
            self._at[worker] = unit
            self.crew.workers[worker].begin(cell.info)
            self.engine.send(worker, Task(cell, unit.start, unit.stop, self._known[unit.cell], examine))
            faults.reach("unit.sent")
        if new:
            self._flush(now=True)  # so that others see at once which cells are running

    def _hear(self, worker: int, message: Message) -> None:
        faults.reach("unit.heard")
        if isinstance(message, Ready):
            self._welcome(worker, message)
            return
        unit = self._at.get(worker)
        if isinstance(message, Gone):
            self._replace(worker, unit, message)
            return
        assert unit is not None  # only a worker that has a unit says anything of it
        if isinstance(message, Attacked | Examined):
            self._since = self._since if self._held else time.monotonic()
            self._held.append((unit, worker, self._runs[worker], message))
            if isinstance(message, Attacked):
                self.backlog.measured(unit.cell, message.seconds, len(message.places))
            else:
                self._examined.add(unit.cell)
            if self.engine.whole:
                self._flush()
            return
        if isinstance(message, Raised):
            # The cell fails as a whole: what one of its rows raises, the others mostly do too.
            self.backlog.drop(unit.cell)
            self._fail(unit, message.told, message.line)
        self._at[worker] = None
        self.crew.workers[worker].end("idle")

    def _welcome(self, worker: int, ready: Ready) -> None:
        """Let a worker in that runs what we run; its facts go with a run that says where it computes."""
        self._starts[worker] = 0
        state = self.crew.workers[worker]
        state.place = ready.place
        if why := differences(ready):
            self._dismiss(worker, f"{why} (on {ready.place})")
            return
        about = {name: value for name, value in ready.provenance.items() if name != "began"}
        known = next((run for known, run in self._known_runs if known == about), None)
        if known is None:
            known = self.store.begin({**ready.provenance, **self.about})
            self._known_runs.append((about, known))
        self._runs[worker], self._at[worker], state.state = known, None, "idle"

    def _replace(self, worker: int, unit: WorkUnit | None, gone: Gone) -> None:
        """Start another worker in place of a dead one; only the unit that was running counts it as a try."""
        if worker not in self._at:
            self._starts[worker] += 1
            if self._starts[worker] >= TRIES:
                self._dismiss(worker, ": ".join([f"{gone.reason} before it was ready", *gone.log.splitlines()[-1:]]))
                return
            self.say(f"worker {worker}: {gone.reason} before it was ready; another one is started")
        if unit is not None:
            again = unit.after_loss(self.cells[unit.cell].question.batch_size)
            if again[0].tries < TRIES:
                self.backlog.again(again)
                self.say(
                    f"{gone.reason} at rows {unit.start} to {unit.stop} of {self._words(unit)}; they are run again"
                )
            else:
                line = f"rows {unit.start} to {unit.stop}: {gone.reason}, {again[0].tries} times"
                self._fail(unit, f"{gone.log}\n{line}".strip(), line, again[0].tries)
        self._open(worker)
        faults.reach("worker.replaced")

    def _dismiss(self, worker: int, why: str) -> None:
        """Go on without a worker, if there is another one."""
        self.crew.workers[worker].end("refused")
        self.say(f"worker {worker} is not used: {why}")
        if all(one.state == "refused" for one in self.crew.workers.values()):
            raise NoWorkers(f"no worker can be used: {why}; every machine needs the versions of this run")

    def _fail(self, unit: WorkUnit, told: str, line: str, tries: int = 1) -> None:
        cell = self.cells[unit.cell].info
        self._flush()
        self.store.fail(cell.key, told, (unit.start, unit.stop), tries)
        self.summary.failed[cell.key] = line

    def _words(self, unit: WorkUnit) -> str:
        info = self.cells[unit.cell].info
        return f"{info.attack} against {info.model}"

    def _flush(self, due: float = 0.0, now: bool = False) -> None:
        """Store what waits, if it is time, and how far the run is, if it is time for that or `now`."""
        noting, began = self.crew.due() or now, time.monotonic()
        if not noting and (not self._held or began < due):
            return
        with self.store.together():
            for unit, worker, run, message in self._held:
                if isinstance(message, Attacked):
                    self._write(unit, worker, run, message)
                else:
                    self._keep(unit, message)
            if noting:
                left = sum(int(rows.sum()) * self.backlog.pace(place) for place, rows in enumerate(self._left))
                self.store.note_progress(self.crew.note(left))
        self._held.clear()
        self.summary.writing += time.monotonic() - began

    def _keep(self, unit: WorkUnit, found: Examined) -> None:
        """What the doctor says of a cell's model, and the answers by which it is recognised later."""
        key = self.cells[unit.cell].info.key
        self.store.diagnose(key, found.findings)
        if found.answers is not None and self.store.answers(key) is None:
            self.store.keep_answers(key, torch.tensor(found.answers, device="cpu"))

    def _write(self, unit: WorkUnit, worker: int, run: int, made: Attacked) -> None:
        """What a batch brought, of its rows those that are missing; a unit that is done again brings some twice."""
        key, left = self.cells[unit.cell].info.key, self._left[unit.cell]
        new = np.flatnonzero(left[made.places])
        if not len(new):
            return
        if made.trace is not None:
            self.store.append_trace(key, int(made.places[0]), made.trace)
        lacking = np.flatnonzero(left[made.places] & ~self._stored[unit.cell][made.places])
        if len(lacking):
            whole = len(lacking) == len(made.facts)
            self.store.append(
                key,
                made.places[lacking],
                made.facts if whole else made.facts.take(lacking),
                run=run,
                seconds=made.seconds * len(lacking) / len(made.facts),
                peak_device=made.peak_device,
                peak_process=made.peak_process,
                packed=made.packed if whole else None,
            )
        left[made.places] = False
        self.crew.advance(worker, len(new))
        self.summary.rows += len(new)
        self.advance(len(new))


def differences(ready: Ready) -> str:
    """In what a worker differs from this process, by name; nothing if its facts are as good as ours."""
    ours = versions()
    found = [
        f"it has {name} {ready.provenance.get(name)}, this run {value}"
        for name, value in ours.items()
        if ready.provenance.get(name) != value
    ]
    if not found and ready.code != code_hash():
        found = [f"its copy of sigmazero {ours['sigmazero']} has other code than that of this run"]
    return "; ".join(found)
