"""Load rows of a data set by its name, or of an .npz file, a table or a folder of pictures by its path."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from sigmazero.core.inputs import hint
from sigmazero.data import images, npz
from sigmazero.data.registry import DATASETS, Dataset, candidate_dirs, first_match, missing
from sigmazero.data.rows import DataError, Rows, RowSpec, Source, parse_rows, take
from sigmazero.data.table import ENDINGS, Table, is_table

FILES = (".npz", *ENDINGS)


@cache
def _adult_sample() -> Source:
    """Read 600 people of the test part of UCI Adult, whom the bundled networks never saw."""
    return Table.read(Path(__file__).with_name("bundled") / "adult-sample.csv").source()


_BUNDLED: dict[str, Callable[[], Source]] = {
    "mnist-5k": images.mnist_5k,
    "mnist-5k-heldout": images.mnist_5k_heldout,
    "digits-8x8": images.digits_8x8,
    "adult-sample": _adult_sample,
    "imagenet-20": images.imagenet_20,
}
_FINDERS: dict[str, Callable[[Dataset, list[Path]], Source | None]] = {
    "mnist": images.find_idx,
    "fashion-mnist": images.find_idx,
    "cifar10": images.find_cifar,
    "imagenet": images.find_imagenet,
    "imagenet-resized": images.find_imagenet,
}


def load(
    name: str | Path,
    *,
    rows: RowSpec | None = None,
    limit: int | None = None,
    seed: int | None = None,
    data_dir: str | Path | None = None,
    bounds: tuple[Any, Any] | None = None,
) -> Rows:
    """Load the chosen rows of a data set known by name, an `.npz` file, a table (CSV, ARFF, Parquet) or a folder.

    A folder holds pictures of one size in a sub-folder for each class, whose name is the name of the class.

    rows      "0:100", "5,7,9", a slice or a sequence
    limit     at most that many of them: without a seed a fixed sample that has each class in its share, with a seed a
              random choice; both are the same everywhere, and a larger one contains the smaller
    data_dir  where files are looked for first; then $SIGMAZERO_HOME/data and the platform's cache folder
    bounds    of the values that the model takes, such as (0, 255); then 8-bit values are not divided by 255, and float
              images may lie outside [0, 1]

    >>> digits = load("digits-8x8", rows="0:3")
    >>> digits.images.shape, digits.labels, digits.ids
    (torch.Size([3, 1, 8, 8]), tensor([0, 1, 2]), tensor([0, 1, 2]))
    """
    source, title = _open(name, data_dir, bounds)
    chosen = take(parse_rows(rows, len(source.labels)), limit, seed, source.labels)
    found = source.rows(chosen, title, bounds)
    if title in DATASETS:
        _check(DATASETS[title], tuple(found.images.shape[1:]), int(source.labels.max()))
    return found


def is_data_file(name: str | Path) -> bool:
    """Tell whether a name is that of a file with rows, by its ending."""
    return str(name).endswith(".npz") or is_table(name)


def _open(name: str | Path, data_dir: str | Path | None, bounds: tuple[Any, Any] | None) -> tuple[Source, str]:
    path = Path(name).expanduser()
    if str(name).endswith(".npz"):
        return npz.read(path, bounds), path.name
    if is_table(name):
        return Table.read(path).source(), path.name
    dataset = DATASETS.get(str(name))
    if dataset is None and images.is_folder(name):
        return images.read_folder(path), path.resolve().name
    if dataset is None:
        raise DataError(
            f"no data set is called {str(name)!r}; {hint(str(name), DATASETS)}, a folder, {', '.join(FILES)}"
        )
    if dataset.name in _BUNDLED:
        return _BUNDLED[dataset.name](), dataset.name
    return _find(dataset, data_dir), dataset.name


def _find(dataset: Dataset, data_dir: str | Path | None) -> Source:
    """Look in each place for the published files, then for arrays saved under the data set's name."""
    for folders in candidate_dirs(dataset, data_dir):
        source = _FINDERS[dataset.name](dataset, folders)
        if source is not None:
            return source
        path = first_match(folders, dataset.arrays)
        if path is not None:
            return npz.read(path)
    raise missing(dataset, data_dir)


def _check(dataset: Dataset, shape: tuple[int, ...], last: int) -> None:
    if shape != dataset.shape or last >= dataset.classes:
        seen = f"images of shape {shape} and labels to {last}"
        raise DataError(f"{dataset.name} has no {seen}; these are other files, load them by their path")
