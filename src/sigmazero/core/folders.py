"""Where weights and data are looked for, in the order of looking."""

import os
from pathlib import Path

NAME = "sigmazero"


def search(kind: str, given: str | os.PathLike[str] | None = None) -> list[Path]:
    """Folders for "models" or "data": the given one, those of $SIGMAZERO_HOME, then the platform's cache.

    The first is the one to save to.
    """
    found = [] if given is None else [Path(given).expanduser()]
    if home := os.environ.get("SIGMAZERO_HOME"):
        found += [Path(home).expanduser() / kind, Path(home).expanduser()]
    return [*found, cache() / kind]


def cache() -> Path:
    """Return the platform's cache folder for sigmazero."""
    from platformdirs import user_cache_path

    return user_cache_path(NAME, appauthor=False, opinion=False)  # no author and no "Cache" in the path
