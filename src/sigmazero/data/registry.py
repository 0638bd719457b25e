"""The data sets known by name: one record of facts each, and the folders where their files are looked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from sigmazero.core.files import search
from sigmazero.data.rows import DataError, MissingData

_IDX = "t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, with or without .gz"
_EXTRA = "inside the optional packages: pip install 'sigmazero[data]'"


@dataclass(frozen=True)
class Dataset:
    """Facts about one data set: what it is, and which files hold it."""

    name: str
    description: str
    size: int
    shape: tuple[int, ...]
    classes: int
    published: str
    needs: str = ""
    folders: tuple[str, ...] = ()
    system_folders: tuple[str, ...] = ()
    arrays: tuple[str, ...] = ()
    first_labels: tuple[int, ...] = ()


_MNIST = Dataset(
    "mnist",
    "handwritten digits, test set",
    10_000,
    (1, 28, 28),
    10,
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    _IDX,
    folders=("mnist", "MNIST/raw"),
    arrays=("mnist.npz", "mnist_test.npz", "mnist_test*.npz"),
    first_labels=(7, 2, 1, 0, 4, 1, 4, 9),
)
_IMAGENET = Dataset(
    "imagenet",
    "photographs, validation set, shorter side to 256 and centre crop 224",
    50_000,
    (3, 224, 224),
    1000,
    "https://image-net.org/download.php (ILSVRC2012, after registration)",
    "the 50,000 validation JPEGs, either in one folder per class (n01440764, ...), or all in one folder "
    "(ILSVRC2012_val_00000001.JPEG, ...) with val.txt",
    folders=("imagenet", "imagenet/val", "val"),
    arrays=("imagenet.npz", "imagenet_val*.npz"),
)
_ALL = (
    _MNIST,
    replace(
        _MNIST,
        name="fashion-mnist",
        description="photographs of clothing, test set",
        published="https://github.com/zalandoresearch/fashion-mnist or Debian's package dataset-fashion-mnist",
        folders=("fashion-mnist", "FashionMNIST/raw"),
        system_folders=("/usr/share/dataset-fashion-mnist",),
        arrays=("fashion-mnist.npz", "fashion-mnist_test*.npz", "fashion_mnist*.npz"),
        first_labels=(9, 2, 1, 1, 6, 1, 4, 6),
    ),
    Dataset(
        "cifar10",
        "small colour photographs, test set",
        10_000,
        (3, 32, 32),
        10,
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        "cifar-10-python.tar.gz or cifar-10-binary.tar.gz, or test_batch or test_batch.bin out of them",
        folders=("cifar10", "cifar-10-batches-py", "cifar-10-batches-bin"),
        arrays=("cifar10.npz", "cifar10_test.npz", "cifar10_test*.npz"),
    ),
    _IMAGENET,
    replace(
        _IMAGENET,
        name="imagenet-resized",
        description="photographs, validation set, resized straight to 224 as in the paper",
        arrays=("imagenet-resized.npz",),
    ),
    Dataset("mnist-5k", "5,000 handwritten digits, 500 of each class, sorted by class", 5_000, (1, 28, 28), 10, _EXTRA),
    Dataset(
        "mnist-5k-heldout",
        "the 1,000 digits of mnist-5k the demo model was not trained on",
        1_000,
        (1, 28, 28),
        10,
        _EXTRA,
    ),
    Dataset("digits-8x8", "tiny handwritten digits of scikit-learn", 1_797, (1, 8, 8), 10, _EXTRA),
    Dataset(
        "adult-sample",
        "people of the census table Adult, with what may change about them",
        600,
        (102,),
        2,
        "comes with the package (UCI, CC BY 4.0); reading it needs pip install 'sigmazero[data]'",
    ),
    Dataset(
        "imagenet-20",
        "20 photographs with ImageNet labels, shorter side to 256 and centre crop 224",
        20,
        (3, 224, 224),
        1000,
        "inside the package foolbox: pip install 'sigmazero[foolbox]'",
    ),
)

DATASETS: Mapping[str, Dataset] = MappingProxyType({dataset.name: dataset for dataset in _ALL})


def search_dirs(data_dir: str | Path | None = None) -> list[Path]:
    """List the folders searched for data: the given one, those of $SIGMAZERO_HOME, the platform's cache."""
    if data_dir is not None and not Path(data_dir).expanduser().is_dir():
        raise DataError(f"data_dir {str(data_dir)!r} is not a folder; create it or name another")
    return search("data", data_dir)


def candidate_dirs(dataset: Dataset, data_dir: str | Path | None) -> list[list[Path]]:
    """List for each searched place the folders that may hold this data set: its own first, then the place."""
    groups = [[place / folder for folder in (*dataset.folders, ".")] for place in search_dirs(data_dir)]
    return [*groups, [Path(folder) for folder in dataset.system_folders]]


def first_match(folders: Iterable[Path], patterns: Iterable[str]) -> Path | None:
    """Return the first file that has one of these names (shell patterns), folder by folder."""
    names = list(patterns)
    for folder in folders:
        for name in names:
            if found := sorted(path for path in folder.glob(name) if path.is_file()):
                return found[0]
    return None


def missing(dataset: Dataset, data_dir: str | Path | None) -> MissingData:
    """Make the error for a data set whose files are nowhere: which files, where to put them, where to get them."""
    folder = search_dirs(data_dir)[0] / dataset.folders[0]
    return MissingData(
        f"no files of {dataset.name}: put {dataset.needs} into {folder} (from {dataset.published}); "
        "SIGMAZERO_HOME names another folder"
    )
