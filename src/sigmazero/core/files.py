"""Files: where they are looked for, and how they are written: whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sigmazero.core import faults


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` unless an error occurred.

    A symbolic link stays, and the file that it leads to is replaced.
    """
    place = target(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        yield part
        faults.reach("file.written")
        os.replace(part, place)
        faults.reach("file.replaced")
    finally:
        part.unlink(missing_ok=True)


def writable(path: Path) -> None:
    """Make the folder of a file that will be written, and refuse a place that cannot be written to."""
    place = target(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(place.parent, os.W_OK):
        raise PermissionError(f"nothing can be written to {place.parent}; name another file than {path}")


def target(path: Path) -> Path:
    """Return where a file of this name is written: links are followed, and there must be a file or nothing."""
    place = Path(os.path.realpath(path)) if path.is_symlink() else path
    if place.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file")
    if place.is_symlink() or (place.exists() and not place.is_file()):
        raise FileExistsError(
            f"{path} is a device, a pipe or a link to itself, which a file would replace; name a file"
        )
    return place


def same_file(one: Path, other: Path) -> bool:
    """Return whether two names lead to the same file, links followed; the file need not exist."""
    if one.exists() and other.exists():
        return one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)


def disguise(head: bytes) -> str | None:
    """Describe what a failed download left instead of the file, by its first bytes; None if nothing is wrong."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    if not head:
        return "an empty file"
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<body", b"<?xml", b"<!--")):
        return "a web page saved in place of the file"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the file it points to"
    return None


def search(kind: str, given: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return folders for "models" or "data": the given one, those of $SIGMAZERO_HOME, then the platform's cache.

    The first is the one to save to.
    """
    found = [] if given is None else [Path(given).expanduser()]
    if home := os.environ.get("SIGMAZERO_HOME"):
        found += [Path(home).expanduser() / kind, Path(home).expanduser()]
    return [*found, cache() / kind]


def cache() -> Path:
    """Return the platform's cache folder for sigmazero."""
    from platformdirs import user_cache_path

    return user_cache_path("sigmazero", appauthor=False, opinion=False)  # no author and no "Cache" in the path
