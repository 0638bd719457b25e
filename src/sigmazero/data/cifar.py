"""Readers of CIFAR-10's test batch: python or binary version, loose or inside the published archive."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path
from typing import IO, cast

import numpy as np

from sigmazero.core.text import one_line
from sigmazero.data.errors import DataError
from sigmazero.data.places import first_match
from sigmazero.data.registry import Dataset
from sigmazero.data.safe_pickle import read_batch
from sigmazero.data.source import Array, Source, afford, in_memory, refuse_disguise

RECORD = 1 + 3 * 32 * 32
ENTRY = 1 << 27  # bytes; the test batch has a quarter of it
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
    if path.name in LOOSE:
        afford(path.stat().st_size, str(path))
        member, data = path.name, path.read_bytes()
    else:
        member, data = _from_archive(path)
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
    if whole and not 0 <= min(whole) <= max(whole) <= 9:
        raise DataError(f"{path}: not all labels are from 0 to 9; the file is damaged")
    return pixels, np.array(whole, dtype=np.int64)


class _Forward:
    """A packed archive as tarfile wants it: never back, and never much at once.

    A damaged archive may send its reader round in circles, and the name of an entry may claim to be gigabytes long.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.tell = stream.tell

    def read(self, size: int) -> bytes:
        """So many bytes."""
        if size > ENTRY:
            raise tarfile.TarError(f"an entry of {size} bytes is none of CIFAR-10")
        return self._stream.read(size)

    def seek(self, place: int) -> None:
        """Go on to a place further on."""
        if place < self._stream.tell():
            raise tarfile.TarError("its entries lead back to each other")
        self._stream.seek(place)


def _from_archive(path: Path) -> tuple[str, bytes]:
    with path.open("rb") as file:
        head = file.read(64)
        file.seek(0)
        refuse_disguise(head, path)
        try:
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=file)) if head[:2] == b"\x1f\x8b" else file
            with tarfile.open(fileobj=_Forward(stream), mode="r:") as archive:  # type: ignore[call-overload]
                for entry in archive:
                    member = entry.name.rsplit("/", 1)[-1]
                    if member in LOOSE and entry.isreg():
                        return member, _content(archive, entry)
        except Exception as error:  # damaged files fail in as many ways as there are bytes
            raise DataError(
                f"{path}: cannot be unpacked ({one_line(error)}); it is cut short or damaged, download it again"
            ) from error
    raise DataError(f"{path}: contains neither test_batch nor test_batch.bin; is this the CIFAR-10 archive?")


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    content = archive.extractfile(entry)
    if content is None or entry.size > ENTRY:
        raise tarfile.TarError(f"{entry.name} has {entry.size} bytes")
    return content.read()
