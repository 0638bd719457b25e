"""A worker as engines run it: takes a task, says what it brings."""

from __future__ import annotations

import os
import platform
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch

import sigmazero
from sigmazero.bench.cells import Cell, Loader
from sigmazero.bench.engines.base import Examined, Finished, Message, Raised, Ready, Task
from sigmazero.bench.provenance import provenance
from sigmazero.bench.worker import Worker
from sigmazero.core import faults
from sigmazero.run.numbers import Numbers
from sigmazero.store.batches import pack_facts


@dataclass(frozen=True)
class Setup:
    """What a worker in a process of its own begins with.

    threads   torch's; one each, since two busy threads per core are many times slower than one
    fault     where a test has it killed, as `core.faults` takes it
    """

    loader: Loader
    threads: int = 1
    fault: str = ""

    def begin(self) -> Hand:
        """Make this process a worker."""
        faults.arm(self.fault)
        faults.reach("worker.begun")
        torch.set_num_threads(self.threads)
        return Hand(Worker(self.loader), strict=True)


class Hand:
    """Does one task at a time.

    strict   compare the code of every model with that of the cell: it was loaded in another process, perhaps from
             another disk
    """

    def __init__(self, worker: Worker, *, strict: bool = False) -> None:
        self.worker, self.strict = worker, strict
        self._compared: set[str] = set()

    def ready(self) -> Ready:
        """The first sign of life."""
        return Ready(f"{platform.node()} {os.getpid()}", provenance(self.worker.loader.device), code_hash())

    def work(self, task: Task) -> Iterator[Message]:
        """Do a task, and say what it brings as it comes."""
        faults.reach("unit.taken")
        try:
            self._compare(task.cell)
            if task.examine:
                answers = self.worker.answers(task.cell)
                yield Examined(self.worker.diagnose(task.cell), None if answers is None else answers.numpy())
            with self._numbers(task.cell):
                for made in self.worker.attack(task.cell, slice(task.start, task.stop), torch.from_numpy(task.mask())):
                    # Packed here: the driver is one, and workers are many.
                    told = replace(made, packed=pack_facts(made.facts)) if self.strict else made
                    faults.reach("unit.packed")
                    yield told
        except Exception as error:
            # Whatever an attack or a model raises: it is told, and the worker goes on with the next task.
            trace = "".join(traceback.format_exception(error)).encode(errors="backslashreplace")  # may name any file
            yield Raised(trace.decode(), (str(error) or type(error).__name__).splitlines()[0])
            return
        faults.reach("unit.done")
        yield Finished()

    def _compare(self, cell: Cell) -> None:
        model, asked = cell.question.model, cell.info.identity["model"]["code"]
        known = f"{model} {asked}"
        if not self.strict or known in self._compared:
            return
        if self.worker.loader.code(model) != asked:
            raise ValueError(f"the code of {model.name} is not that which this cell is about; run the plan again")
        self._compared.add(known)

    def _numbers(self, cell: Cell) -> AbstractContextManager[None]:
        """A search without numbers of its own computes as the process that asked for it, which is another one here."""
        if not self.strict or cell.question.precision is not None:
            return nullcontext()
        return Numbers.named(cell.info.precision, self.worker.loader.device).applied()


@cache
def code_hash() -> str:
    """The hash of the package as it is on this disk: two copies of one version may differ."""
    root, found = Path(sigmazero.__file__).parent, sha256()
    for path in sorted(root.rglob("*.py")):
        found.update(f"{path.relative_to(root).as_posix()}\n".encode() + path.read_bytes().replace(b"\r\n", b"\n"))
    return found.hexdigest()
