"""Files that appear whole or not at all, in places that were tried before the work."""

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
