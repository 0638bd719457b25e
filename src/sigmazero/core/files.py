"""Files: written whole or not at all, to places tried before the work; and what pretends to be a file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sigmazero.core import faults


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write to; it takes the place of `path` if nothing went wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        faults.reach("file.written")
        os.replace(part, path)
        faults.reach("file.replaced")
    finally:
        part.unlink(missing_ok=True)


def writable(path: Path) -> None:
    """Make the folder of a file to be, and refuse a place where it could not be written."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise PermissionError(f"nothing can be written to {path.parent}; name another file than {path}")


def disguise(head: bytes) -> str | None:
    """What a failed download left instead of the file, judging by its first bytes; None if nothing is amiss."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not head:
        return "an empty file"
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<?xml", b"<!--")):
        return "a web page saved in place of the file"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file it points to"
    return None
