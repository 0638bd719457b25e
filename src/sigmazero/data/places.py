"""Where data files are looked for, and what is said when they are nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sigmazero.core.folders import search
from sigmazero.data.errors import DataError, MissingData
from sigmazero.data.registry import Dataset


def search_dirs(data_dir: str | Path | None = None) -> list[Path]:
    """Folders searched for data, in order: the given one, those of $SIGMAZERO_HOME, the platform's cache."""
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise DataError(f"data_dir {str(data_dir)!r} is not a folder; create it or name another")
    return search("data", data_dir)


def candidate_dirs(dataset: Dataset, data_dir: str | Path | None) -> list[list[Path]]:
    """For each searched place, the folders there that may hold this data set: its own first, then the place."""
    groups = [[place / folder for folder in (*dataset.folders, ".")] for place in search_dirs(data_dir)]
    return [*groups, [Path(folder) for folder in dataset.system_folders]]


def first_match(folders: Iterable[Path], patterns: Iterable[str]) -> Path | None:
    """The first file that has one of these names (shell patterns), folder by folder."""
    names = list(patterns)
    for folder in folders:
        for name in names:
            if found := sorted(path for path in folder.glob(name) if path.is_file()):
                return found[0]
    return None


def missing(dataset: Dataset, data_dir: str | Path | None) -> MissingData:
    """The error for a data set whose files are nowhere: names, where published, where to put them."""
    places = search_dirs(data_dir)
    lines = [
        f"no files of {dataset.name} found.",
        f"  needed:    {dataset.needs}",
        f"  published: {dataset.published}",
        "  searched:  " + "\n             ".join(map(str, [*places, *dataset.system_folders])),
        f"  put them:  into {places[0] / dataset.folders[0]}, or name their folder with data_dir",
    ]
    return MissingData("\n".join(lines))
