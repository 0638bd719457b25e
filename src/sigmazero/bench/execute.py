"""Run what is missing: cell by cell, batch by batch, each finished batch stored before the next begins.

Batches are cut by their size from row 0 on, never from what is left over: a resumed run repeats the batches of an
uninterrupted one, and on the same machine gets the same bits.
"""

import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.bench.cells import Cell, Loader, in_format
from sigmazero.bench.facts import Facts
from sigmazero.bench.provenance import peak_device, peak_process, provenance, reset_peak
from sigmazero.bench.store import Store
from sigmazero.data import Rows
from sigmazero.engine import Precision
from sigmazero.progress import Advance, bar
from sigmazero.result import Result

Say = Callable[[str], None]


@dataclass
class Report:
    """What a call did: rows stored, cells that raised (with the error's first line), whether it was stopped."""

    rows: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


@dataclass(frozen=True)
class Inputs:
    """A cell's rows on the device, in its number format."""

    network: nn.Module
    x: Tensor
    y: Tensor
    rows: Rows
    targets: Tensor | None


def execute(
    cells: Sequence[Cell],
    store: Store,
    loader: Loader,
    *,
    title: str = "run",
    progress: bool = False,
    say: Say | None = None,
) -> Report:
    """Run all rows of these cells that the store does not have yet. Ctrl-C stops after the batch in flight."""
    store.register([cell.info for cell in cells])
    stored = {cell.info.key: store.stored(cell.info.key) for cell in cells}
    left = sum(int((~done).sum()) for done in stored.values())
    report = Report()
    if not left:
        return report
    run = store.begin(provenance(loader.device))
    with interruptible(say) as stop, bar(title, left, show=progress) as advance:
        for cell in cells:
            if stored[cell.info.key].all():
                continue
            _run_cell(cell, store, loader, run, report, stop, advance)
            if stop.is_set():
                report.interrupted = True
                break
    return report


def _run_cell(
    cell: Cell, store: Store, loader: Loader, run: int, report: Report, stop: threading.Event, advance: Advance
) -> None:
    key, size = cell.info.key, cell.question.batch_size
    done = store.stored(key)
    inputs: Inputs | None = None
    for start in range(0, cell.info.rows, size):
        span = slice(start, min(start + size, cell.info.rows))
        if stop.is_set():
            return
        if done[span].all():
            continue
        reset_peak(loader.device)
        try:
            inputs = inputs or load_inputs(cell, loader)
            result = _attack(cell, inputs, span)
        except Exception as error:
            # Whatever an attack or a model raises: the cell failed, its error is there to read, and the others go on.
            store.fail(key, "".join(traceback.format_exception(error)))
            report.failed[key] = (str(error) or type(error).__name__).splitlines()[0]
            return
        targets = None if inputs.targets is None else inputs.targets[span]
        facts = Facts.from_result(result, inputs.rows.labels[span], targets, inputs.x[span])
        _store(store, key, start, facts, done[span], run=run, seconds=result.seconds, device=loader.device)
        new = int((~done[span]).sum())
        report.rows += new
        advance(new)


def load_inputs(cell: Cell, loader: Loader) -> Inputs:
    """Model and rows of a cell, in single precision unless the cell asks for double."""
    q = cell.question
    rows, targets = loader.asked(q.data, q.model, q.target, q.seed)
    network, x = in_format(loader.model(q.model), rows.images.to(loader.device), q.precision)
    y = (rows.labels if targets is None else targets).to(loader.device)
    return Inputs(network, x, y, rows, targets)


def _attack(cell: Cell, inputs: Inputs, span: slice) -> Result:
    question = cell.question
    precision = "fp32" if question.precision == "fp64" else question.precision  # of the search, in the inputs' type
    return question.attack.run(
        inputs.network,
        inputs.x[span],
        inputs.y[span],
        targeted=inputs.targets is not None,
        unit=question.unit,
        budget=question.budget,
        batch_size=span.stop - span.start,
        seed=question.seed,
        ids=inputs.rows.ids[span],
        pool=inputs.x,
        precision=cast(Precision, precision),
    )


def _store(
    store: Store,
    key: str,
    start: int,
    facts: Facts,
    done: np.ndarray[Any, np.dtype[np.bool_]],
    *,
    run: int,
    seconds: float,
    device: torch.device,
) -> None:
    """Append the rows of a batch that the store lacks; all of them, unless batches had another size before."""
    edges = np.flatnonzero(np.diff(np.concatenate([[True], done, [True]])))
    for first, last in edges.reshape(-1, 2).tolist():
        part = facts if last - first == len(facts) else facts.take(slice(first, last))
        store.append(
            key,
            start + first,
            part,
            run=run,
            seconds=seconds * len(part) / len(facts),
            peak_device=peak_device(device),
            peak_process=peak_process(),
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
