"""Checkpoints of `torch.save`: first what is in them, then the tensors that were asked for and no others.

Both formats are read, the zip archives of today and the bare pickles of old. Where the numbers of a tensor lie, and how
many, is compared with the file before memory is taken.
"""

import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from sigmazero.core.files import afford
from sigmazero.models.described import Damaged, Described, Storage, unpickle

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
SCRIPT = "is a TorchScript program, not a state dict; save torch.jit.load(FILE).state_dict() to a new file"
PROGRAM = "is an exported program, not a state dict; give it as the model, under a name that ends in .pt2"


class Unsuitable(ValueError):
    """The file is in order, but it is something else; the message says what, after the name of the file."""


@dataclass(frozen=True)
class Place:
    """Where in the file the numbers of a storage lie, and their checksum where the file has one."""

    start: int
    size: int
    checksum: int = 0


@dataclass(frozen=True)
class Checkpoint:
    """What a file describes: dictionaries and texts, and tensors that are not made yet."""

    path: Path
    contents: Any
    places: Mapping[str, Place]

    def make(self, wanted: Mapping[str, Described]) -> dict[str, Tensor]:
        """Read the numbers of these tensors, and of no others, in single precision where they are real."""
        storages = {each.storage.key: each.storage for each in wanted.values() if each.storage}
        for each in wanted.values():
            if each.storage and each.reach * each.kind.itemsize > each.storage.bytes:
                raise Damaged(f"a tensor of shape {each.shape} reaches beyond its {each.storage.count} values")
        held = sum(storage.bytes for storage in storages.values())
        size = self.path.stat().st_size
        if held > size:
            raise Damaged(f"it promises {held} bytes of weights and is {size} bytes long")
        # A few numbers in the file may be repeated to any shape; as weights they take their place each.
        afford(held + 4 * sum(each.values for each in wanted.values()), str(self.path))
        with self.path.open("rb") as file:
            read = {key: _numbers(file, storage, self.places.get(key)) for key, storage in storages.items()}
        return {key: _tensor(read, each) for key, each in wanted.items()}


def _numbers(file: BinaryIO, storage: Storage, place: Place | None) -> Tensor:
    if place is None or place.size != storage.bytes:
        held = "none" if place is None else place.size
        raise Damaged(f"storage {storage.key!r} has {held} of its {storage.bytes} bytes")
    if not storage.bytes:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    data = bytearray(storage.bytes)
    file.seek(place.start)
    if file.readinto(data) != len(data):  # type: ignore[attr-defined]
        raise Damaged(f"it ends inside storage {storage.key!r}")
    if place.checksum and zlib.crc32(data) != place.checksum:
        raise Damaged(f"the checksum of storage {storage.key!r} is wrong")
    return torch.frombuffer(data, dtype=torch.uint8)


def _tensor(read: Mapping[str, Tensor], each: Described) -> Tensor:
    if each.storage is None:
        raise Damaged("a tensor in it has no storage")
    data = read[each.storage.key]
    whole = data[: len(data) // each.kind.itemsize * each.kind.itemsize].view(each.kind)
    made = whole.as_strided(each.shape, each.stride, each.offset)
    return made.float() if made.is_floating_point() else made


def describe(path: Path) -> Checkpoint:
    """Read what a file says about itself."""
    with path.open("rb") as file:
        head = file.read(4)
        if head == b"PK\x03\x04":
            return _archive(path, file)
        afford(path.stat().st_size, str(path))
        return _legacy(path, head + file.read())


def _archive(path: Path, file: BinaryIO) -> Checkpoint:
    """A zip archive: data.pkl, and one entry for each storage in the folder data beside it."""
    with zipfile.ZipFile(file) as archive:
        entries = {info.filename: info for info in archive.infolist()}
    pickles = [name for name in entries if name.endswith("/data.pkl")]
    if any(name.endswith("/constants.pkl") or "/code/" in name for name in entries):
        raise Unsuitable(SCRIPT)
    if any("/models/" in name or "serialized_exported_program" in name for name in entries):
        raise Unsuitable(PROGRAM)
    if len(pickles) != 1:
        raise Unsuitable("is a zip archive, but no checkpoint; save model.state_dict() with torch.save")
    root = pickles[0].removesuffix("data.pkl")
    if f"{root}byteorder" in entries and _content(file, entries[f"{root}byteorder"]) != b"little":
        raise Unsuitable("was saved on a big-endian machine; save it again on another")
    contents, storages, _ = unpickle(_content(file, entries[pickles[0]]))
    found = {key: entries.get(f"{root}data/{key}") for key in storages}
    return Checkpoint(path, contents, {key: _place(file, info) for key, info in found.items() if info})


def _place(file: BinaryIO, info: zipfile.ZipInfo) -> Place:
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
        raise Damaged(f"its entry {info.filename!r} is packed, which torch never does")
    file.seek(info.header_offset)
    head = file.read(30)
    if len(head) < 30 or head[:4] != b"PK\x03\x04":
        raise Damaged(f"its entry {info.filename!r} is not where the list of contents says")
    name, extra = struct.unpack("<HH", head[26:])
    return Place(info.header_offset + 30 + name + extra, info.file_size, info.CRC)


def _content(file: BinaryIO, info: zipfile.ZipInfo) -> bytes:
    place = _place(file, info)
    file.seek(place.start)
    data = file.read(place.size)  # no more than the file has
    if len(data) != place.size or (place.checksum and zlib.crc32(data) != place.checksum):
        raise Damaged(f"its entry {info.filename!r} is cut short or altered")
    return data


def _legacy(path: Path, data: bytes) -> Checkpoint:
    """Five pickles (two marks, the machine, the contents, the keys), then each storage after its length."""
    if data[8:9] == b"{":
        raise Unsuitable("looks like a safetensors file; give it a name that ends in .safetensors")
    magic, _, end = unpickle(data)
    if magic != MAGIC:
        raise Damaged("it does not begin as torch.save does")
    protocol, _, end = unpickle(data, end)
    machine, _, end = unpickle(data, end)
    if protocol != PROTOCOL or not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise Damaged("it was saved in a form that only its own machine reads")
    contents, storages, end = unpickle(data, end)
    keys, _, end = unpickle(data, end)
    places = {}
    for key in keys:
        size = storages[key].bytes
        places[key] = Place(end + 8, size)
        if data[end : end + 8] != storages[key].count.to_bytes(8, "little"):
            raise Damaged(f"storage {key!r} is not where it should be")
        end += 8 + size
    return Checkpoint(path, contents, places)
