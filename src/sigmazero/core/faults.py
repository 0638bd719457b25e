"""Named points at which a test may have this process killed, so that what survives a crash is tested without waiting.

An environment variable arms one of them: `SIGMAZERO_FAULT=store.commit:3` kills the process, as `kill -9` would, when
it comes to that point for the third time. `SIGMAZERO_WORKER_FAULTS=unit.taken:2,batch.done:1:parent` is for the workers
that this process starts, the first point for the first of them. `:parent` kills the process that started the worker, as
when a node of a cluster dies; the worker then waits at the point until it is ended. While nothing is armed, a point
costs a comparison.
"""

import os
import signal

VARIABLE, WORKERS = "SIGMAZERO_FAULT", "SIGMAZERO_WORKER_FAULTS"
POINTS = (
    "store.begin",  # a transaction is about to begin
    "store.commit",  # everything is written, nothing committed
    "store.committed",  # the commit is done, no other process knows of it yet
    "file.written",  # a file is complete under its temporary name
    "file.replaced",  # it has taken its place
    "store.closing",  # all is stored, its log is not yet folded into the file
    "batch.done",  # a batch is attacked and verified, nothing stored
    "worker.begun",  # the process of a worker has started and has not reported it
    "worker.replaced",  # the driver has started a worker in place of a dead one
    "unit.sent",  # the driver has handed out a unit
    "unit.heard",  # the driver has received a message and done nothing about it
    "unit.taken",  # a worker has a unit and has not begun it
    "unit.done",  # all batches of a unit are done in the worker, and the results are nowhere else
    "entry.written",  # an entry of a leaderboard is complete under its temporary name
    "entry.moved",  # the older entry is out of the way, and there is none in its place
)

_name, _left, _parent = "", 0, False
_of_workers = [point for point in os.environ.get(WORKERS, "").split(",") if point]


def arm(text: str) -> None:
    """Kill this process at a point, written as in the variable: `store.commit:3`; "" for none."""
    global _name, _left, _parent
    name, _, rest = text.partition(":")
    count, _, victim = rest.partition(":")
    if name and name not in POINTS:
        raise ValueError(f"{VARIABLE} names no point: {name!r}; there are {', '.join(POINTS)}")
    if victim not in ("", "parent"):
        raise ValueError(f"{VARIABLE} cannot kill {victim!r}; write parent, or nothing for the process itself")
    _name, _left, _parent = name, int(count or 1), bool(victim)


def of_next_worker() -> str:
    """Return what arms the next worker."""
    return _of_workers.pop(0) if _of_workers else ""


def reach(point: str) -> None:
    """Note that the process has come to a point; the armed point ends it."""
    global _left
    if point != _name:
        return
    _left -= 1
    if _left:
        return
    os.kill(os.getppid() if _parent else os.getpid(), signal.SIGKILL)
    while True:  # until it is ended
        signal.pause()


arm(os.environ.get(VARIABLE, ""))
