"""Engines start workers. Each worker has its own executor: if it dies, the lost unit is known.

`Here` works in this process; `Processes` starts a process for each worker, `RayWorkers` an actor.
"""

from __future__ import annotations

import copy
import faulthandler
import multiprocessing
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import torch

import sigmazero
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import DataSpec, ModelSpec
from sigmazero.bench.worker import Worker
from sigmazero.core import faults
from sigmazero.core.extras import require
from sigmazero.core.messages import one_line
from sigmazero.core.source import is_own

Name = Literal["local", "processes", "ray"]
Spec = ModelSpec | DataSpec
CONNECT = 10.0  # seconds in which a Ray cluster must answer
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


# Ray ------------------------------------------------------------------------------------------------------------------
#
# This process loads models and rows once. They reach the actors through Ray's object store, and this package through
# Ray's runtime environment. So other machines need the same versions of Python, torch, numpy and Ray, but no files.
# Ray runs any code that it is sent. A Ray that is started here listens on this machine alone and asks for a token.


class Actor:
    """A worker in a Ray process, which sees one CUDA device or none."""

    def __init__(self, device: str, trust: Any, fault: str) -> None:
        faults.arm(fault)
        faults.reach("worker.begun")
        torch.set_num_threads(1)
        self._worker = Worker(Loader(device, trust=trust), foreign=True)

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], shared: dict[Spec, Any]) -> Any:
        """Call a method of the worker; first fetch the unit's model and rows if it lacks them."""
        loader = self._worker.loader
        if not all(map(loader.has, shared)):
            loader.take_back()  # make room first
            for spec, reference in shared.items():
                value = require("ray", "ray", "this worker").get(reference)
                if isinstance(spec, ModelSpec):
                    loader.give_model(spec, value.to(loader.device))
                else:
                    loader.give_rows(spec, value)
        return fn(self._worker, *args)


class RayExecutor(WorkerExecutor):
    """An executor over one actor; the actor's death becomes a `BrokenExecutor`."""

    def __init__(self, engine: RayWorkers, actor: Any) -> None:
        self._engine, self._actor, self._end = engine, actor, "its worker ended"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Call a method of the worker on the actor, with references to the model and the rows of its unit."""
        future: Future[Any] = Future()

        def done(answer: Future[Any]) -> None:
            error = answer.exception()
            if isinstance(error, self._engine.ray.exceptions.RayActorError):
                self._end = f"its worker died ({' '.join(str(error).split())[-200:]})"
                error = BrokenExecutor(self._end)
            if error is None:
                future.set_result(answer.result())
            else:
                future.set_exception(error)

        try:
            shared: dict[Spec, Any] = {}
            for unit in args:
                question = unit.cell.question
                shared |= {spec: self._engine.reference(spec) for spec in (question.model, question.data)}
            self._actor.call.remote(fn, args, shared).future().add_done_callback(done)
        except Exception as error:  # a model that cannot be pickled may raise anything
            future.set_exception(error)
        return future

    def end(self) -> str:
        """Kill the actor."""
        self._engine.ray.kill(self._actor)
        return self._end


class RayWorkers(Engine):
    """Actors on the cluster at an address, or on one that is started here and ends with the run."""

    def __init__(self, loader: Loader, workers: int | None = None, address: str | None = None) -> None:
        package = str(Path(sigmazero.__file__).parent)
        environment = {"py_modules": [package], "env_vars": {"OMP_NUM_THREADS": "1"}}
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "runtime_env": environment}
        if address is None:
            # Without this Ray replaces 127.0.0.1 by the machine's address; it is read when Ray is imported.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            options |= {
                "include_dashboard": False,
                "_node_ip_address": "127.0.0.1",
                "num_cpus": workers or usable_cores(),
            }
        self.ray = require("ray", "ray", "the engine 'ray'", "; or use the engine 'processes'")
        if address not in (None, "auto"):
            _check_address(str(address))
        try:
            self.ray.init(address or "local", **options)
        except Exception as error:  # of many types: no cluster, another version, no token
            where = address or "this machine"
            raise RuntimeError(f"no Ray cluster can be used at {where}: {one_line(error)}") from error
        self.loader, self._gpus = loader, int(loader.device.type == "cuda")
        room = self.ray.cluster_resources()
        self.size = workers or max(int(room.get("GPU" if self._gpus else "CPU", 1)), 1)
        self._references: dict[Spec, Any] = {}

    def start(self, number: int) -> WorkerExecutor:
        """Ask for an actor, which starts when the cluster has room. The run replaces dead ones, not Ray."""
        actor = self.ray.remote(num_cpus=1, num_gpus=self._gpus, max_restarts=0)(Actor)
        return RayExecutor(self, actor.remote(self.loader.device.type, self.loader.trust, faults.of_next_worker()))

    def reference(self, spec: Spec) -> Any:
        """Return Ray's reference to a model or to rows; the first time, put them into its object store."""
        if spec not in self._references:
            self._references[spec] = self.ray.put(self._value(spec))
            self.loader.release()
        return self._references[spec]

    def _value(self, spec: Spec) -> Any:
        if isinstance(spec, DataSpec):
            return self.loader.rows(spec)
        network = copy.deepcopy(self.loader.model(spec)).cpu()
        # Other machines do not have the user's own files, so classes in them travel by value.
        for name, module in list(sys.modules.items()):
            if name != "__main__" and is_own(Path(getattr(module, "__file__", None) or "")):
                self.ray.cloudpickle.register_pickle_by_value(module)
        return network

    def close(self) -> None:
        """Disconnect; a cluster that was started here ends."""
        self._references.clear()
        self.ray.shutdown()


def _check_address(address: str) -> None:
    """Refuse an address that does not answer: Ray would try for a quarter of an hour."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()
    except (OSError, ValueError, OverflowError) as error:
        raise ValueError(
            f"nothing answers at {address} ({error}); give auto or HOST:PORT, as ray start prints it"
        ) from error


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
    return RayWorkers(loader, workers, address)
