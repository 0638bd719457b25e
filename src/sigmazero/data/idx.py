"""Readers of the idx files of MNIST and Fashion-MNIST."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from sigmazero.data.errors import DataError
from sigmazero.data.places import first_match
from sigmazero.data.registry import DATASETS, Dataset
from sigmazero.data.source import Array, Source, in_memory, refuse_disguise

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
        pixels, classes = read(images, 3), read(labels, 1)
        _refuse_mix_up(dataset, classes, labels)
        return in_memory(pixels[:, None], classes, images)
    return None


def read(path: Path, rank: int) -> Array:
    """One idx file of unsigned bytes with this many dimensions."""
    data = _bytes(path)
    refuse_disguise(data[:64], path)
    magic, expected = data[:4], bytes([0, 0, 8, rank])
    if magic != expected:
        raise DataError(
            f"{path}: begins with {magic.hex()} instead of {expected.hex()}; it is not an idx file of "
            f"bytes with {rank} dimension{'s' * (rank > 1)}, so check that images and labels are not swapped"
        )
    start = 4 + 4 * rank
    if len(data) < start:
        raise DataError(f"{path}: ends inside its header after {len(data)} bytes; download it again")
    shape = struct.unpack(f">{rank}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise DataError(
            f"{path}: promises {math.prod(shape)} bytes for shape {shape} but holds {len(data) - start}; "
            "the file is cut short or damaged, download it again"
        )
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def _with_gz(names: tuple[str, ...]) -> list[str]:
    return [name + ending for name in names for ending in ("", ".gz")]


def _bytes(path: Path) -> bytes:
    data = path.read_bytes()
    # The content decides, not the name: some browsers unpack .gz and keep the name.
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(f"{path}: cannot be unpacked ({error}); it is cut short or damaged") from error


def _refuse_mix_up(dataset: Dataset, labels: Array, path: Path) -> None:
    """MNIST and Fashion-MNIST use the same file names, so one is easily read as the other."""
    for other in DATASETS.values():
        start = other.first_labels
        if start and other.name != dataset.name and tuple(labels[: len(start)].tolist()) == start:
            raise DataError(f"{path}: these are the labels of {other.name}, not of {dataset.name}; load that name")
