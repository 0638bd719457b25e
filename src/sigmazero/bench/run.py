"""Run what is missing: cells on an engine, facts into a store.

Batches are cut from all rows of a cell, never from what is left over: a resumed run repeats the batches of an
uninterrupted one, and on the same machine gets the same bits.
"""

import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from types import FrameType

from sigmazero.bench.answers import same_answers
from sigmazero.bench.cells import Cell, Loader
from sigmazero.bench.drive import Driver, RunSummary, Say
from sigmazero.bench.engines.base import Engine
from sigmazero.bench.engines.local import Local
from sigmazero.bench.progress import Crew
from sigmazero.bench.proofs import recognise_rows
from sigmazero.bench.units import Mask
from sigmazero.bench.worker import Worker
from sigmazero.run.progress import bar
from sigmazero.store.store import Store


def execute(
    cells: Sequence[Cell],
    store: Store,
    loader: Loader,
    *,
    engine: Engine | None = None,
    only: Mapping[str, Mask] | None = None,
    costs: Mapping[str, float] | None = None,
    title: str = "run",
    progress: bool = False,
    say: Say | None = None,
    about: Mapping[str, str] | None = None,
) -> RunSummary:
    """Run all rows of these cells that the store does not have yet. Ctrl-C keeps what is finished.

    engine   where to run them; this process by default
    only     which rows to run, by the key of the cell; all by default
    costs    what a row of each cell costs compared with others, as estimated: workers begin with what takes longest
    about    what to note with the provenance of the facts
    """
    if only is not None:
        cells = [cell for cell in cells if only[cell.info.key].any()]
    store.register([cell.info for cell in cells])
    recognise_rows(store, loader)  # where something is proved already, it stands beside these cells too
    worker = Worker(loader)
    engine = Local(worker) if engine is None else engine
    with closing(engine):
        if not engine.whole:
            _refuse_given(cells, loader)
        for cell in cells:
            _recognise(cell, store, worker)
        waiting = [(cell, rows) for cell in cells if (rows := _missing(cell, store, only)).any()]
        if not waiting:
            return RunSummary()
        crew = Crew(sum(int(rows.sum()) for _, rows in waiting))
        what, words = ("after this batch", None) if engine.whole else ("the workers", crew.words)
        with interruptible(say, what) as stop, bar(title, crew.total, show=progress, words=words) as advance:
            driver = Driver(
                [cell for cell, _ in waiting],
                [rows for _, rows in waiting],
                store,
                engine,
                crew,
                stop=stop,
                advance=advance,
                say=say or _quiet,
                estimate=None if costs is None else lambda cell: costs[cell.info.key],
                about=about or {},
            )
            return driver.run()


def _quiet(text: str) -> None:
    """Say nothing."""
    del text


def _refuse_given(cells: Sequence[Cell], loader: Loader) -> None:
    """Refuse what is in the memory of this process alone."""
    for spec in (spec for cell in cells for spec in (cell.question.model, cell.question.data)):
        if loader.has(spec):
            raise ValueError(
                f"{spec.name} is in the memory of this process, where no other worker can load it; name a file or a "
                "known one, such as file.py:build, or use the engine 'local'"
            )


def _missing(cell: Cell, store: Store, only: Mapping[str, Mask] | None) -> Mask:
    """The rows of a cell to be run: those that are not done, of those that are asked for."""
    return ~ready(cell, store) if only is None else ~ready(cell, store) & only[cell.info.key]


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


@contextmanager
def interruptible(say: Say | None = None, what: str = "after this batch") -> Iterator[threading.Event]:
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
            say(f"stopping {what} (Ctrl-C again: at once)")

    before = signal.signal(signal.SIGINT, asked)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)
