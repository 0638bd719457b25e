"""Processes that a test may hold, or have killed at a named point.

They come from a server that has imported everything, so that each costs hardly more than the work it does.
"""

import multiprocessing
import os
import select
import signal
import sys
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch

from sigmazero.core import faults

PRELOAD = [
    "sigmazero.auto",
    "sigmazero.bench.run",
    "torch.fx.experimental.symbolic_shapes",  # by torch itself, at the first gradient
    "tests.hard.soak",
    "tests.store.test_store",
    "tests.store.test_merge",
    "tests.hard.test_store_kills",
]


class Children:
    """Starts functions of test modules in processes of their own."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOAD)
        with pytest.MonkeyPatch.context() as environment:  # the server finds our modules where we do
            environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
            forkserver.ensure_running()

    def start(self, target: Callable[..., Any], *arguments: Any) -> tuple[Any, Connection]:
        """A process that calls the target with a pipe, after the arguments; and our end of the pipe."""
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_work, args=(None, target, *arguments, theirs))
        process.start()
        theirs.close()  # so that we notice when the process ends
        return process, ours

    def killed(self, point: str, target: Callable[..., Any], *arguments: Any) -> bool:
        """Call the target in a process that dies at a point, given as SIGMAZERO_FAULT has it; whether it came there."""
        process = self.context.Process(target=_work, args=(point, target, *arguments))
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), f"it failed by itself, with {process.exitcode}"
        return process.exitcode != 0


def _work(point: str | None, target: Callable[..., Any], *arguments: Any) -> None:
    torch.set_num_threads(1)
    if point:
        faults.arm(point)
    target(*arguments)


def ended(process: int, seconds: float = 60.0) -> bool:
    """Whether a process, by its number, has ended or ends within so many seconds; it need not be a child of ours."""
    try:
        watched = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watched], [], [], seconds)[0])
    finally:
        os.close(watched)
