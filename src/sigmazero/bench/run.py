"""Run what is missing: cells to units, units to workers, facts into the store.

Only this process writes the store, in one transaction per unit. A unit is a batch of a cell. One that raises, or whose
worker dies, is tried `TRIES` times in all. Then its rows are stored as failed, and the run goes on with the others.
"""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sigmazero.bench.cells import Cell
from sigmazero.bench.forecast import Progress, queries
from sigmazero.bench.loader import Loader
from sigmazero.bench.proofs import recognise_rows
from sigmazero.bench.provenance import versions
from sigmazero.bench.worker import NUMBERED_OTHERWISE, Unit, UnitResult, Worker
from sigmazero.bench.workers import Engine, Here, WorkerExecutor
from sigmazero.core import faults
from sigmazero.core.messages import canonical, one_line
from sigmazero.run.progress import bar
from sigmazero.store.store import Store

Say = Callable[[str], None]
Mask = NDArray[np.bool_]

TRIES = 3  # attempts for each unit, and starts of a worker that dies before it is ready
GIVE_UP = 3  # failed units after which a cell is given up, if none succeeded
GRACE = 5.0  # seconds that running batches have left after Ctrl-C
TICK = 0.25  # seconds between two checks of the stop event


class NoWorkers(RuntimeError):
    """Report that no worker can be used."""


@dataclass
class RunSummary:
    """The outcome of a run: rows stored, cells that failed (with the error's first line), whether it was stopped.

    seen  a line about each model and its rows: clean accuracy, classes, range of the values, gradients
    """

    rows: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False
    seen: list[str] = field(default_factory=list)


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
    """Run the rows of these cells that the store lacks. Ctrl-C keeps what is finished.

    engine   where to run them; this process by default
    only     the rows to run, by the key of the cell; all by default
    about    notes for the provenance of the facts
    """
    if only is not None:
        cells = [cell for cell in cells if only[cell.info.key].any()]
    store.register([cell.info for cell in cells])
    recognise_rows(store, loader)  # so that proofs find the rows of these cells
    engine = Here(loader) if engine is None else engine
    with closing(engine):
        jobs: dict[str, _Job] = {}
        for cell in cells:
            missing = ~ready(cell, store) & (True if only is None else only[cell.info.key])
            if missing.any():
                jobs[cell.info.key] = _Job(cell, missing, units(cell, missing), queries(cell.question))
        if not jobs:
            return RunSummary()
        if engine.remote:
            loader.release()  # workers need the memory of the device
        say = say or (lambda text: None)
        rows = {key: int(job.missing.sum()) for key, job in jobs.items()}
        counts = Progress(sum(rows.values()), sum(rows[key] * job.queries for key, job in jobs.items()))
        moving = bar(title, counts.pace.total, progress, "queries", lambda: counts.words, say)
        with interruptible(say) as stop, moving as counts.advance:
            return _Run(jobs, store, engine, counts, stop, say, about or {}).run()


def ready(cell: Cell, store: Store) -> Mask:
    """Return which rows of a cell are finished: their facts are stored and, if the cell is traced, their traces."""
    done = store.stored(cell.info.key)
    return done & store.traced(cell.info.key) if cell.question.trace else done


def units(cell: Cell, missing: Mask) -> list[Unit]:
    """Return the batches of a cell that have missing rows; with the first one the doctor examines the model."""
    size, rows = cell.batch_size, cell.info.rows
    starts = (np.unique(np.flatnonzero(missing) // size) * size).tolist()
    return [Unit(cell, start, min(start + size, rows), examine=start == starts[0]) for start in starts]


@dataclass
class _Job:
    """A cell that is run: its missing rows, the units to hand out, and the expected queries of a row.

    failures    units that failed
    succeeded   whether a unit succeeded: then the cell is not given up
    """

    cell: Cell
    missing: Mask
    units: list[Unit]
    queries: int
    failures: int = 0
    succeeded: bool = False


@dataclass
class _Worker:
    """A worker and its executor.

    provenance   its versions, once it is ready
    cell         of its last unit
    unit         the unit that it attacks, if any
    deaths       how often it has died before it was ready
    """

    number: int
    executor: WorkerExecutor
    deaths: int = 0
    provenance: dict[str, Any] | None = None
    cell: Cell | None = None
    unit: Unit | None = None


@dataclass
class _Run:
    """One run of some cells, by their keys, on an engine; `runs` has the runs in the store, by their provenance."""

    jobs: dict[str, _Job]
    store: Store
    engine: Engine
    progress: Progress
    stop: threading.Event
    say: Say
    about: Mapping[str, str]
    summary: RunSummary = field(default_factory=RunSummary)
    workers: dict[int, _Worker] = field(default_factory=dict)
    futures: dict[Future[Any], _Worker] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)

    def run(self) -> RunSummary:
        """Work until everything is stored or has failed, or Ctrl-C is pressed."""
        try:
            for number in range(self.engine.size):
                self._start(number)
            # After Ctrl-C only running units are waited for.
            while self._running() or (not self.stop.is_set() and any(job.units for job in self.jobs.values())):
                if not self.stop.is_set():
                    self._hand_out()
                done, _ = wait(self.futures, timeout=TICK, return_when=FIRST_COMPLETED)
                for future in done:
                    self._receive(self.futures.pop(future), future)
        except KeyboardInterrupt:
            self.stop.set()
        finally:
            for worker in self.workers.values():
                worker.executor.end()
        self.summary.interrupted = self.stop.is_set()
        self.store.note_progress({})
        return self.summary

    def _running(self) -> list[str]:
        """Return the keys of the cells that workers attack now."""
        return [worker.unit.cell.info.key for worker in self.workers.values() if worker.unit is not None]

    def _start(self, number: int, deaths: int = 0) -> None:
        worker = _Worker(number, self.engine.start(number), deaths)
        self.workers[number] = worker
        self.futures[worker.executor.submit(Worker.introduce)] = worker

    def _replace(self, worker: _Worker) -> None:
        """Start a new worker in place of one that died or keeps failing."""
        worker.executor.end()
        self._start(worker.number, worker.deaths)
        faults.reach("worker.replaced")

    def _hand_out(self) -> None:
        """Give a unit to every idle worker."""
        for worker in list(self.workers.values()):
            if worker.provenance is None or worker.unit is not None:
                continue
            job = self._choose(worker)
            if job is None:
                return
            unit = job.units.pop(0)
            if unit.examine and not unit.tries:
                self.store.retry(unit.cell.info.key)
            worker.cell, worker.unit = unit.cell, unit
            self.progress.begin(unit.cell)
            try:
                self.futures[worker.executor.submit(Worker.attack, unit)] = worker
            except BrokenExecutor:  # it died while it was idle
                worker.unit = None
                job.units.insert(0, unit)
                self._replace(worker)
            faults.reach("unit.sent")

    def _choose(self, worker: _Worker) -> _Job | None:
        """Return the next cell for a worker: first those that it has loaded, then a model that few others have."""
        last = worker.cell
        others = [each.cell.question.model for each in self.workers.values() if each.cell and each is not worker]

        def priority(job: _Job) -> tuple[bool, bool, int]:
            model = job.cell.question.model
            return job.cell is last, last is not None and last.question.model == model, -others.count(model)

        return max((job for job in self.jobs.values() if job.units), key=priority, default=None)

    def _receive(self, worker: _Worker, future: Future[Any]) -> None:
        """Handle what a worker returns: its versions, the facts of a unit, or its death."""
        faults.reach("unit.heard")
        error, unit = future.exception(), worker.unit
        worker.unit = None
        if unit is None:
            self._introduced(worker, future)
        elif isinstance(error, BrokenExecutor):
            self._failed(unit, worker.executor.end())
            self._replace(worker)
        else:  # an error here comes from sending the unit or its result
            result = future.result() if error is None else UnitResult(error=repr(error), line=one_line(error))
            job = self.jobs[unit.cell.info.key]
            self._store(worker, job, result)
            job.succeeded |= not result.error
            if result.error:
                self._failed(unit, result.line, result.error)
            if result.error and unit.tries and self.engine.remote:  # the worker's device may be broken
                self._replace(worker)

    def _introduced(self, worker: _Worker, future: Future[tuple[str, dict[str, Any]]]) -> None:
        """Accept a worker with the versions of this process; replace one that died before it was ready."""
        error = future.exception()
        if error is None:
            host, worker.provenance = future.result()
            worker.deaths, why = 0, differences(worker.provenance)
            if not why:
                return
            why = f"{why} (on {host})"
        else:
            why, worker.deaths = f"{worker.executor.end() or one_line(error)} before it was ready", worker.deaths + 1
            if worker.deaths < TRIES:
                self.say(f"worker {worker.number}: {why}; another one is started")
                self._replace(worker)
                return
        self.workers.pop(worker.number).executor.end()
        self.say(f"worker {worker.number} is not used: {why}")
        if not self.workers:
            raise NoWorkers(f"no worker can be used: {why}; every machine needs the versions of this run")

    # Results --------------------------------------------------------------------------------------------------------

    def _failed(self, unit: Unit, line: str, trace: str = "") -> None:
        """Try a unit again, or store that its rows failed; give up a cell in which nothing succeeds.

        trace   the traceback of an error; empty if the worker died
        """
        rows, info, job = f"rows {unit.start} to {unit.stop}", unit.cell.info, self.jobs[unit.cell.info.key]
        final = line.startswith(NUMBERED_OTHERWISE)  # another try would compute wrong figures
        if unit.tries + 1 < TRIES and not final:
            # The doctor may have killed the worker: it examines once more, but not a third time.
            job.units.insert(0, replace(unit, tries=unit.tries + 1, examine=unit.examine and not unit.tries))
            self.say(f"{line} at {rows} of {info.attack} against {info.model}; they are run again")
            return
        whole = f"{rows}: {line}" + ("" if final else f", {TRIES} times")
        short = line if trace else whole
        self._fail(unit, f"{trace}\n{whole}".strip(), short)
        job.failures += GIVE_UP if final else 1
        if job.failures >= GIVE_UP and not job.succeeded and job.units:
            rest, job.units = job.units, []
            span = replace(rest[0], start=min(each.start for each in rest), stop=max(each.stop for each in rest))
            self._fail(span, f"not tried, since {GIVE_UP} units of this cell failed: {line}", short)

    def _fail(self, unit: Unit, error: str, line: str) -> None:
        key, job = unit.cell.info.key, self.jobs[unit.cell.info.key]
        self.store.fail(key, error, (unit.start, unit.stop), TRIES)
        self.summary.failed[key] = line
        self.progress.add(int(job.missing[unit.start : unit.stop].sum()), job.queries, failed=True)

    def _store(self, worker: _Worker, job: _Job, result: UnitResult) -> None:
        """Store the facts of a unit in one transaction."""
        key, where = job.cell.info.key, result.positions
        with self.store.together():
            if result.findings is not None:
                self.store.diagnose(key, result.findings)
            if result.answers is not None and self.store.answers(key) is None:
                self.store.keep_answers(key, result.answers)
            if result.trace is not None:
                self.store.append_trace(key, int(where[0]), result.trace)
            run = self._run_of(worker, job.cell)
            self.store.append(key, where, result.facts, run=run, peak_device=result.peak_device)
            self.store.note_progress(self.progress.note() | {"cells": self._running()})
        line = f"{job.cell.info.model} on {job.cell.info.dataset}: {result.seen}"
        if result.seen and line not in self.summary.seen:  # once for all attacks
            self.summary.seen.append(line)
            self.say(line)
        rows = int(job.missing[where].sum())
        job.missing[where] = False
        self.progress.add(rows, job.queries)
        self.summary.rows += rows

    def _run_of(self, worker: _Worker, cell: Cell) -> int:
        """Return the number of the run for new facts; a run records where and how they were computed."""
        q, found = cell.question, worker.provenance or {}
        how = {"prepare": "none" if q.trace else q.prepare, "batch_size": cell.batch_size}
        known = canonical([{**found, "began": None}, how])
        if known not in self.runs:
            self.runs[known] = self.store.begin({**found, **how, **self.about})
        return self.runs[known]


def differences(provenance: Mapping[str, Any]) -> str:
    """Describe how a worker's versions differ from those of this process; empty if they do not."""
    return "; ".join(
        f"it has {name} {provenance.get(name)}, this run {value}"
        for name, value in versions().items()
        if provenance.get(name) != value
    )


@contextmanager
def interruptible(say: Say) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets; a second Ctrl-C, or `GRACE` seconds, interrupt the running batch."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread only
        return
    timer = threading.Timer(GRACE, _thread.interrupt_main)
    timer.daemon = True

    def stopping(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        timer.start()
        say(f"stopping within {GRACE:g} seconds (Ctrl-C again: at once)")

    before = signal.signal(signal.SIGINT, stopping)
    try:
        yield stop
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
