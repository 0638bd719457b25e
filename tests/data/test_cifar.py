from __future__ import annotations

import gzip
import io
import pickle
import pickletools
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sigmazero.data import DataError, load

LABELS = [3, 8, 8, 0, 6]


@pytest.fixture
def table() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (5, 3072), dtype=np.uint8)


def batch(table: np.ndarray, protocol: int = 2) -> bytes:
    return pickle.dumps({b"data": table, b"labels": LABELS, b"filenames": [b"a.png"] * 5}, protocol)


def python2_batch(table: np.ndarray) -> bytes:
    """A batch as Python 2 wrote it: byte strings for keys and pixels, the old name of numpy's module."""

    def short(text: bytes) -> bytes:
        return b"U" + bytes([len(text)]) + text

    dtype = b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R(K\x03" + short(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = b"T" + table.nbytes.to_bytes(4, "little") + table.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + short(b"b") + b"\x87R"
    array += b"(K\x01K\x05M\x00\x0c\x86" + dtype + b"\x89" + raw + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in LABELS) + b"e"
    return b"\x80\x02}(" + short(b"data") + array + short(b"labels") + labels + b"u."


def binary(table: np.ndarray) -> bytes:
    return np.hstack([np.array(LABELS, dtype=np.uint8)[:, None], table]).tobytes()


def archive(path: Path, member: str, data: bytes) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, content in (("readme.html", b"<html>"), (member, data)):
            entry = tarfile.TarInfo(f"cifar-10-batches/{name}")
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    return path


def check(folder: Path, table: np.ndarray) -> None:
    rows = load("cifar10", data_dir=folder)
    expected = table.reshape(5, 3, 32, 32).astype(np.float32) / np.float32(255)
    np.testing.assert_array_equal(rows.images.numpy(), expected)
    assert rows.labels.tolist() == LABELS


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_python_version(tmp_path: Path, table: np.ndarray, protocol: int) -> None:
    (tmp_path / "test_batch").write_bytes(batch(table, protocol))
    check(tmp_path, table)


def test_python2_pickle_as_published(tmp_path: Path, table: np.ndarray) -> None:
    data = python2_batch(table)
    pickletools.dis(data, io.StringIO())  # the hand-made pickle is well formed
    (tmp_path / "cifar-10-batches-py").mkdir()
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(data)
    check(tmp_path, table)


def test_column_major_pixels(tmp_path: Path, table: np.ndarray) -> None:
    (tmp_path / "test_batch").write_bytes(batch(np.asfortranarray(table)))
    check(tmp_path, table)


def test_binary_version(tmp_path: Path, table: np.ndarray) -> None:
    nested = tmp_path / "cifar10" / "cifar-10-batches-bin"
    nested.mkdir(parents=True)
    (nested / "test_batch.bin").write_bytes(binary(table))
    check(tmp_path, table)


@pytest.mark.parametrize("version", ["python", "binary"])
def test_archives_are_read_without_unpacking(tmp_path: Path, table: np.ndarray, version: str) -> None:
    member, data = ("test_batch", batch(table)) if version == "python" else ("test_batch.bin", binary(table))
    archive(tmp_path / f"cifar-10-{version}.tar.gz", member, data)
    check(tmp_path, table)
    assert [path.name for path in tmp_path.iterdir()] == [f"cifar-10-{version}.tar.gz"]


class Evil:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, ...]]:
        return exec, ("open('owned', 'w').close()",)


@pytest.mark.parametrize(
    "content",
    [
        {b"data": Evil(), b"labels": LABELS},
        Evil(),
        {b"data": np.array([Evil()], dtype=object), b"labels": LABELS},
    ],
)
def test_malicious_pickle_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: object) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, 2))
    with pytest.raises(DataError, match=r"refused.*exec"):
        load("cifar10", data_dir=tmp_path)
    assert not (tmp_path / "owned").exists()


def test_pickle_cannot_alter_the_stand_ins(tmp_path: Path) -> None:
    # BUILD with a slot state would set attributes of whatever object a name resolves to.
    data = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nN}U\x0b__defaults__Nsb\x86b."
    (tmp_path / "test_batch").write_bytes(data)
    with pytest.raises(DataError):
        load("cifar10", data_dir=tmp_path)
    direct = b"\x80\x02cnumpy\nndarray\n}b."
    (tmp_path / "test_batch").write_bytes(direct)
    with pytest.raises(DataError, match="refused"):
        load("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("test_batch", lambda table: batch(table)[:-4000], "cut short or damaged"),
        ("test_batch", lambda table: b"<html>moved</html>", "web page"),
        ("test_batch", lambda table: b"", "is an empty file"),
        ("test_batch", lambda table: b"junk and more", "begins with 6a756e6b"),
        ("test_batch", lambda table: pickle.dumps([1, 2]), "holds a list"),
        ("test_batch", lambda table: pickle.dumps({"x": 1}), "it holds x"),
        ("test_batch", lambda table: batch(table[:, :100]), r"shape \(5, 100\)"),
        ("test_batch", lambda table: batch(table.astype(np.int16)), "not a table of bytes"),
        ("test_batch", lambda table: batch(table[:4]), "4 images but 5 labels"),
        ("test_batch.bin", lambda table: binary(table)[:-1], "no whole number of 3073-byte records"),
        ("test_batch.bin", lambda table: b"\x0b" + binary(table)[1:], "label 11 is not one of 0 to 9"),
        ("test_batch.bin", lambda table: b"", "is an empty file"),
        ("cifar-10-python.tar.gz", lambda table: b"<!doctype html>", "web page"),
        ("cifar-10-python.tar.gz", lambda table: gzip.compress(b"no archive"), "cannot be unpacked"),
    ],
)
def test_damaged_files(
    tmp_path: Path, table: np.ndarray, name: str, damage: Callable[[np.ndarray], bytes], message: str
) -> None:
    (tmp_path / name).write_bytes(damage(table))
    with pytest.raises(DataError, match=message) as caught:
        load("cifar10", data_dir=tmp_path)
    assert name in str(caught.value)


def test_truncated_and_wrong_archives(tmp_path: Path, table: np.ndarray) -> None:
    path = archive(tmp_path / "cifar-10-binary.tar.gz", "test_batch.bin", binary(table))
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(DataError, match="cannot be unpacked"):
        load("cifar10", data_dir=tmp_path)
    archive(path, "other.bin", b"")
    with pytest.raises(DataError, match="contains neither test_batch"):
        load("cifar10", data_dir=tmp_path)
