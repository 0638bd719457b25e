"""Where weights and data are looked for, in the order of looking."""

import os
from importlib.util import find_spec
from pathlib import Path

from sigmazero.core.extras import require

NAME = "sigmazero"


def search(kind: str, given: str | os.PathLike[str] | None = None) -> list[Path]:
    """Folders for "models" or "data": the given one, those of $SIGMAZERO_HOME, then the platform's cache.

    The first is the one to save to. Only the platform's cache needs the package platformdirs.
    """
    found = [] if given is None else [Path(given).expanduser()]
    if home := os.environ.get("SIGMAZERO_HOME"):
        found += [Path(home).expanduser() / kind, Path(home).expanduser()]
    if found and find_spec("platformdirs") is None:
        return found
    return [*found, *(folder / kind for folder in caches())]


def caches() -> list[Path]:
    """The platform's cache folder for sigmazero, and the one that an earlier version used if it is still there."""
    instead = ", or name a folder in the environment variable SIGMAZERO_HOME"
    dirs = require("platformdirs", "cli", "the default folder for models and data", instead)
    # No author and no "Cache" below the name: the folders that earlier versions used.
    folder: Path = dirs.user_cache_path(NAME, appauthor=False, opinion=False)
    former = Path.home() / "Library" / "Caches" / NAME  # on macOS, which did not heed XDG_CACHE_HOME
    return [folder, former] if former != folder and former.is_dir() else [folder]
