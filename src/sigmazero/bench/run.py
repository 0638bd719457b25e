"""Run what is missing: cell by cell, batch by batch, each finished batch stored before the next begins.

Batches are cut from all rows of a cell, never from what is left over: a resumed run repeats the batches of an
uninterrupted one, and on the same machine gets the same bits. This is the only place that writes facts.
"""

import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import numpy as np
import torch
from numpy.typing import NDArray

from sigmazero.bench.adopt import adopt
from sigmazero.bench.answers import same_answers
from sigmazero.bench.cells import Cell, Loader
from sigmazero.bench.provenance import provenance
from sigmazero.bench.worker import Attacked, Worker
from sigmazero.run.progress import Advance, bar
from sigmazero.store.store import Store, StoreError

Say = Callable[[str], None]
Mask = NDArray[np.bool_]


@dataclass
class RunSummary:
    """What a call did: rows stored, cells that raised (with the error's first line), whether it was stopped."""

    rows: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def execute(
    cells: Sequence[Cell],
    store: Store,
    loader: Loader,
    *,
    title: str = "run",
    progress: bool = False,
    say: Say | None = None,
) -> RunSummary:
    """Run all rows of these cells that the store does not have yet. Ctrl-C stops after the batch in flight."""
    adopt(cells, store)
    store.register([cell.info for cell in cells])
    worker, summary = Worker(loader), RunSummary()
    for cell in cells:
        _recognise(cell, store, worker)
    waiting = [cell for cell in cells if not ready(cell, store).all()]
    if not waiting:
        return summary
    left = sum(int((~ready(cell, store)).sum()) for cell in waiting)
    run = store.begin(provenance(loader.device))
    with interruptible(say) as stop, bar(title, left, show=progress) as advance:
        for cell in waiting:
            _run_cell(cell, store, worker, run, summary, stop, advance)
            if stop.is_set():
                summary.interrupted = True
                break
    return summary


def _recognise(cell: Cell, store: Store, worker: Worker) -> None:
    """Refuse to go on from facts of a model that answered otherwise, though its weights and its code are the same."""
    stored = store.answers(cell.info.key)
    if stored is None:
        return
    fresh = worker.answers(cell)
    if fresh is None or not same_answers(stored, fresh):
        raise ValueError(
            f"{cell.info.model} answers otherwise than when {store.path} was filled, though its weights and its code "
            "are the same: a value that it reads, or a module that it imports, has changed. Run into another store"
        )


def ready(cell: Cell, store: Store) -> Mask:
    """Which rows of a cell need not run: their facts are stored and, where asked for, their traces."""
    done = store.stored(cell.info.key)
    return done & store.traced(cell.info.key) if cell.question.trace else done


def _run_cell(
    cell: Cell, store: Store, worker: Worker, run: int, summary: RunSummary, stop: threading.Event, advance: Advance
) -> None:
    key, known = cell.info.key, ready(cell, store)
    try:
        _examine(cell, store, worker)
        for attacked in worker.attack(cell, slice(0, cell.info.rows), torch.from_numpy(known)):
            _write(store, key, attacked, run)
            new = int((~known[attacked.places]).sum())
            summary.rows += new
            advance(new)
            if stop.is_set():
                return
    except StoreError:
        raise
    except Exception as error:
        # Whatever an attack or a model raises: the cell failed, its error is there to read, and the others go on.
        told = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")  # may name any file
        store.fail(key, told.decode())
        summary.failed[key] = (str(error) or type(error).__name__).splitlines()[0]


def _examine(cell: Cell, store: Store, worker: Worker) -> None:
    """Keep what the doctor says of a cell's model, and the answers by which it is recognised later."""
    store.diagnose(cell.info.key, worker.diagnose(cell))
    if store.answers(cell.info.key) is None and (answers := worker.answers(cell)) is not None:
        store.keep_answers(cell.info.key, answers)


def _write(store: Store, key: str, attacked: Attacked, run: int) -> None:
    """Store what a batch brought; of its facts those that are missing, which may be a part if batches changed size."""
    if attacked.trace is not None:  # before the facts: should the process end in between, both are made again
        store.append_trace(key, int(attacked.places[0]), attacked.trace)
    missing = np.flatnonzero(~store.stored(key)[attacked.places])
    if not len(missing):
        return
    store.append(
        key,
        attacked.places[missing],
        attacked.facts.take(missing),
        run=run,
        seconds=attacked.seconds * len(missing) / len(attacked.facts),
        peak_device=attacked.peak_device,
        peak_process=attacked.peak_process,
    )


@contextmanager
def interruptible(say: Say | None = None) -> Iterator[threading.Event]:
    """Yield an event that the first Ctrl-C sets; a second one interrupts at once."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals reach the main thread only
        return

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        if say is not None:
            say("stopping after this batch (Ctrl-C again: at once)")

    before = signal.signal(signal.SIGINT, asked)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
