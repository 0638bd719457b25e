"""Ray: workers on this machine or on a cluster of many, one actor each.

The driver loads models and rows once, and they travel through Ray's object store; this package travels in Ray's runtime
environment. So machines need the same versions of Python, torch, numpy and Ray, and none of the plan's files.

Ray runs whatever it is sent, by anyone who reaches its ports. A Ray that is started here listens on this machine alone,
and lets in only those who have the token of this run.
"""

from __future__ import annotations

import copy
import os
import secrets
import socket
import sys
import sysconfig
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

import torch

import sigmazero
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import DataSpec, ModelSpec
from sigmazero.bench.worker import Unit, Worker, current
from sigmazero.bench.workers import WorkerExecutor
from sigmazero.core import faults
from sigmazero.core.extras import require
from sigmazero.core.messages import one_line

CONNECT = 10.0  # seconds in which a cluster must answer
PACKAGE = Path(sigmazero.__file__).parent
Spec = ModelSpec | DataSpec


class Actor:
    """A worker as Ray keeps it; Ray shows it the CUDA device that it may use."""

    def __init__(self, device: str, trust: Any, fault: str) -> None:
        faults.arm(fault)
        faults.reach("worker.begun")
        torch.set_num_threads(1)
        self._worker = Worker(Loader(device, trust=trust), foreign=True)

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], references: dict[Spec, Any]) -> Any:
        """Call a function, after fetching the model and the rows of its unit, unless they are the last ones."""
        loader = self._worker.loader
        if not all(map(loader.has, references)):
            loader.take_back()  # make room first
            for spec, reference in references.items():
                value = require("ray", "ray", "this worker").get(reference)
                if isinstance(spec, ModelSpec):
                    loader.give_model(spec, value.to(loader.device))
                else:
                    loader.give_rows(spec, value)
        with current(self._worker):
            return fn(*args)


class RayExecutor(WorkerExecutor):
    """An executor over one actor, whose death becomes a `BrokenExecutor`."""

    def __init__(self, engine: RayWorkers, actor: Any) -> None:
        self._engine, self._actor, self._end = engine, actor, "its worker ended"

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Call a function on the actor; the model and the rows of a unit go along as references."""
        questions = [unit.cell.question for unit in args if isinstance(unit, Unit)]
        specs: list[Spec] = [spec for asked in questions for spec in (asked.model, asked.data)]
        references = {spec: self._engine.reference(spec) for spec in specs}
        future: Future[Any] = Future()

        def done(heard: Future[Any]) -> None:
            error = heard.exception()
            if isinstance(error, self._engine.ray.exceptions.RayActorError):
                self._end = f"its worker died ({' '.join(str(error).split())[-200:]})"
                error = BrokenExecutor(self._end)
            if error is None:
                future.set_result(heard.result())
            else:
                future.set_exception(error)

        self._actor.call.remote(fn, args, references).future().add_done_callback(done)
        return future

    def end(self) -> str:
        """Kill the actor."""
        self._engine.ray.kill(self._actor)
        return self._end


class RayWorkers:
    """Actors of Ray, on a cluster at an address, or on one that is started here and ends with the run."""

    remote = True

    def __init__(
        self, loader: Loader, workers: int | None = None, address: str | None = None, gpus: float | None = None
    ) -> None:
        environment = {"py_modules": [str(PACKAGE)], "env_vars": {"OMP_NUM_THREADS": "1"}}
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "runtime_env": environment}
        if address is None:
            # Ray takes 127.0.0.1 for "any address" unless it is told that there is no cluster; read when imported.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "num_cpus": workers}
        self.ray = require("ray", "ray", "the engine 'ray'", "; or use the engine 'processes'")
        if address not in (None, "auto"):
            _reach(str(address))
        try:
            self.ray.init(address or "local", **options)
        except Exception as error:  # Ray fails in many ways: without a cluster, with another version, without a token
            raise RuntimeError(
                f"no Ray cluster can be used at {address or 'this machine'}: {one_line(error)}"
            ) from error
        self.loader, self._gpus = loader, (gpus or 1.0) if loader.runs_on.type == "cuda" else 0.0
        room = self.ray.cluster_resources()
        self.size = workers or max(int(room.get("GPU", 0) / self._gpus if self._gpus else room.get("CPU", 1)), 1)
        self._references: dict[Spec, Any] = {}

    def start(self, number: int) -> WorkerExecutor:
        """Ask for an actor; it is there when the cluster has room. Ray restarts none: the run replaces dead ones."""
        made = self.ray.remote(num_cpus=1, num_gpus=self._gpus, max_restarts=0)(Actor)
        return RayExecutor(self, made.remote(self.loader.runs_on.type, self.loader.trust, faults.of_next_worker()))

    def reference(self, spec: Spec) -> Any:
        """Return Ray's reference to a model or to rows, which are put into its object store once."""
        if spec not in self._references:
            value: Any = self.loader.rows(spec) if isinstance(spec, DataSpec) else self.loader.model(spec)
            value = value if isinstance(spec, DataSpec) else copy.deepcopy(value).cpu()
            # Classes of the user's own files travel by value, since other machines do not have the files.
            installed = (str(PACKAGE), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
            for name, module in list(sys.modules.items()):
                if name != "__main__" and not (getattr(module, "__file__", None) or installed[0]).startswith(installed):
                    self.ray.cloudpickle.register_pickle_by_value(module)
            self._references[spec] = self.ray.put(value)
            self.loader.release()
        return self._references[spec]

    def close(self) -> None:
        """Disconnect; a cluster that was started here ends."""
        self._references.clear()
        self.ray.shutdown()


def _reach(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for a quarter of an hour."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"{address!r} is no address of a Ray cluster; write auto, or HOST:PORT as Ray printed it")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"nobody answers at {address} ({error}); start a Ray cluster there first") from error
