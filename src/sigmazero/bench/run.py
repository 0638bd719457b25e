"""Run what is missing: cells to units, units to workers, facts into the store.

Only this process writes the store. A unit is some whole batches of a cell; the facts of a unit are stored in one
transaction. A unit that raises, or whose worker dies, is tried again batch by batch, `TRIES` times in all. Then its
rows are stored as failed, and the run goes on with the other rows.
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
UNIT_SECONDS = 10.0  # of work in one unit for another process
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
                batches = np.unique(np.flatnonzero(missing) // cell.batch_size).tolist()
                jobs[cell.info.key] = _Job(cell, missing, batches, queries(cell.question))
        if not jobs:
            return RunSummary()
        if engine.remote:
            loader.release()  # workers need the memory of the device
        say = say or (lambda text: None)
        counts = Progress(sum(job.left for job in jobs.values()), sum(job.left * job.queries for job in jobs.values()))
        moving = bar(title, counts.pace.total, progress, "queries", lambda: counts.words, say)
        with interruptible(say) as stop, moving as counts.advance:
            return _Run(jobs, store, engine, counts, stop, say, about or {}).run()


def ready(cell: Cell, store: Store) -> Mask:
    """Return which rows of a cell are finished: their facts are stored and, if the cell is traced, their traces."""
    done = store.stored(cell.info.key)
    return done & store.traced(cell.info.key) if cell.question.trace else done


@dataclass
class _Job:
    """A cell that is run: the rows that are missing, and the batches to hand out.

    queries         expected queries of a row
    examined        how often the doctor was run
    failures        units that failed
    succeeded       whether a unit succeeded: then the cell is not given up
    rows, seconds   rows computed so far, and the seconds that workers took for them
    """

    cell: Cell
    missing: Mask
    batches: list[int]
    queries: int
    examined: int = 0
    failures: int = 0
    succeeded: bool = False
    rows: int = 0
    seconds: float = 0.0

    @property
    def left(self) -> int:
        """Return the number of missing rows."""
        return int(self.missing.sum())

    def cut(self, count: int) -> Unit:
        """Take up to `count` consecutive batches."""
        while count > 1 and self.batches[count - 1] != self.batches[0] + count - 1:
            count -= 1
        size = self.cell.batch_size
        start, stop = self.batches[0] * size, (self.batches[count - 1] + 1) * size
        del self.batches[:count]
        return Unit(self.cell, start, min(stop, self.cell.info.rows))


@dataclass
class _Worker:
    """A worker and its executor.

    provenance   its versions, once it is ready
    cell         of its last unit
    unit         the unit that it attacks, if any
    deaths       how often it has died before it was ready
    errors       how many units have failed in a row
    """

    number: int
    executor: WorkerExecutor
    provenance: dict[str, Any] | None = None
    cell: Cell | None = None
    unit: Unit | None = None
    deaths: int = 0
    errors: int = 0


@dataclass
class _Run:
    """One run of some cells on an engine, into a store.

    jobs    the cells, by their keys
    again   failed units, which are handed out first
    runs    the number of each run in the store, by its provenance
    """

    jobs: dict[str, _Job]
    store: Store
    engine: Engine
    progress: Progress
    stop: threading.Event
    say: Say
    about: Mapping[str, str]
    summary: RunSummary = field(default_factory=RunSummary)
    again: list[Unit] = field(default_factory=list)
    workers: dict[int, _Worker] = field(default_factory=dict)
    futures: dict[Future[Any], _Worker] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)

    def run(self) -> RunSummary:
        """Work until everything is stored or has failed, or Ctrl-C is pressed."""
        try:
            for number in range(self.engine.size):
                self._start(number)
            self._work()
        except KeyboardInterrupt:
            self.stop.set()
        finally:
            for worker in self.workers.values():
                worker.executor.end()
        self.summary.interrupted = self.stop.is_set()
        self.store.note_progress({})
        return self.summary

    def _work(self) -> None:
        """Hand out units and store their results, until nothing is left; after Ctrl-C, until no worker is busy."""
        while self._running() or not (self.stop.is_set() or self._all_handed_out()):
            if not self.stop.is_set():
                self._hand_out()
            done, _ = wait(self.futures, timeout=TICK, return_when=FIRST_COMPLETED)
            for future in done:
                self._receive(self.futures.pop(future), future)

    def _all_handed_out(self) -> bool:
        return not self.again and not any(job.batches for job in self.jobs.values())

    def _running(self) -> list[str]:
        """Return the keys of the cells that workers attack now."""
        return [worker.unit.cell.info.key for worker in self.workers.values() if worker.unit is not None]

    # Handing out units ----------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Give a unit to every idle worker."""
        for worker in sorted(self.workers.values(), key=lambda worker: worker.number):
            if worker.provenance is None or worker.unit is not None:
                continue
            unit = self._take(worker)
            if unit is None:
                return
            job = self._job(unit)
            if not job.examined:
                self.store.retry(unit.cell.info.key)
            # The doctor runs once for a cell, and again if that worker died: the doctor may have killed it.
            examine = job.examined == 0 or (job.examined == 1 and unit.tries > 0)
            job.examined += examine
            worker.cell, worker.unit = unit.cell, replace(unit, examine=examine)
            self.progress.begin(unit.cell)
            try:
                self.futures[worker.executor.submit(Worker.attack, worker.unit)] = worker
            except BrokenExecutor:  # it died while it was idle
                worker.unit = None
                self._again(unit, unit.tries)
                self._replace(worker)
            faults.reach("unit.sent")

    def _job(self, unit: Unit) -> _Job:
        return self.jobs[unit.cell.info.key]

    def _take(self, worker: _Worker) -> Unit | None:
        """Return the next unit for a worker; None if everything is handed out."""
        if self.again:
            return self.again.pop(0)
        left = [job for job in self.jobs.values() if job.batches]
        if not left:
            return None
        if not self.engine.remote:
            return left[0].cut(1)
        job = max(left, key=lambda job: self._priority(job, worker))
        # One batch of a new cell, to time it; later as many as take about ten seconds, but no more than a fair share.
        fair, batch = -(-len(job.batches) // self.engine.size), job.seconds * job.cell.batch_size
        count = min(int(UNIT_SECONDS * job.rows / max(batch, 1e-9)), fair) if job.rows else 1
        return job.cut(max(count, 1))

    def _priority(self, job: _Job, worker: _Worker) -> tuple[int, float]:
        """Rate a cell for a worker: first those it has loaded, then those with most queries left for each worker."""
        q, loaded = job.cell.question, 0
        if worker.cell is not None:
            last = worker.cell.question
            model = last.model == q.model
            loaded = (worker.cell is job.cell) + (model and last.data == q.data) + model
        others = [other.cell for other in self.workers.values() if other is not worker and other.cell is not None]
        same = sum(cell.question.model == q.model for cell in others)
        return loaded, job.left * job.queries / (1 + same)

    def _again(self, unit: Unit, tries: int) -> None:
        """Queue a failed unit again, batch by batch."""
        self.again += [replace(unit, start=rows.start, stop=rows.stop, tries=tries) for rows in unit.batches()]

    # Workers that come and go ---------------------------------------------------------------------------------------

    def _start(self, number: int, deaths: int = 0) -> None:
        worker = _Worker(number, self.engine.start(number), deaths=deaths)
        self.workers[number] = worker
        self.futures[worker.executor.submit(Worker.introduce)] = worker

    def _replace(self, worker: _Worker) -> None:
        """Start a new worker in place of one that died or keeps failing."""
        worker.executor.end()
        self._start(worker.number, worker.deaths)
        faults.reach("worker.replaced")

    def _dismiss(self, worker: _Worker, why: str) -> None:
        """Go on without a worker; raise `NoWorkers` if it was the last one."""
        self.workers.pop(worker.number).executor.end()
        self.say(f"worker {worker.number} is not used: {why}")
        if not self.workers:
            raise NoWorkers(f"no worker can be used: {why}; every machine needs the versions of this run")

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
            job = self._job(unit)
            self._store(worker, job, result)
            worker.errors = worker.errors + 1 if result.error else 0
            job.succeeded |= not result.error
            if result.error:
                left = [rows.start for rows in unit.batches() if job.missing[rows].any()]
                self._failed(replace(unit, start=min(left, default=unit.start)), result.line, result.error)
            if worker.errors > 1 and self.engine.remote:  # its device may be broken
                self._replace(worker)

    def _introduced(self, worker: _Worker, future: Future[tuple[str, dict[str, Any]]]) -> None:
        """Accept a worker with the versions of this process; replace one that died before it was ready."""
        error = future.exception()
        if error is None:
            host, found = future.result()
            if why := differences(found):
                self._dismiss(worker, f"{why} (on {host})")
            else:
                worker.provenance, worker.deaths = found, 0
            return
        how, worker.deaths = worker.executor.end() or one_line(error), worker.deaths + 1
        if worker.deaths >= TRIES:
            self._dismiss(worker, f"{how} before it was ready")
            return
        self.say(f"worker {worker.number}: {how} before it was ready; another one is started")
        self._replace(worker)

    # Results --------------------------------------------------------------------------------------------------------

    def _failed(self, unit: Unit, line: str, trace: str = "") -> None:
        """Try a unit again, or store that its rows failed; give up a cell in which nothing succeeds.

        trace   the traceback of an error; empty if the worker died
        """
        rows, info, job = f"rows {unit.start} to {unit.stop}", unit.cell.info, self._job(unit)
        final = line.startswith(NUMBERED_OTHERWISE)  # another try would compute wrong figures
        if unit.tries + 1 < TRIES and not final:
            self._again(unit, unit.tries + 1)
            self.say(f"{line} at {rows} of {info.attack} against {info.model}; they are run again")
            return
        whole = f"{rows}: {line}" + ("" if final else f", {TRIES} times")
        short = line if trace else whole
        self._fail(unit, f"{trace}\n{whole}".strip(), short)
        job.failures += GIVE_UP if final else 1
        if job.failures >= GIVE_UP and not job.succeeded:
            rest = [other for other in self.again if other.cell is unit.cell]
            self.again = [other for other in self.again if other.cell is not unit.cell]
            while job.batches:
                rest.append(job.cut(len(job.batches)))
            for part in rest:
                self._fail(part, f"not tried, since {GIVE_UP} units of this cell failed: {line}", short)

    def _fail(self, unit: Unit, error: str, line: str) -> None:
        key, job = unit.cell.info.key, self._job(unit)
        self.store.fail(key, error, (unit.start, unit.stop), TRIES)
        self.summary.failed[key] = line
        self.progress.add(int(job.missing[unit.start : unit.stop].sum()), job.queries, failed=True)

    def _store(self, worker: _Worker, job: _Job, result: UnitResult) -> None:
        """Store the facts of a unit in one transaction."""
        key, run = job.cell.info.key, self._run_of(worker, job.cell)
        with self.store.together():
            if result.findings is not None:
                self.store.diagnose(key, result.findings)
                self._describe(job, result)
                if result.answers is not None and self.store.answers(key) is None:
                    self.store.keep_answers(key, result.answers)
            for batch in result.batches:
                if batch.trace is not None:
                    self.store.append_trace(key, int(batch.positions[0]), batch.trace)
                self.store.append(key, batch.positions, batch.facts, run=run, peak_device=batch.peak_device)
            if self.progress.due():
                self.store.note_progress(self.progress.note() | {"cells": self._running()})
        for batch in result.batches:
            rows = int(job.missing[batch.positions].sum())
            job.missing[batch.positions] = False
            job.rows, job.seconds = job.rows + len(batch.facts), job.seconds + float(batch.facts.seconds.sum())
            self.progress.add(rows, job.queries)
            self.summary.rows += rows

    def _describe(self, job: _Job, result: UnitResult) -> None:
        """Print the doctor's line about a model and its rows, once for all attacks."""
        line = f"{job.cell.info.model} on {job.cell.info.dataset}: {result.seen}"
        if result.seen and line not in self.summary.seen:
            self.summary.seen.append(line)
            self.say(line)

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
