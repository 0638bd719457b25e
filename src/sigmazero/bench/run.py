"""Run what is missing: cells to units, units to workers, facts into the store.

Only this process writes the store. A unit is some whole batches of a cell; what a unit brings is stored in one
transaction. A unit that raises, or whose worker dies, is tried again batch by batch, `TRIES` times in all. Then its
rows are noted as failed, and the other rows of its cell go on.
"""

from __future__ import annotations

import _thread
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sigmazero.bench.cells import Cell
from sigmazero.bench.loader import Loader
from sigmazero.bench.progress import Progress, shown
from sigmazero.bench.proofs import recognise_rows
from sigmazero.bench.provenance import versions
from sigmazero.bench.worker import Batch, Introduction, Unit, UnitResult, attack_unit, batch_rows, introduce
from sigmazero.bench.workers import Engine, Here, WorkerExecutor
from sigmazero.core import faults
from sigmazero.core.messages import one_line
from sigmazero.store.store import Store

Say = Callable[[str], None]
Mask = NDArray[np.bool_]

TRIES = 3  # attempts for each unit, and starts of a worker that dies before it is ready
GIVE_UP = 3  # units of a cell that fail before any succeeds: then the rest of the cell is not tried
UNIT_SECONDS = 10.0  # of work in a unit for another process, about
GRACE = 5.0  # seconds that Ctrl-C leaves to the batches that are running
TICK = 0.25  # seconds between two looks at the stop event
PATIENCE = 60.0  # seconds without any worker until a message says so


class NoWorkers(RuntimeError):
    """No worker can be started, or none that may be used."""


@dataclass
class RunSummary:
    """The outcome of a run: rows stored, cells that failed (with the error's first line), whether it was stopped.

    writing   seconds spent storing
    """

    rows: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    writing: float = 0.0


def execute(
    cells: Sequence[Cell],
    store: Store,
    loader: Loader,
    *,
    engine: Engine | None = None,
    only: Mapping[str, Mask] | None = None,
    title: str = "run",
    progress: bool = False,
    say: Say | None = None,
    about: Mapping[str, str] | None = None,
) -> RunSummary:
    """Run all rows of these cells that the store does not have yet. Ctrl-C keeps what is finished.

    engine   where to run them; this process by default
    only     the rows to run, by the key of the cell; all by default
    about    notes for the provenance of the facts
    """
    if only is not None:
        cells = [cell for cell in cells if only[cell.info.key].any()]
    store.register([cell.info for cell in cells])
    recognise_rows(store, loader)  # where something is proved already, it stands beside these cells too
    engine = Here(loader) if engine is None else engine
    with closing(engine):
        if engine.remote:
            _refuse_given(cells, loader)
        masks = [~ready(cell, store) & (True if only is None else only[cell.info.key]) for cell in cells]
        pending = [(cell, mask) for cell, mask in zip(cells, masks, strict=True) if mask.any()]
        if not pending:
            return RunSummary()
        if engine.remote:
            loader.release()  # workers need the memory of the device
        say = say or _quiet
        counts = Progress([cell for cell, _ in pending], [int(mask.sum()) for _, mask in pending], engine.size)
        with interruptible(say) as stop, shown(counts, title, progress, say) as update:
            return _Run(pending, store, engine, counts, stop, update, say, about or {}).run()


def _quiet(text: str) -> None:
    """Say nothing."""
    del text


def _refuse_given(cells: Sequence[Cell], loader: Loader) -> None:
    """Refuse models and rows that are in the memory of this process alone."""
    for spec in (spec for cell in cells for spec in (cell.question.model, cell.question.data)):
        if loader.has(spec):
            raise ValueError(
                f"{spec.name} is in the memory of this process, where no other worker can load it; name a file or a "
                "known one, such as file.py:build, or use the engine 'local'"
            )


def ready(cell: Cell, store: Store) -> Mask:
    """Return which rows of a cell need not run: their facts are stored and, where asked for, their traces."""
    done = store.stored(cell.info.key)
    return done & store.traced(cell.info.key) if cell.question.trace else done


class Backlog:
    """Batches that are still to be handed out, cell by cell.

    workers   how many share the work; a single one in this process gets batch by batch, in order
    """

    def __init__(self, pending: Sequence[tuple[Cell, Mask]], progress: Progress, workers: int, here: bool) -> None:
        self.cells, self.progress, self.workers, self.here = [cell for cell, _ in pending], progress, workers, here
        self._batches = [
            np.unique(np.flatnonzero(mask) // batch_rows(cell)).tolist() for cell, mask in pending
        ]  # numbers of batches with missing rows
        self._again: list[tuple[int, Unit]] = []
        self._last: dict[int, int] = {}
        self._begun: set[int] = set()

    def take(self, worker: int) -> tuple[int, Unit] | None:
        """Return the next unit for a worker, with the place of its cell; None if everything is handed out."""
        if self._again:
            return self._again.pop(0)
        left = [place for place, batches in enumerate(self._batches) if batches]
        if not left:
            return None
        place = left[0] if self.here else max(left, key=lambda each: self._worth(each, worker))
        self._last[worker] = place
        return place, self._cut(place)

    def _worth(self, place: int, worker: int) -> tuple[int, float]:
        """Rate a cell for a worker: first what it has loaded, then what takes long and has few workers."""
        q, near, before = self.cells[place].question, 0, self._last.get(worker)
        if before is not None:
            had = self.cells[before].question
            near = (before == place) + ((had.model, had.data) == (q.model, q.data)) + (had.model == q.model)
        others = sum(self.cells[last].question.model == q.model for one, last in self._last.items() if one != worker)
        seconds = self.progress.seconds_per_row(place) or float(q.attack.steps)
        return near, self.progress.left[place] * seconds / (1 + others)

    def _cut(self, place: int) -> Unit:
        """Take consecutive batches: one of a new cell, later as many as take about ten seconds, but a fair share."""
        cell, batches = self.cells[place], self._batches[place]
        size, count = batch_rows(cell), 1
        seconds = self.progress.seconds_per_row(place)
        if not self.here and place in self._begun and seconds is not None:
            count = max(1, min(int(UNIT_SECONDS / max(seconds * size, 1e-9)), -(-len(batches) // self.workers)))
        while count > 1 and batches[count - 1] != batches[0] + count - 1:
            count -= 1
        self._begun.add(place)
        unit = Unit(cell, batches[0] * size, min((batches[count - 1] + 1) * size, cell.info.rows))
        del batches[:count]
        return unit

    def again(self, place: int, unit: Unit) -> None:
        """Hand out a unit once more, a batch at a time, before anything else."""
        parts = [replace(unit, start=rows.start, stop=rows.stop, tries=unit.tries + 1) for rows in unit.batches()]
        self._again += [(place, part) for part in parts]

    def drop(self, place: int) -> list[tuple[int, int]]:
        """Hand out nothing more of a cell; return the spans of rows that are left out."""
        cell, batches = self.cells[place], self._batches[place]
        spans = [(unit.start, unit.stop) for at, unit in self._again if at == place]
        self._again = [(at, unit) for at, unit in self._again if at != place]
        if batches:
            size = batch_rows(cell)
            spans.append((batches[0] * size, min((batches[-1] + 1) * size, cell.info.rows)))
        self._batches[place] = []
        return spans

    @property
    def empty(self) -> bool:
        """Whether everything is handed out."""
        return not self._again and not any(self._batches)


class _Run:
    """One run of some cells on an engine, into a store."""

    def __init__(
        self,
        pending: Sequence[tuple[Cell, Mask]],
        store: Store,
        engine: Engine,
        progress: Progress,
        stop: threading.Event,
        update: Callable[[], None],
        say: Say,
        about: Mapping[str, str],
    ) -> None:
        self.store, self.engine, self.progress, self.about = store, engine, progress, about
        self.stop, self.update, self.say = stop, update, say
        self.cells = [cell for cell, _ in pending]
        self.missing = [mask.copy() for _, mask in pending]
        self.stored = [store.stored(cell.info.key) for cell in self.cells]
        self.backlog = Backlog(pending, progress, engine.size, not engine.remote)
        self.summary = RunSummary()
        self.executors: dict[int, WorkerExecutor] = {}
        self.idle: set[int] = set()
        self.starting: dict[Future[Introduction], int] = {}
        self.running: dict[Future[UnitResult], tuple[int, int, Unit]] = {}  # the worker, the place of the cell
        self.provenance: dict[int, dict[str, Any]] = {}
        self.runs: list[tuple[dict[str, Any], int]] = []
        self.examined: Counter[int] = Counter()
        self.starts: Counter[int] = Counter()  # how often a worker died before it was ready, in a row
        self.errors: Counter[int] = Counter()  # how often a worker raised, in a row
        self.failures: Counter[int] = Counter()  # units of a cell that failed
        self.succeeded: set[int] = set()
        self.retried: set[int] = set()

    def run(self) -> RunSummary:
        """Go on until everything is stored or has failed, or somebody asks to stop."""
        try:
            for worker in range(self.engine.size):
                self._start(worker)
            self._loop()
        except KeyboardInterrupt:
            self.stop.set()
        finally:
            for executor in self.executors.values():
                executor.end()
        self.summary.interrupted = self.stop.is_set()
        self.store.note_progress({})
        return self.summary

    def _loop(self) -> None:
        patience = time.monotonic() + PATIENCE
        while self.running or not (self.stop.is_set() or self.backlog.empty):
            if not self.stop.is_set():
                self._feed()
            waiting: list[Future[Any]] = [*self.starting, *self.running]
            done, _ = wait(waiting, timeout=TICK, return_when=FIRST_COMPLETED)
            for future in done:
                self._hear(future)
            if not self.provenance and time.monotonic() > patience:
                self.say(f"no worker is ready yet: {self.engine.size} are starting, or wait for room on the cluster")
                patience = float("inf")

    def _start(self, worker: int) -> None:
        self.idle.discard(worker)
        self.executors[worker] = self.engine.start(worker)
        self.starting[self.executors[worker].submit(introduce)] = worker

    def _feed(self) -> None:
        """Hand a unit to every idle worker, as long as there are any."""
        for worker in sorted(self.idle):
            taken = self.backlog.take(worker)
            if taken is None:
                return
            place, unit = taken
            if not self.examined[place]:
                self.store.retry(unit.cell.info.key)
            # The doctor runs once for a cell, and once more if its worker died, perhaps of it.
            examine = self.examined[place] == 0 or (self.examined[place] == 1 and unit.tries > 0)
            self.examined[place] += examine
            self.idle.discard(worker)
            self.progress.begin(place)
            self.update()
            unit = replace(unit, examine=examine)
            try:
                self.running[self.executors[worker].submit(attack_unit, unit)] = worker, place, unit
            except BrokenExecutor:  # it died while it was idle
                self.backlog.again(place, replace(unit, tries=unit.tries - 1))
                self.executors[worker].end()
                self._replace(worker)
            faults.reach("unit.sent")

    def _hear(self, future: Future[Any]) -> None:
        faults.reach("unit.heard")
        error = future.exception()
        if future in self.starting:
            worker = self.starting.pop(future)
            if error is None:
                self._accept(worker, future.result())
            else:
                self._start_again(worker, self.executors[worker].end() or one_line(error))
            return
        worker, place, unit = self.running.pop(future)
        if isinstance(error, BrokenExecutor):
            how = self.executors[worker].end()
            self._failed(place, unit, how)
            self._replace(worker)
            return
        # Any other error comes from sending the unit or its result.
        result = future.result() if error is None else UnitResult(error=repr(error), line=one_line(error))
        self._store(worker, place, result)
        self.idle.add(worker)
        if not result.error:
            self.errors[worker] = 0
            self.succeeded.add(place)
            return
        self.errors[worker] += 1
        left = [rows.start for rows in unit.batches() if self.missing[place][rows].any()]
        self._failed(place, replace(unit, start=min(left, default=unit.start)), result.line, result.error)
        if self.errors[worker] > 1 and self.engine.remote:  # its device may be in a state in which everything fails
            self.executors[worker].end()
            self._replace(worker)

    def _accept(self, worker: int, found: Introduction) -> None:
        """Let a worker in that has the versions of this process."""
        self.starts[worker] = 0
        if why := differences(found.provenance):
            self._dismiss(worker, f"{why} (on {found.place})")
            return
        self.provenance[worker] = found.provenance
        self.idle.add(worker)

    def _start_again(self, worker: int, how: str) -> None:
        """Start a worker that died before it was ready once more, or go on without it."""
        self.starts[worker] += 1
        if self.starts[worker] >= TRIES:
            self._dismiss(worker, f"{how} before it was ready")
            return
        self.say(f"worker {worker}: {how} before it was ready; another one is started")
        self._replace(worker)

    def _replace(self, worker: int) -> None:
        self.provenance.pop(worker, None)
        self.errors[worker] = 0
        self._start(worker)
        faults.reach("worker.replaced")

    def _dismiss(self, worker: int, why: str) -> None:
        """Go on without a worker, if there is another one."""
        self.executors.pop(worker).end()
        self.say(f"worker {worker} is not used: {why}")
        if not self.executors:
            raise NoWorkers(f"no worker can be used: {why}; every machine needs the versions of this run")

    def _failed(self, place: int, unit: Unit, line: str, trace: str = "") -> None:
        """Try a unit again, or note that its rows failed; give a cell up of which nothing succeeds.

        trace   the traceback of an error; nothing for a worker that died
        """
        rows = f"rows {unit.start} to {unit.stop}"
        if unit.tries + 1 < TRIES:
            self.backlog.again(place, unit)
            if not trace or place not in self.retried:  # of an error that may be in every batch, say it once
                self.say(f"{line} at {rows} of {_words(unit.cell)}; they are run again")
            self.retried.add(place)
            return
        whole = f"{rows}: {line}, {TRIES} times"
        short = line if trace else whole
        self._fail(place, unit.start, unit.stop, f"{trace}\n{whole}".strip(), short)
        self.failures[place] += 1
        if self.failures[place] >= GIVE_UP and place not in self.succeeded:
            for start, stop in self.backlog.drop(place):
                self._fail(place, start, stop, f"not tried, since {GIVE_UP} units of this cell failed: {line}", short)

    def _fail(self, place: int, start: int, stop: int, error: str, line: str) -> None:
        key = self.cells[place].info.key
        self.store.fail(key, error, (start, stop), TRIES)
        self.summary.failed[key] = line
        self.progress.drop(place, int(self.missing[place][start:stop].sum()))

    def _store(self, worker: int, place: int, result: UnitResult) -> None:
        """Store what a unit brought in one transaction: of its rows those that are missing."""
        began, key = time.monotonic(), self.cells[place].info.key
        run = self._run_of(worker, self.cells[place])
        with self.store.together():
            if result.findings is not None:
                self.store.diagnose(key, result.findings)
                if result.answers is not None and self.store.answers(key) is None:
                    self.store.keep_answers(key, torch.tensor(result.answers, device="cpu"))
            new = [self._store_batch(run, place, batch) for batch in result.batches]
            if self.progress.due():
                self.store.note_progress(self.progress.note() | {"cells": [c.info.key for c in self._at_work()]})
        for batch, rows in zip(result.batches, new, strict=True):
            self.missing[place][batch.positions] = False
            self.stored[place][batch.positions] = True
            self.progress.add(place, rows, batch.seconds)
            self.summary.rows += rows
        self.summary.writing += time.monotonic() - began
        self.update()

    def _store_batch(self, run: int, place: int, batch: Batch) -> int:
        key, positions = self.cells[place].info.key, batch.positions
        if batch.trace is not None:
            self.store.append_trace(key, int(positions[0]), batch.trace)
        lacking = np.flatnonzero(~self.stored[place][positions])
        if len(lacking):
            self.store.append(
                key,
                positions[lacking],
                batch.facts.take(lacking),
                run=run,
                peak_device=batch.peak_device,
                peak_process=batch.peak_process,
            )
        return int(self.missing[place][positions].sum())

    def _at_work(self) -> list[Cell]:
        return [unit.cell for _, _, unit in self.running.values()]

    def _run_of(self, worker: int, cell: Cell) -> int:
        """Return the number of the run that facts go with: it says where and how they were computed."""
        q, found = cell.question, self.provenance[worker]
        how = {"prepare": "none" if q.trace else q.prepare, "batch_size": batch_rows(cell)}
        made = {name: value for name, value in found.items() if name != "began"} | how
        known = next((run for known, run in self.runs if known == made), None)
        if known is None:
            known = self.store.begin({**found, **how, **self.about})
            self.runs.append((made, known))
        return known


def _words(cell: Cell) -> str:
    return f"{cell.info.attack} against {cell.info.model}"


def differences(provenance: Mapping[str, Any]) -> str:
    """Return in which versions a worker differs from this process; nothing if its facts are as good as ours."""
    return "; ".join(
        f"it has {name} {provenance.get(name)}, this run {value}"
        for name, value in versions().items()
        if provenance.get(name) != value
    )


@contextmanager
def interruptible(say: Say | None = None, grace: float = GRACE) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets; a second one, or `grace` seconds, interrupt what is running."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread only
        return
    timer = threading.Timer(grace, _thread.interrupt_main)
    timer.daemon = True

    def stopping(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        timer.start()
        if say is not None:
            say(f"stopping within {grace:g} seconds (Ctrl-C again: at once)")

    before = signal.signal(signal.SIGINT, stopping)
    try:
        yield stop
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
