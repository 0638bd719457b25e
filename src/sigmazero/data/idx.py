"""Readers of the idx files of MNIST and Fashion-MNIST."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, cast

import numpy as np

from sigmazero.core.text import one_line
from sigmazero.data.errors import DataError
from sigmazero.data.places import first_match
from sigmazero.data.registry import DATASETS, Dataset
from sigmazero.data.source import LABEL, Array, Source, afford, refuse_disguise, refuse_unequal
from sigmazero.data.stream import Uneven, pick, refuse_promise

IMAGES = ("t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte")
LABELS = ("t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte")


def find(dataset: Dataset, folders: list[Path]) -> Source | None:
    """The data set's images and labels from the first folder that has either, or None."""
    for folder in folders:
        images, labels = (first_match([folder], _with_gz(names)) for names in (IMAGES, LABELS))
        if images is None and labels is None:
            continue
        if images is None or labels is None:
            absent = IMAGES[0] if images is None else LABELS[0]
            raise DataError(f"{folder}: holds {images or labels} but not {absent}[.gz]; put both there")
        shape, classes = header(images, 3), read_labels(labels)
        _refuse_mix_up(dataset, classes, labels)
        refuse_unequal(shape[0], len(classes), images)
        return Source(classes, partial(read_images, images, shape), cost=5 * math.prod(shape[1:]))
    return None


def header(path: Path, rank: int) -> tuple[int, ...]:
    """The shape that an idx file of unsigned bytes with this many dimensions promises."""
    with _opened(path) as stream:
        return _header(stream, path, rank)


def read_labels(path: Path) -> Array:
    """All labels of an idx file."""
    with _opened(path) as stream:
        shape = _header(stream, path, 1)
        afford(shape[0] * LABEL, str(path))
        return pick(stream, shape, np.dtype(np.uint8), list(range(shape[0]))).astype(np.int64)


def read_images(path: Path, shape: tuple[int, ...], rows: list[int]) -> Array:
    """The images of these rows, each with one channel."""
    with _opened(path) as stream:
        if _header(stream, path, 3) != shape:
            raise DataError(f"{path}: changed while it was read; start again")
        return pick(stream, shape, np.dtype(np.uint8), rows)[:, None]


def _header(stream: IO[bytes], path: Path, rank: int) -> tuple[int, ...]:
    start = 4 + 4 * rank
    data = stream.read(64)
    stream.seek(start)
    refuse_disguise(data, path)
    magic, expected = data[:4], bytes([0, 0, 8, rank])
    if magic != expected:
        raise DataError(
            f"{path}: begins with {magic.hex()} instead of {expected.hex()}; it is not an idx file of "
            f"bytes with {rank} dimension{'s' * (rank > 1)}, so check that images and labels are not swapped"
        )
    if len(data) < start:
        raise DataError(f"{path}: ends inside its header after {len(data)} bytes; download it again")
    shape = struct.unpack(f">{rank}I", data[4:start])
    held, packed = path.stat().st_size, isinstance(stream, gzip.GzipFile)
    if not packed and math.prod(shape) != held - start:
        raise Uneven(f"promises {math.prod(shape)} bytes for shape {shape} but holds {held - start}")
    refuse_promise(math.prod(shape), held, packed)
    return shape


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked as they are read."""
    with path.open("rb") as file:
        # The content decides, not the name: some browsers unpack .gz and keep the name.
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        try:
            yield cast(IO[bytes], gzip.GzipFile(fileobj=file)) if packed else file
        except Uneven as error:
            raise DataError(f"{path}: {error}; the file is cut short or damaged, download it again") from None
        except (EOFError, OSError, zlib.error) as error:
            raise DataError(f"{path}: cannot be unpacked ({one_line(error)}); it is cut short or damaged") from error


def _with_gz(names: tuple[str, ...]) -> list[str]:
    return [name + ending for name in names for ending in ("", ".gz")]


def _refuse_mix_up(dataset: Dataset, labels: Array, path: Path) -> None:
    """MNIST and Fashion-MNIST use the same file names, so one is easily read as the other."""
    for other in DATASETS.values():
        start = other.first_labels
        if start and other.name != dataset.name and tuple(labels[: len(start)].tolist()) == start:
            raise DataError(f"{path}: these are the labels of {other.name}, not of {dataset.name}; load that name")
