"""Named points at which a test may have this process killed, so that what survives a crash is tested without waiting.

The environment variable arms one of them: `SIGMAZERO_FAULT=store.commit:3` kills the process, as `kill -9` would, when
it comes to that point for the third time. Nothing is armed otherwise, and a point then costs a comparison.
"""

import os
import signal

VARIABLE = "SIGMAZERO_FAULT"
POINTS = (
    "store.begin",  # a transaction is about to begin
    "store.commit",  # everything is written, nothing committed
    "store.committed",  # the commit is done, nobody knows of it yet
    "file.written",  # a file is complete under its temporary name
    "file.replaced",  # it has taken its place
    "store.closing",  # all is stored, its log is not yet folded into the file
    "batch.done",  # a batch is attacked and verified, nothing stored
    "unit.taken",  # a worker has a unit and has done nothing of it
    "unit.done",  # all batches of a unit are handed over, and nobody knows yet that they are all
    "download.received",  # a piece of a download is in the partial file
    "download.complete",  # the partial file is complete and checked
    "download.placed",  # it has taken its place
    "site.written",  # a site is complete under its temporary name
    "site.moved",  # the older site is out of the way, and there is none in its place
    "site.placed",  # the new site has taken its place
)

_name, _left = "", 0


def arm(text: str) -> None:
    """Have this process killed at a point, given as the variable gives it: `store.commit:3`; with "" at none."""
    global _name, _left
    name, _, count = text.partition(":")
    if name and name not in POINTS:
        raise ValueError(f"{VARIABLE} names no point: {name!r}; there are {', '.join(POINTS)}")
    _name, _left = name, int(count or 1)


def reach(point: str) -> None:
    """Say that the process has come to a point; the armed one ends it."""
    global _left
    if point != _name:
        return
    _left -= 1
    if _left == 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE, ""))
