"""Readers of CIFAR-10's test batch: python or binary version, loose or inside the published archive."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path

import numpy as np

from sigmazero.data.errors import DataError
from sigmazero.data.places import first_match
from sigmazero.data.registry import Dataset
from sigmazero.data.safe_pickle import read_batch
from sigmazero.data.source import Array, Source, in_memory, refuse_disguise

RECORD = 1 + 3 * 32 * 32
LOOSE = ("test_batch", "test_batch.bin")
ARCHIVES = ("cifar-10-python.tar.gz", "cifar-10-binary.tar.gz", "cifar-10-python.tar", "cifar-10-binary.tar")


def find(_: Dataset, folders: list[Path]) -> Source | None:
    """The test batch from the first folder that has it in any form, or None."""
    # Torch users have the unpacked folder one level down, beside the archive.
    nested = [folder / name for folder in folders for name in ("cifar-10-batches-py", "cifar-10-batches-bin")]
    path = first_match([*folders, *nested], (*LOOSE, *ARCHIVES))
    return None if path is None else read(path)


def read(path: Path) -> Source:
    """Images and labels of a batch file or an archive."""
    member, data = (path.name, path.read_bytes()) if path.name in LOOSE else _from_archive(path)
    refuse_disguise(data[:64], path)
    pixels, labels = _binary(data, path) if member.endswith(".bin") else _pickled(data, path)
    if labels.size and not 0 <= labels.min() <= labels.max() <= 9:
        raise DataError(f"{path}: label {labels.max()} is not one of 0 to 9; the file is damaged")
    return in_memory(pixels.reshape(-1, 3, 32, 32), labels, path)


def _binary(data: bytes, path: Path) -> tuple[Array, Array]:
    if len(data) % RECORD:
        raise DataError(
            f"{path}: {len(data)} bytes are no whole number of {RECORD}-byte records; it is cut short or damaged"
        )
    records = np.frombuffer(data, dtype=np.uint8).reshape(-1, RECORD)
    return records[:, 1:], records[:, 0]


def _pickled(data: bytes, path: Path) -> tuple[Array, Array]:
    pixels, labels = read_batch(data, path)
    if pixels.ndim != 2 or pixels.shape[1] != RECORD - 1:
        raise DataError(f"{path}: pixels have shape {pixels.shape}, not (rows, {RECORD - 1}); is this CIFAR-10?")
    whole = [label for label in labels if isinstance(label, int)]
    if len(whole) != len(labels):
        raise DataError(f"{path}: labels are not all whole numbers; the file is damaged")
    return pixels, np.array(whole, dtype=np.int64)


def _from_archive(path: Path) -> tuple[str, bytes]:
    with path.open("rb") as head:
        refuse_disguise(head.read(64), path)
    try:
        with tarfile.open(path, "r:*") as archive:
            for entry in archive:
                member = entry.name.rsplit("/", 1)[-1]
                if member in LOOSE and (content := archive.extractfile(entry)) is not None:
                    return member, content.read()
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path}: cannot be unpacked ({error}); it is cut short or damaged, download it again"
        ) from error
    raise DataError(f"{path}: contains neither test_batch nor test_batch.bin; is this the CIFAR-10 archive?")
