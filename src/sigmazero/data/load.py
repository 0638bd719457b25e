"""Load rows of a data set by its name, or of an .npz file or a table by its path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from sigmazero.data import cifar, embedded, idx, imagenet, npz, pictures
from sigmazero.data.errors import DataError
from sigmazero.data.places import candidate_dirs, first_match, missing
from sigmazero.data.registry import DATASETS, Dataset
from sigmazero.data.rows import Rows, RowSpec, parse_rows, take
from sigmazero.data.source import Array, Source, afford
from sigmazero.data.table_files import ENDINGS, is_table
from sigmazero.data.tables import open_table

FILES = (".npz", *ENDINGS)
_BUNDLED: dict[str, Callable[[], Source]] = {
    "mnist-5k": embedded.mnist_5k,
    "mnist-5k-heldout": embedded.mnist_5k_heldout,
    "digits-8x8": embedded.digits_8x8,
    "adult-sample": embedded.adult_sample,
}
_FINDERS: dict[str, Callable[[Dataset, list[Path]], Source | None]] = {
    "mnist": idx.find,
    "fashion-mnist": idx.find,
    "cifar10": cifar.find,
    "imagenet": imagenet.find,
    "imagenet-resized": imagenet.find,
}


def load(
    name: str | Path,
    *,
    rows: RowSpec | None = None,
    limit: int | None = None,
    seed: int | None = None,
    data_dir: str | Path | None = None,
) -> Rows:
    """Load the chosen rows of a data set known by name, an `.npz` file, a table (CSV, ARFF, Parquet) or a folder.

    A folder holds pictures of one size in a sub-folder for each class, whose name is the name of the class.

    `rows` is "0:100", "5,7,9", a slice or a sequence; `limit` then keeps at most that many of them, the first ones
    or, with a seed, a random choice that is the same everywhere. Files are looked for in `data_dir`,
    `$SIGMAZERO_HOME/data` and the platform's cache folder.

    >>> digits = load("digits-8x8", rows="0:3")
    >>> digits.images.shape, digits.labels, digits.ids
    (torch.Size([3, 1, 8, 8]), tensor([0, 1, 2]), tensor([0, 1, 2]))
    """
    source, title = _open(name, data_dir)
    chosen = take(parse_rows(rows, len(source.labels)), limit, seed)
    afford(len(chosen) * source.cost, f"{title}: taking {len(chosen)} rows", "choose fewer with rows or limit, or ")
    images = source.fetch(chosen)
    if title in DATASETS:
        _check(DATASETS[title], source, images)
    tensor = torch.from_numpy(images.astype(np.float32))
    if images.dtype == np.uint8:
        tensor /= 255
    ids = np.array(chosen, dtype=np.int64) if source.ids is None else source.ids[chosen].astype(np.int64)
    labels = torch.from_numpy(source.labels[chosen])
    scaled = images.dtype == np.uint8
    return Rows(tensor, labels, torch.from_numpy(ids), title, source.space, source.names, source.classes, scaled)


def is_data_file(name: str | Path) -> bool:
    """Whether a name is that of a file with rows, by its ending."""
    return str(name).endswith(".npz") or is_table(name)


def _open(name: str | Path, data_dir: str | Path | None) -> tuple[Source, str]:
    if str(name).endswith(".npz"):
        path = Path(name).expanduser()
        return npz.read(path), path.name
    if is_table(name):
        path = Path(name).expanduser()
        return open_table(path).source(), path.name
    dataset = DATASETS.get(str(name))
    if dataset is None and pictures.is_folder(name):
        path = Path(name).expanduser()
        return pictures.read(path), path.resolve().name
    if dataset is None:
        raise DataError(
            f"no data set is called {str(name)!r}; use one of {', '.join(DATASETS)}, "
            f"a path ending in {', '.join(FILES)}, or a folder with a sub-folder of pictures for each class"
        )
    if dataset.name in _BUNDLED:
        return _BUNDLED[dataset.name](), dataset.name
    return _find(dataset, data_dir), dataset.name


def _find(dataset: Dataset, data_dir: str | Path | None) -> Source:
    """In each place the published files where they exist, else arrays saved under the data set's name."""
    for folders in candidate_dirs(dataset, data_dir):
        source = _FINDERS[dataset.name](dataset, folders)
        if source is not None:
            return source
        path = first_match(folders, dataset.arrays)
        if path is not None:
            return npz.read(path)
    raise missing(dataset, data_dir)


def _check(dataset: Dataset, source: Source, images: Array) -> None:
    if images.shape[1:] != dataset.shape:
        raise DataError(
            f"the images found for {dataset.name} have shape {images.shape[1:]} instead of {dataset.shape}; "
            "the files are another data set's, so load them by path or move them"
        )
    if source.labels.max() >= dataset.classes:
        raise DataError(
            f"the labels found for {dataset.name} reach {source.labels.max()} but it has {dataset.classes} classes; "
            "the files are another data set's, so load them by path or move them"
        )
