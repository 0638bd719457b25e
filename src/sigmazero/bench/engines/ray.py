"""Ray: workers on this machine or on a cluster of many.

The driver replaces dead workers itself: with Ray's own restarts, calls to a worker that is restarting fail at once, and
innocent units run out of tries. A worker is given work only after its first sign of life, since one that no machine has
room for never answers.

Ray runs whatever it is sent, by anyone who reaches its ports. If it is started here it listens on this machine alone,
and lets in whoever has the token of this run.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Iterator
from typing import Any

import torch

from sigmazero.bench.cells import Loader
from sigmazero.bench.engines.base import Examined, Gone, Message, Ready, Task
from sigmazero.bench.engines.hand import Setup
from sigmazero.bench.engines.travel import Receiver, pack_spec
from sigmazero.bench.plan import DataSpec, ModelSpec
from sigmazero.bench.worker import Attacked
from sigmazero.core import faults
from sigmazero.core.extras import require
from sigmazero.core.text import one_line

Spec = ModelSpec | DataSpec

CONNECT = 10.0  # seconds in which a cluster must answer


class RayWorker:
    """A worker as Ray keeps it: one call for each message."""

    def __init__(self, setup: Setup) -> None:
        self._hand = setup.begin()
        self._said: Iterator[Message] = iter(())
        loader = setup.loader
        assert isinstance(loader, Receiver)
        loader.fetch = self._fetch
        self._parcels: dict[Spec, Any] = {}

    def ready(self) -> Ready:
        """The first sign of life."""
        return self._hand.ready()

    def begin(self, task: Task, parcels: list[Any]) -> Message:
        """Take a task; `parcels` has the references to its model and its rows, which are fetched if they are new."""
        self._parcels = dict(zip((task.cell.question.model, task.cell.question.data), parcels, strict=True))
        self._said = self._hand.work(task)
        return next(self._said)

    def more(self) -> Message:
        """Go on with it."""
        return next(self._said)

    def _fetch(self, spec: Spec) -> Any:
        return require("ray", "ray", "this worker").get(self._parcels[spec])


class Ray:
    """Workers as actors of Ray, on a cluster at an address, or on one that is started here and ends with the run."""

    whole = False

    def __init__(
        self, loader: Loader, workers: int | None = None, address: str | None = None, gpus: float | None = None
    ) -> None:
        if address is None:
            # Ray takes 127.0.0.1 for "any address" unless it is told that there is no cluster; read when imported.
            os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
            os.environ.setdefault("RAY_AUTH_MODE", "token")
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        self._ray = require("ray", "ray", "the engine 'ray'", "; or use the engine 'processes'")
        self.loader, self.address, self._asked = loader, address, workers
        self._gpus = (gpus or 1.0) if loader.device.type == "cuda" else 0.0
        self._workers: dict[int, Any] = {}
        self._waiting: dict[Any, int] = {}
        self._parcels: dict[Spec, Any] = {}

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        if self.address not in (None, "auto"):
            _reach(str(self.address))
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        if self.address is None:
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1", "num_cpus": self._asked}
        try:
            self._ray.init(self.address or "local", **options)
        except Exception as error:  # Ray fails in many ways: without a cluster, with another version, without a token
            advice = "start one there first" if self.address else "see the logs of Ray"
            raise RuntimeError(
                f"no Ray cluster can be used at {self.address or 'this machine'} ({one_line(error)}); {advice}"
            ) from error

    @property
    def size(self) -> int:
        """As many workers as were asked for, or as the cluster has room for now."""
        if self._asked is None:
            self._connect()
            held = self._ray.cluster_resources()
            room = held.get("GPU", 0) / self._gpus if self._gpus else held.get("CPU", 1)
            self._asked = max(int(room), 1)
        return self._asked

    def setup(self, worker: int) -> Setup:
        """What a worker begins with; Ray shows it the CUDA device that it may use."""
        del worker
        device = torch.device(self.loader.device.type)
        return Setup(Receiver(device, trust=self.loader.trust), fault=faults.of_next_worker())

    def open(self, worker: int) -> None:
        """Ask for an actor; it is there when the cluster has room."""
        self._connect()
        made = self._ray.remote(num_cpus=1, num_gpus=self._gpus, max_restarts=0)(RayWorker)
        self._workers[worker] = made.remote(self.setup(worker))
        self._waiting[self._workers[worker].ready.remote()] = worker

    def send(self, worker: int, task: Task) -> None:
        """Hand a task to an actor; its model and rows are put into Ray's store once, and each machine fetches them."""
        specs: list[Spec] = [task.cell.question.model, task.cell.question.data]
        for spec in specs:
            if spec not in self._parcels:
                self._parcels[spec] = self._ray.put(pack_spec(self.loader, spec))
        # In a list a reference stays one, and is fetched only by a worker that needs it.
        called = self._workers[worker].begin.remote(task, [self._parcels[spec] for spec in specs])
        self._waiting[called] = worker

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        """What actors said, and which of them died."""
        calls = list(self._waiting)
        if not calls:
            time.sleep(seconds)
            return []
        ended, _ = self._ray.wait(calls, num_returns=1, timeout=seconds)
        if ended:
            ended, _ = self._ray.wait(calls, num_returns=len(calls), timeout=0)
        return [self._heard(call) for call in ended]

    def _heard(self, call: Any) -> tuple[int, Message]:
        worker = self._waiting.pop(call)
        try:
            message: Message = self._ray.get(call)
        except self._ray.exceptions.RayError as error:
            self._ray.kill(self._workers.pop(worker))
            return worker, Gone(_reason(error), str(error).strip())
        if isinstance(message, Attacked | Examined):
            self._waiting[self._workers[worker].more.remote()] = worker
        return worker, message

    def close(self) -> None:
        """End all actors; a cluster that was started here ends too."""
        if not self._ray.is_initialized():
            return
        for actor in self._workers.values():
            self._ray.kill(actor)
        self._workers.clear()
        self._waiting.clear()
        self._parcels.clear()
        self._ray.shutdown()


def _reach(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for a quarter of an hour."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        raise ValueError(f"{address!r} is no address of a Ray cluster; write auto, or HOST:PORT as Ray printed it")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT).close()
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"nobody answers at {address} ({error}); start the head of a Ray cluster there first"
        ) from error


def _reason(error: Exception) -> str:
    """Why an actor died, in a line; Ray tells it at the end of many."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next((line for line in lines if line.startswith("The actor is dead because")), lines[-1] if lines else "")
    return f"its worker died: {why.removeprefix('The actor is dead because ')[:200]}"
