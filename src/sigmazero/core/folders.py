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
    return [*found, cache() / kind]


def cache() -> Path:
    """Return the platform's cache folder for sigmazero."""
    instead = ", or name a folder in the environment variable SIGMAZERO_HOME"
    dirs = require("platformdirs", "cli", "the default folder for models and data", instead)
    folder: Path = dirs.user_cache_path(NAME, appauthor=False, opinion=False)  # no author and no "Cache" in the path
    return folder
