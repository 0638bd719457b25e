"""Processes on this machine, each with a pipe to the driver.

A pool of our own: those of the standard library and of joblib give up the whole call when a worker dies. Tasks and
facts travel as pickles through pipes that nobody else can open.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import sys
import tempfile
import threading
from collections import deque
from contextlib import suppress
from multiprocessing import connection, forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from sigmazero.bench.cells import Loader
from sigmazero.bench.engines.base import Gone, Message, Task
from sigmazero.bench.engines.hand import Setup
from sigmazero.core import faults

TAIL = 4000  # bytes of a log that are kept of a worker that died


class Processes:
    """Workers as processes: on a processor one for each core by default, on CUDA devices one for each device."""

    whole = False

    def __init__(self, loader: Loader, workers: int | None = None) -> None:
        self._devices = _devices(loader.device)
        self.loader, self.size = loader, workers or _default(self._devices)
        self._context: Any = _context()
        self._logs = tempfile.TemporaryDirectory(prefix="sigmazero-")
        self._workers: dict[int, tuple[Any, Connection]] = {}
        self._said: deque[tuple[int, Message]] = deque()

    def setup(self, worker: int) -> Setup:
        """What a worker begins with; CUDA devices are dealt out in turn."""
        one, device = self.loader, self._devices[worker % len(self._devices)]
        return Setup(Loader(device, one.model_dir, one.data_dir, one.trust), fault=faults.of_next_worker())

    def open(self, worker: int) -> None:
        """Start a process."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(self.setup(worker), theirs, self._log(worker)))
        process.start()
        theirs.close()  # so that we notice when the process ends
        self._workers[worker] = process, ours

    def send(self, worker: int, task: Task) -> None:
        """Hand a task to a process; if it is dead, `wait` will say so."""
        with suppress(OSError):
            self._workers[worker][1].send(task)

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        """What the processes said, and which of them ended."""
        by_pipe = {pipe: worker for worker, (_, pipe) in self._workers.items()}
        said: list[tuple[int, Message]] = []
        for pipe in connection.wait(list(by_pipe), timeout=seconds):
            assert isinstance(pipe, Connection)
            worker = by_pipe[pipe]
            try:
                said.append((worker, pipe.recv()))
            except (EOFError, OSError):
                said.append((worker, self._bury(worker)))
        return said

    def _bury(self, worker: int) -> Gone:
        process, pipe = self._workers.pop(worker)
        pipe.close()
        process.kill()  # it may have closed its pipe and live on
        process.join()
        code = process.exitcode
        ended = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        log = Path(self._log(worker))
        tail = log.read_bytes()[-TAIL:].decode(errors="backslashreplace") if log.exists() else ""
        process.close()
        return Gone(f"its worker {ended}", tail.strip())

    def _log(self, worker: int) -> str:
        return str(Path(self._logs.name) / f"{worker}.log")

    def close(self) -> None:
        """Kill all processes; what they said last and nobody heard is done again another time."""
        for process, _ in self._workers.values():
            process.kill()
        for worker in list(self._workers):
            self._bury(worker)
        self._logs.cleanup()


def _context() -> Any:
    """How processes are started: by a server that has imported everything once, so that each takes moments."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))  # it is to find our modules where we do
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        os.environ.update({} if before is None else {"PYTHONPATH": before})
    return context


def _devices(device: torch.device) -> list[torch.device]:
    """The devices that workers use: all CUDA devices if none is named."""
    if str(device) == "cuda":
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [device]


def _default(devices: list[torch.device]) -> int:
    if devices[0].type != "cpu":
        return len(devices)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _serve(setup: Setup, pipe: Connection, log: str) -> None:
    """The life of a worker. It ends with the driver's end of the pipe, also in the middle of a batch."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides
    with open(log, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(pipe, tasks), daemon=True).start()
    try:
        hand = setup.begin()
        pipe.send(hand.ready())
        while True:
            for message in hand.work(tasks.get()):
                pipe.send(message)
    except BrokenPipeError:
        os._exit(1)


def _listen(pipe: Connection, tasks: queue.SimpleQueue[Task]) -> None:
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)
