"""Data files made to crash their reader or to fill its memory: one line each, within a gigabyte."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest

from sigmazero.data import DataError, load
from sigmazero.data.imagenet import prepare
from tests.data.test_cifar import LABELS, batch
from tests.hard.bounded import bounded

pytestmark = pytest.mark.slow

IMAGES, CLASSES = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
ROOM = 200 << 20


def shape(name: str, folder: Path, limit: int | None = None) -> list[int]:
    return list(load(name, data_dir=folder, limit=limit).images.shape)


def said(name: str | Path, folder: Path, limit: int | None = None) -> str:
    """The one line about a data set, from a process with little room."""
    text = bounded(shape, str(name), folder, limit, room=ROOM)
    assert isinstance(text, str)
    assert text.startswith("DataError: ")
    assert "\n" not in text
    return text


def zeros(count: int, *, head: bytes = b"", gz: bool = False) -> bytes:
    """So many zeros after a head, packed without ever being held."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31 if gz else -15)
    parts = [packer.compress(head)]
    block = bytes(1 << 22)
    parts += [packer.compress(block[: min(len(block), count - at)]) for at in range(0, count, len(block))]
    return b"".join([*parts, packer.flush()])


def npy(kind: str, *dimensions: int, columns_first: bool = False) -> bytes:
    head = repr({"descr": kind, "fortran_order": columns_first, "shape": dimensions}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


def bomb(path: Path, kind: str, *dimensions: int, **options: bool) -> Path:
    """A small .npz whose images are zeros."""
    head = npy(kind, *dimensions, **options)
    size = int(np.prod(dimensions)) * np.dtype(kind).itemsize
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("images.npy", "w", force_zip64=True) as entry:
            entry.write(head)
            for at in range(0, size, 1 << 22):
                entry.write(bytes(min(1 << 22, size - at)))
        archive.writestr("labels.npy", npy("|u1", dimensions[0]) + bytes(dimensions[0]))
    return path


@pytest.mark.parametrize("kind", ["|u1", "<f8"])
def test_a_packed_npz_gives_the_rows_asked_for_without_its_memory(tmp_path: Path, kind: str) -> None:
    path = bomb(tmp_path / "own.npz", kind, 320_000_000 // 120_000 // np.dtype(kind).itemsize, 3, 200, 200)
    assert path.stat().st_size < 3 << 20
    assert bounded(shape, str(path), tmp_path, 4, room=ROOM) == [4, 3, 200, 200]


def test_more_than_the_limit_is_refused_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = bomb(tmp_path / "own.npz", "|u1", 200, 3, 300, 300)
    monkeypatch.setenv("SIGMAZERO_MAX_BYTES", "200000000")
    text = said(path, tmp_path)
    assert "taking 200 rows asks for 0.3 GB of memory and 0.2 GB are allowed; " in text
    assert "choose fewer with rows or limit, or raise SIGMAZERO_MAX_BYTES (now 200000000)" in text
    assert bounded(shape, str(path), tmp_path, 2, room=ROOM) == [2, 3, 300, 300]


def test_arrays_that_cannot_be_as_large_as_they_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", npy("|u1", 10**10, 4) + bytes(40))
        archive.writestr("labels.npy", npy("|u1", 10) + bytes(10))
    assert "images.npy promises 40000000000 bytes and has 40" in said(path, tmp_path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("images.npy", npy("|u1", 10, 4) + bytes(40))
        archive.writestr("labels.npy", npy("|u1", 10) + bytes(10))
    assert "packed in a way that numpy does not use" in said(path, tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", npy("|u1", 10, 4) + bytes(40))
        archive.writestr("labels.npy", npy("|u1", 10) + bytes(10))
        archive.writestr("layout.npy", npy("<U1000") + bytes(4000))
    assert "layout.npy has 4000 bytes, and needs a word" in said(path, tmp_path)
    monkeypatch.setenv("SIGMAZERO_MAX_BYTES", "100")
    np.savez(path, images=np.zeros((10, 4)), labels=np.arange(10))
    assert "labels.npy asks for 0.0 GB of memory and 0.0 GB are allowed" in said(path, tmp_path)


def test_columns_first_arrays_are_read_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.asfortranarray(np.random.default_rng(0).random((50, 40)))
    np.savez(tmp_path / "own.npz", images=images, labels=np.arange(50))
    rows = load(tmp_path / "own.npz", rows="3,7")
    np.testing.assert_array_equal(rows.images.numpy(), images[[3, 7]].astype(np.float32))
    monkeypatch.setenv("SIGMAZERO_MAX_BYTES", "10000")
    assert "stored column by column asks for" in said(tmp_path / "own.npz", tmp_path, 2)


def test_values_of_rows_that_pass_by_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sigmazero.data.stream.PIECE", 1000)  # several pieces
    images = np.linspace(0, 1, 100 * 30).reshape(100, 30)
    np.savez(tmp_path / "own.npz", images=images, labels=np.arange(100))
    rows = load(tmp_path / "own.npz", rows=[99, 0, 57])
    np.testing.assert_array_equal(rows.images.numpy(), images[[99, 0, 57]].astype(np.float32))
    for value, words in ((np.nan, "image 80 holds NaN"), (7.0, "range from 0.0 to 7.0")):
        images[80, 3] = value
        np.savez(tmp_path / "own.npz", images=images, labels=np.arange(100))
        assert words in said(tmp_path / "own.npz", tmp_path, 1)


@pytest.mark.parametrize(
    ("promised", "sent", "words"),
    [
        ((1000, 28, 28), 400_000_000, "promises 784000 bytes for shape (1000, 28, 28) but holds more"),
        ((2**32 - 1, 28, 28), 784, "promises 3367254359280 bytes but holds"),
        ((1000, 28, 28), 783_999, "promises 784000 bytes for shape (1000, 28, 28) but holds 783999"),
    ],
)
def test_a_packed_idx_file_is_read_no_further_than_its_header_says(
    tmp_path: Path, promised: tuple[int, ...], sent: int, words: str
) -> None:
    head = bytes([0, 0, 8, 3]) + struct.pack(">3I", *promised)
    (tmp_path / f"{IMAGES}.gz").write_bytes(zeros(sent, head=head, gz=True))
    count = min(promised[0], 1000)
    labels = bytes([0, 0, 8, 1]) + struct.pack(">I", count) + bytes(count)
    (tmp_path / f"{CLASSES}.gz").write_bytes(gzip.compress(labels))
    assert words in said("mnist", tmp_path, 4)


def test_a_packed_idx_file_gives_the_rows_asked_for(tmp_path: Path) -> None:
    count = 400_000
    head = bytes([0, 0, 8, 3]) + struct.pack(">3I", count, 28, 28)
    (tmp_path / f"{IMAGES}.gz").write_bytes(zeros(count * 784, head=head, gz=True))
    (tmp_path / f"{CLASSES}.gz").write_bytes(zeros(count, head=bytes([0, 0, 8, 1]) + struct.pack(">I", count), gz=True))
    assert bounded(shape, "mnist", tmp_path, 4, room=ROOM) == [4, 1, 28, 28]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x02})" + b"\x85" * 1_000_000 + b"Ns.", "nests or repeats tuples to more than 2000 values"),
        (b"\x80\x02})" + b"q\x00h\x00\x86" * 60 + b"Ns.", "nests or repeats tuples to more than 2000 values"),
        (b"\x80\x02}r\xff\xff\xff\xff.", "it numbers a value 4294967295"),
        (b"\x80\x04\x8e" + (40 * 10**9).to_bytes(8, "little") + b"x.", "cut short or damaged"),
        (
            b"\x80\x02(c_codecs\nencode\nq\x00X\x00\x00\x10\x00" + b"a" * (1 << 20)
            + b"X\x06\x00\x00\x00latin1\x86q\x01" + b"h\x00h\x01R" * 5000 + b"l.",
            "it repeats its texts",
        ),
        (b"\x80\x02}X\x06\x00\x00\x00labels](\x8a\x10" + b"\x7f" * 16 + b"es.", "has no data and labels"),
    ],
)  # fmt: skip
def test_a_pickled_batch_cannot_crash_its_reader(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "test_batch").write_bytes(data)
    assert words in said("cifar10", tmp_path)


def test_labels_beyond_any_number(tmp_path: Path) -> None:
    table = np.zeros((5, 3072), dtype=np.uint8)
    data = batch(table).replace(b"K\x03K\x08K\x08", b"\x8a\x10" + b"\x7f" * 16 + b"K\x08K\x08")
    assert LABELS[:3] == [3, 8, 8]
    (tmp_path / "test_batch").write_bytes(data)
    assert "not all labels are from 0 to 9" in said("cifar10", tmp_path)


def test_archives_that_unpack_to_gigabytes_or_lead_in_circles(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-python.tar.gz"
    for name, kind, size in (("x/test_batch", b"0", 290 << 20), ("././@LongLink", b"L", 280 << 20)):
        entry = tarfile.TarInfo(name)
        entry.size, entry.type = size, kind
        path.write_bytes(zeros(300 << 20, head=entry.tobuf(tarfile.GNU_FORMAT), gz=True))
        assert "cannot be unpacked" in said("cifar10", tmp_path)
    entry = tarfile.TarInfo("x/other")
    buffer = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    buffer[124:136] = b"\xff" * 10 + b"\xfe\x00"  # a length of -512, which leads back to itself
    buffer[148:156] = b"%06o\0 " % (256 + sum(buffer[:148]) + sum(buffer[156:512]))
    plain = tmp_path / "cifar-10-python.tar"
    path.unlink()
    with io.BytesIO() as whole:
        whole.write(tarfile.TarInfo("x/first").tobuf() + bytes(buffer) + bytes(10240))
        plain.write_bytes(whole.getvalue())
    assert "its entries lead back to each other" in said("cifar10", tmp_path)


def test_pictures_that_would_grow_beyond_any_memory(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (60_000, 1)).save(tmp_path / "thin.png")
    with pytest.raises(DataError, match="60000 by 1 is none of ImageNet"):
        prepare(tmp_path / "thin.png", resize=False)
    image.new("1", (30_000, 30_000)).save(tmp_path / "wide.png")
    with pytest.raises(DataError, match=r"not a readable picture \(Image size \(900000000 pixels\) exceeds limit"):
        prepare(tmp_path / "wide.png", resize=True)
