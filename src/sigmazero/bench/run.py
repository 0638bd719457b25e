"""Run what is missing: cell by cell, batch by batch, each finished batch stored before the next begins.

Batches are cut by their size from row 0 on, never from what is left over: a resumed run repeats the batches of an
uninterrupted one, and on the same machine gets the same bits.
"""

import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.bench.cells import Cell, Loader, in_format
from sigmazero.bench.provenance import peak_device, peak_process, provenance, reset_peak
from sigmazero.bench.recorder import Recorder
from sigmazero.core.inputs import make_problem
from sigmazero.core.result import Result
from sigmazero.data import Rows
from sigmazero.models.doctor import CODES, ROWS, examine
from sigmazero.run.hardware import Precision
from sigmazero.run.progress import Advance, bar
from sigmazero.store.facts import Facts
from sigmazero.store.store import Store

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
    stored = {cell.info.key: ready(cell, store) for cell in cells}
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


def ready(cell: Cell, store: Store) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which rows of a cell need not run: their facts are stored and, where asked for, their traces."""
    done = store.stored(cell.info.key)
    return done & store.traced(cell.info.key) if cell.question.trace else done


def _run_cell(
    cell: Cell, store: Store, loader: Loader, run: int, report: Report, stop: threading.Event, advance: Advance
) -> None:
    key, size = cell.info.key, 1 if cell.question.trace else cell.question.batch_size
    done, skip = store.stored(key), ready(cell, store)
    inputs: Inputs | None = None
    for start in range(0, cell.info.rows, size):
        span = slice(start, min(start + size, cell.info.rows))
        if stop.is_set():
            return
        if skip[span].all():
            continue
        reset_peak(loader.device)
        try:
            if inputs is None:
                inputs = load_inputs(cell, loader)
                store.diagnose(key, diagnosis(inputs, cell.question.batch_size))
            recorder = _recorder(cell, inputs, span) if cell.question.trace else None
            result = _attack(cell, inputs, span, recorder)
        except Exception as error:
            # Whatever an attack or a model raises: the cell failed, its error is there to read, and the others go on.
            store.fail(key, "".join(traceback.format_exception(error)))
            report.failed[key] = (str(error) or type(error).__name__).splitlines()[0]
            return
        targets = None if inputs.targets is None else inputs.targets[span]
        facts = Facts.from_result(result, inputs.rows.labels[span], targets, inputs.x[span])
        if recorder is not None:  # before the facts: should the process end in between, both are made again
            store.append_trace(key, start, recorder.trace())
        _store(store, key, start, facts, done[span], run=run, seconds=result.seconds, device=loader.device)
        new = int((~skip[span]).sum())
        report.rows += new
        advance(new)


def load_inputs(cell: Cell, loader: Loader) -> Inputs:
    """Model and rows of a cell, in single precision unless the cell asks for double."""
    q = cell.question
    rows, targets = loader.asked(q.data, q.model, q.target, q.seed)
    network, x = in_format(loader.model(q.model), rows.images.to(loader.device), q.precision)
    y = (rows.labels if targets is None else targets).to(loader.device)
    return Inputs(network, x, y, rows, targets)


def diagnosis(inputs: Inputs, batch_size: int) -> list[dict[str, str]]:
    """What the doctor says of a cell's model: each finding as texts, with what its code means.

    It sees no more rows at a time than an attack does, so that it needs no more memory.
    """
    count = len(inputs.rows)
    picks = torch.linspace(0, count - 1, min(count, batch_size, ROWS)).round().long()
    found = examine(inputs.network, inputs.x[picks.to(inputs.x.device)], inputs.rows.labels[picks])
    return [{**asdict(finding), "about": CODES[finding.code]} for finding in found]


def _recorder(cell: Cell, inputs: Inputs, span: slice) -> Recorder:
    if (precision := cell.question.precision) not in ("fp32", "fp64"):
        raise ValueError(f"a trace needs fp32 or fp64: a search in {precision} rounds the points it asks about")
    return Recorder(inputs.network, make_problem(inputs.x[span], inputs.y[span], targeted=inputs.targets is not None))


def _attack(cell: Cell, inputs: Inputs, span: slice, recorder: Recorder | None = None) -> Result:
    question = cell.question
    precision = "fp32" if question.precision == "fp64" else question.precision  # of the search, in the inputs' type
    return question.attack.run(
        recorder or inputs.network,
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
        capture=None if recorder is None else False,  # a recorded step would be noted once and replayed unseen
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
