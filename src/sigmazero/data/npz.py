"""Arrays in `.npz` files, the format for a user's own data.

The file holds `images` and `labels` (or `x_test` and `y_test`). 8-bit images are divided by 255; float images must
lie in [0, 1] already. Shapes: (N, D) is kept, (N, H, W) gains a channel, (N, H, W, C) is turned into (N, C, H, W),
and (N, C, H, W) is kept. Where a shape leaves the choice open, an entry `layout` decides: "NCHW", "NHWC" or "raw"
(keep the shape whatever it is).

An entry `names` names the features and makes the file a table: one row per sample, whole or real numbers in their own
units, kept as they are. An entry `classes` names the classes, by label. A file beside it, `mine.space.toml` for
`mine.npz`, says what may change ([spaces](spaces.md)).
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from sigmazero.core.text import one_line, shown
from sigmazero.data.errors import DataError, MissingData
from sigmazero.data.source import (
    LABEL,
    LONGEST,
    Array,
    Source,
    afford,
    refuse_disguise,
    refuse_inexact,
    refuse_unequal,
    space_beside,
)
from sigmazero.data.stream import pick, refuse_promise

CHANNELS = (1, 3, 4)
LAYOUTS = ("NCHW", "NHWC", "raw")


def read(path: Path) -> Source:
    """Images and labels of one `.npz` file; the images are read when rows of them are asked for."""
    _refuse_others(path)
    with _readable(path), zipfile.ZipFile(path) as archive:
        entries = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        for images, labels in (("images", "labels"), ("x_test", "y_test")):
            if images in entries and labels in entries:
                layout = str(_whole(archive, entries["layout"], path, 1000)) if "layout" in entries else None
                numbers = _checked_labels(_whole(archive, entries[labels], path), path)
                named, classes = (_words(archive, entries.get(word), path) for word in ("names", "classes"))
                source = _source(path, archive, entries[images], numbers, layout, named is not None)
                return replace(source, names=named, classes=classes, space=space_beside(path))
    names = ", ".join(map(shown, sorted(entries)[:20])) or "nothing"
    raise DataError(f"{path}: holds {names}; it needs the arrays images and labels")


def _source(
    path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo, labels: Array, layout: str | None, table: bool
) -> Source:
    with archive.open(info) as stream:
        header = Header.read(stream, info, path)
    _check_images(header, path, table)
    refuse_unequal(header.shape[0], len(labels), path)
    arrange(np.broadcast_to(np.zeros((), header.kind), header.shape), layout, path)  # an unclear layout is said now

    def fetch(rows: list[int]) -> Array:
        look = Look(path, table) if table or header.kind != np.uint8 else None
        with _readable(path), zipfile.ZipFile(path) as archive, archive.open(info) as stream:
            if Header.read(stream, info, path) != header:
                raise DataError(f"{path}: changed while it was read; start again")
            if header.columns_first:
                afford(header.size, f"{path}: an array stored column by column")
                images = header.array(stream.read())
                if look:
                    look(images, 0)
                images = images[rows]
            else:
                images = pick(stream, header.shape, header.kind, rows, look)
        if look:
            look.check_range()
        images = np.ascontiguousarray(arrange(images, layout, path))
        return images.astype(np.float32) if table else images

    return Source(labels, fetch, cost=math.prod(header.shape[1:]) * (header.kind.itemsize + 4))


def arrange(images: Array, layout: str | None, path: Path) -> Array:
    """The same images with channels before height and width."""
    if layout is None:
        layout = _guess(images.shape, path)
    if layout not in LAYOUTS:
        raise DataError(f"{path}: layout {shown(layout)!r} is not one of {', '.join(LAYOUTS)}")
    if layout != "raw" and images.ndim == 3:
        return images[:, None]
    if layout != "raw" and images.ndim != 4:
        raise DataError(f"{path}: layout {layout} needs 4 dimensions, images have shape {images.shape}")
    return images.transpose(0, 3, 1, 2) if layout == "NHWC" else images


def _guess(shape: tuple[int, ...], path: Path) -> str:
    if len(shape) == 2:
        return "raw"
    if len(shape) == 3:
        return "NCHW"
    if len(shape) == 4 and (shape[1] in CHANNELS) != (shape[3] in CHANNELS):
        return "NCHW" if shape[1] in CHANNELS else "NHWC"
    raise DataError(
        f"{path}: cannot tell where the channels of shape {shape} are; "
        "add an entry layout with the text NCHW, NHWC or raw to the file"
    )


def _refuse_others(path: Path) -> None:
    if not path.is_file():
        raise MissingData(f"{path}: no such file; check the path, or give one of the names in sigmazero.data.DATASETS")
    with path.open("rb") as file:
        head = file.read(64)
    refuse_disguise(head, path)
    if not head.startswith(b"PK"):
        raise DataError(f"{path}: begins with {head[:4].hex()}; it is not an .npz file (numpy.savez)")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise DataError(
            f"{path}: cannot be read ({one_line(error)}); save it again with numpy.savez, without objects"
        ) from error


@dataclass(frozen=True)
class Header:
    """What an array in the archive says about itself, compared with the size of its entry."""

    shape: tuple[int, ...]
    columns_first: bool
    kind: np.dtype[Any]

    @classmethod
    def read(cls, stream: IO[bytes], info: zipfile.ZipInfo, path: Path) -> Header:
        """The header at the beginning of an entry."""
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename} is packed in a way that numpy does not use")
        version = np.lib.format.read_magic(stream)
        reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        header = cls(*reader(stream))
        if header.kind.hasobject:  # pickled objects could run code
            raise ValueError(f"{info.filename} holds Python objects")
        held = info.file_size - stream.tell()
        if min(header.shape, default=1) < 0 or held != header.size:
            raise ValueError(f"{info.filename} promises {header.size} bytes and has {held}")
        packed = info.compress_type == zipfile.ZIP_DEFLATED
        refuse_promise(info.compress_size, path.stat().st_size, packed=False)
        refuse_promise(info.file_size, info.compress_size, packed)
        return header

    @property
    def size(self) -> int:
        """How many bytes the values take."""
        return math.prod(self.shape) * self.kind.itemsize

    def array(self, data: bytes) -> Array:
        """The array with these bytes as its values."""
        return np.frombuffer(data, self.kind).reshape(self.shape, order="F" if self.columns_first else "C")


def _whole(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path, most: int | None = None) -> Array:
    """A small array, or labels."""
    with archive.open(info) as stream:
        header = Header.read(stream, info, path)
        if most is not None and header.size > most:
            raise ValueError(f"{info.filename} has {header.size} bytes, and needs a word")
        afford(header.size + math.prod(header.shape) * LABEL, f"{path}: {info.filename}")
        return header.array(stream.read())


def _words(archive: zipfile.ZipFile, info: zipfile.ZipInfo | None, path: Path) -> tuple[str, ...] | None:
    """Names of features or classes."""
    if info is None:
        return None
    words = _whole(archive, info, path)
    if words.ndim != 1 or words.dtype.kind not in "US":
        raise DataError(f"{path}: {info.filename} is {words.dtype} {words.shape}; store a list of texts")
    return tuple(_word(str(word), info, path) for word in words.astype(str).tolist())


def _word(word: str, info: zipfile.ZipInfo, path: Path) -> str:
    if not word or not word.isprintable() or len(word) > LONGEST:
        raise DataError(f"{path}: {info.filename} holds {shown(word)!r}; a name has 1 to {LONGEST} visible characters")
    return word


class Look:
    """Looks at images as they come by: all finite; those of no table in [0, 1], the numbers of a table exact."""

    def __init__(self, path: Path, table: bool = False) -> None:
        self._path, self._table = path, table
        self._ends: list[Any] = []

    def __call__(self, images: Array, first: int) -> None:
        """Look at some images; `first` is the number of the first of them."""
        finite = np.isfinite(images.reshape(len(images), -1)).all(1)
        if not finite.all():
            bad = first + int((~finite).argmax())
            raise DataError(f"{self._path}: image {bad} holds NaN or Inf; clean the data first")
        self._ends += [images.min(), images.max()]

    def check_range(self) -> None:
        """Refuse images that leave [0, 1], and numbers too large, once all have come by."""
        low, high = min(self._ends), max(self._ends)
        if self._table:
            refuse_inexact(float(low), float(high), low.dtype.kind in "biu", f"{self._path}: a value")
        elif not (low >= 0 and high <= 1):
            raise DataError(
                f"{self._path}: float images range from {low} to {high}; store them in [0, 1] "
                "and give the network its normalisation instead"
            )


def _check_images(header: Header, path: Path, table: bool) -> None:
    if len(header.shape) < 2:
        raise DataError(f"{path}: images have shape {header.shape}; they need one row per image")
    if table and header.kind.kind not in "biuf":
        raise DataError(f"{path}: the table is of {header.kind}; store numbers, and a category as columns of 0 and 1")
    if not table and header.kind != np.uint8 and not np.issubdtype(header.kind, np.floating):
        raise DataError(f"{path}: images are {header.kind}; store uint8 in 0..255 or float in [0, 1]")
    if 0 in header.shape[1:]:
        raise DataError(f"{path}: images have shape {header.shape}, so they hold no values; store some")


def _checked_labels(labels: Array, path: Path) -> Array:
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or not np.issubdtype(flat.dtype, np.integer):
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}; store one whole number per image")
    if flat.size and int(flat.min()) < 0:
        raise DataError(f"{path}: label {int(flat.min())} is negative; number the classes from 0")
    if flat.size and int(flat.max()) > np.iinfo(np.int32).max:
        raise DataError(f"{path}: label {int(flat.max())} is no class; number the classes from 0")
    return flat.astype(np.int64)
