"""Engines start workers. Each worker has its own executor: if it dies, the lost unit is known.

`Here` works in this process; `Processes` starts a process for each worker, `RayWorkers` (in `ray_workers`) an actor.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch

from sigmazero.bench.loader import Loader
from sigmazero.bench.worker import Worker
from sigmazero.core import faults

Name = Literal["local", "processes", "ray"]
CGROUP, GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")  # of cgroups v2


class WorkerExecutor(Executor):
    """An executor with one worker, which runs one call at a time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a method of `Worker` with these arguments."""
        raise NotImplementedError

    def end(self) -> str:
        """Kill the worker at once and return how it ended."""
        raise NotImplementedError


class Engine:
    """Start workers, which are known by their numbers.

    size     how many workers to keep
    remote   whether workers are other processes, which do not share this one's memory
    """

    size: int
    remote = True

    def start(self, number: int) -> WorkerExecutor:
        """Start a worker; calls wait until it is ready."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what the workers share; by default nothing."""


class Here(Engine, WorkerExecutor):
    """This process as an engine with one worker: `submit` returns when the call is done."""

    size, remote = 1, False

    def __init__(self, loader: Loader) -> None:
        self._worker = Worker(loader)

    def start(self, number: int) -> WorkerExecutor:
        """Return this executor."""
        return self

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a method of the worker now. It raises what the method raises."""
        future: Future[Any] = Future()
        future.set_result(fn(self._worker, *args, **kwargs))
        return future

    def end(self) -> str:
        """Do nothing: between two calls nothing runs."""
        return ""


class OneProcess(ProcessPoolExecutor, WorkerExecutor):
    """A pool of one process: a larger pool gives up all calls when one process dies."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call a method of the worker in the other process."""
        return super().submit(_call, fn, *args, **kwargs)

    def end(self) -> str:
        """Kill the process, and return how it ended."""
        process = next(iter((self._processes or {}).values()), None)
        if process is not None:
            process.kill()
        self.shutdown(wait=True, cancel_futures=True)
        code = None if process is None else process.exitcode
        if code is not None and code < 0:
            return f"its worker was killed by {signal.Signals(-code).name}"
        return f"its worker ended with exit code {code}" if code else "its worker ended"


class Processes(Engine):
    """Processes on this machine: by default one for each usable core, or for each CUDA device."""

    def __init__(self, loader: Loader, workers: int | None = None) -> None:
        self.loader, self._devices = loader, [loader.device]
        if str(loader.device) == "cuda":  # without a number: all of them
            self._devices = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
        self.size = workers or (usable_cores() if loader.device.type == "cpu" else len(self._devices))
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        self._context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            self._context.set_forkserver_preload([__name__])

    def start(self, number: int) -> WorkerExecutor:
        """Start a process; the CUDA devices are used in turn."""
        device = self._devices[number % len(self._devices)]
        loader = Loader(device, self.loader.trust)
        return OneProcess(1, self._context, initializer=begin, initargs=(loader, faults.of_next_worker()))


def begin(loader: Loader, fault: str = "") -> None:
    """Make this process a worker with one thread, which ends with the process that started it."""
    faults.arm(fault)
    faults.reach("worker.begun")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the driver decides what happens
    faulthandler.enable()
    torch.set_num_threads(1)  # two busy threads on a core are many times slower than one
    threading.Thread(target=_end_with, args=(multiprocessing.parent_process(),), daemon=True).start()
    _workers.append(Worker(loader, foreign=True))


_workers: list[Worker] = []  # the worker of this process, if `Processes` started it


def _call(method: Callable[..., Any], *args: Any) -> Any:
    return method(_workers[0], *args)


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def usable_cores() -> int:
    """Return how many processor cores this process may use: by affinity, and by the quotas of its control groups."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    lines = GROUPS.read_text().splitlines() if GROUPS.exists() else []
    own = next((CGROUP / line[3:].strip("/") for line in lines if line.startswith("0::")), CGROUP)
    for folder in (CGROUP, own, *own.parents):  # a container may see its own group as the base
        with suppress(OSError, ValueError):  # a file that is not there, or "max": no quota
            quota, period = map(int, (folder / "cpu.max").read_text().split())
            cores = min(cores, quota // period)
    return max(1, cores)


def choose_engine(
    name: Name,
    loader: Loader,
    *,
    workers: int | None = None,
    address: str | None = None,
) -> Engine | None:
    """Return the engine of that name; None for this process.

    address   of a Ray cluster: "auto" for the one on this machine, or HOST:PORT; by default Ray is started here
    """
    if workers is not None and workers < 1:
        raise ValueError(f"workers={workers} must be 1 or more")
    if workers is not None and name == "local":
        raise ValueError("the engine 'local' has one worker, this process; use the engine 'processes' for more")
    if address is not None and name != "ray":
        raise ValueError(f"address={address} has no effect with the engine {name!r}; use the engine 'ray'")
    if name == "local":
        return None
    if name == "processes":
        return Processes(loader, workers)
    from sigmazero.bench.ray_workers import RayWorkers

    return RayWorkers(loader, workers, address)
