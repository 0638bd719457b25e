"""Work in a process of its own that may take so much memory and time and no more: a promise kept is proved."""

import json
import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOM = 1 << 30


def taken() -> int:
    """The address space that this process has now."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        pytest.skip("the address space of a process is read from /proc, which this system lacks")
    return int(pages.read_text().split()[0]) * resource.getpagesize()


def bounded(work: Callable[..., Any], *arguments: Any, room: int = ROOM, seconds: int = 20) -> Any:
    """What the work returns or the text of its error, from a process that has `room` bytes more than this one.

    A process that is killed, by the clock or by a crash, fails the test with the number of the signal.
    """
    most = taken() + room
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(ours)
        _limited(work, arguments, theirs, most, seconds)
    os.close(theirs)
    with os.fdopen(ours, "rb") as answer:
        said = answer.read()
    _, status = os.waitpid(child, 0)
    assert os.WIFEXITED(status), f"the process ended by signal {os.WTERMSIG(status)}"
    kind, value = json.loads(said)
    return value if kind == "result" else f"{kind}: {value}"


def _limited(work: Callable[..., Any], arguments: tuple[Any, ...], pipe: int, most: int, seconds: int) -> None:
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        try:
            answer = ("result", work(*arguments))
        except Exception as error:
            answer = (type(error).__name__, str(error))
        os.write(pipe, json.dumps(answer).encode())
        code = 0
    finally:
        os._exit(code)  # nothing of the test's own process is tidied up twice
