"""The log that SQLite keeps beside a file while it is written to, and whether the two belong together.

SQLite puts every page of a log over the file that it lies beside, whatever that file is. A log that was left behind
by a killed run then hides the rows of a copy that was restored over the store. The format is that of SQLite's
documentation, "WAL-mode File Format".
"""

import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

HEAD, FRAME, PREFIX = 32, 24, 100  # bytes: the head of a log, of a page in it, and of the file itself
_LITTLE, _BIG = 0x377F0682, 0x377F0683  # the first word of a log, which says how its sums are taken


class Page(NamedTuple):
    """A page in a log: its number, and its content."""

    number: int
    content: bytes


class Log(NamedTuple):
    """What a log does to its file: pages in the order they were written, and how many there are to be."""

    page_size: int
    pages: list[Page]
    length: int


def beside(path: Path) -> Path:
    """Where the log of a file is."""
    return path.with_name(f"{path.name}-wal")


def read_log(path: Path) -> Log | None:
    """What SQLite would take from the log beside a file: whole transactions with the right sums; None if none are."""
    log = beside(path)
    raw = log.read_bytes() if log.is_file() else b""
    if len(raw) < HEAD:
        return None
    magic, _, size = struct.unpack_from(">3I", raw)
    salts, order = raw[16:24], "<u4" if magic == _LITTLE else ">u4"
    sums = _sums(raw[:24], order, (0, 0))
    if magic not in (_LITTLE, _BIG) or size < 512 or size & (size - 1) or sums != struct.unpack_from(">2I", raw, 24):
        return None
    pages: list[Page] = []
    whole, count = 0, 0
    for at in range(HEAD, len(raw) - FRAME - size + 1, FRAME + size):
        number, commit = struct.unpack_from(">2I", raw, at)
        content = raw[at + FRAME : at + FRAME + size]
        sums = _sums(raw[at : at + 8] + content, order, sums)
        if raw[at + 8 : at + 16] != salts or sums != struct.unpack_from(">2I", raw, at + 16):
            break
        pages.append(Page(number, content))
        if commit:
            whole, count = len(pages), commit
    return Log(size, pages[:whole], count) if whole else None


def _sums(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    one, two = sums
    words = iter(np.frombuffer(data, order).tolist())
    for first, second in zip(words, words, strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two


def misfit(path: Path) -> str | None:
    """Why the log beside a file cannot be its own; None if there is no log, or nothing speaks against it."""
    log = read_log(path)
    with path.open("rb") as file:
        head = file.read(PREFIX)
    if log is None or len(head) < PREFIX:
        return None
    if head[18] != 2:
        return "the file was closed in order after its last change, and then has no log"
    written, (counter, pages) = struct.unpack_from(">H", head, 16)[0], struct.unpack_from(">2I", head, 24)
    if (65536 if written == 1 else written) != log.page_size:
        return f"its pages have {log.page_size} bytes, those of the file {written}"
    # A change of the file's length is counted on its first page: the log goes on from the count in the file, or, where
    # it was copied into the file already, ends with it.
    counts = [struct.unpack_from(">I", page.content, 24)[0] for page in log.pages if page.number == 1]
    if counts and not counts[0] - 1 <= counter <= counts[-1]:
        return f"it is of change {counts[0]} up to {counts[-1]}, the file of change {counter}"
    if log.length < pages:
        return f"it makes a file of {log.length} pages, and this one has {pages} already"
    present = min(pages, path.stat().st_size // log.page_size)
    if not set(range(present + 1, log.length + 1)) <= {page.number for page in log.pages}:
        return f"it goes on from a file of more than {present} pages"
    return None


def lacks_log(path: Path) -> bool:
    """Whether a file was in use when it was copied, or its writer was killed, and there is no log beside it."""
    with path.open("rb") as file:
        head = file.read(PREFIX)
    log = beside(path)
    return len(head) == PREFIX and head[18] == 2 and not (log.is_file() and log.stat().st_size)
