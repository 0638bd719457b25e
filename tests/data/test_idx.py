from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sigmazero.data import DATASETS, DataError, MissingData, load

IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
CLASSES = np.arange(12, dtype=np.uint8) % 10
Writer = Callable[[Path, np.ndarray], Path]


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("folder", [".", "mnist", "MNIST/raw"])
def test_idx_files_in_usual_places(
    tmp_path: Path, pixels: np.ndarray, write_idx: Writer, ending: str, folder: str
) -> None:
    write_idx(tmp_path / folder / (IMAGES + ending), pixels)
    write_idx(tmp_path / folder / (LABELS + ending), CLASSES)
    rows = load("mnist", data_dir=tmp_path)
    assert rows.images.shape == (12, 1, 28, 28)
    np.testing.assert_array_equal(rows.images[:, 0].numpy(), pixels.astype(np.float32) / np.float32(255))
    assert rows.labels.tolist() == CLASSES.tolist()
    assert rows.ids.tolist() == list(range(12))
    assert rows.name == "mnist"


def test_gz_name_with_unpacked_content(tmp_path: Path, pixels: np.ndarray, write_idx: Writer) -> None:
    write_idx(tmp_path / IMAGES, pixels).rename(tmp_path / f"{IMAGES}.gz")
    write_idx(tmp_path / LABELS, CLASSES)
    assert len(load("mnist", data_dir=tmp_path)) == 12


def test_home_and_cache_are_searched_in_order(
    tmp_path: Path, pixels: np.ndarray, write_idx: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SIGMAZERO_HOME", str(tmp_path / "home"))
    cached = tmp_path / "cache" / "sigmazero" / "data" / "mnist"
    write_idx(cached / IMAGES, pixels[:3])
    write_idx(cached / LABELS, CLASSES[:3])
    assert len(load("mnist")) == 3
    write_idx(tmp_path / "home" / "data" / IMAGES, pixels[:5])
    write_idx(tmp_path / "home" / "data" / LABELS, CLASSES[:5])
    assert len(load("mnist")) == 5
    # An asked-for folder wins with any format over a published file elsewhere.
    asked = tmp_path / "asked"
    asked.mkdir()
    np.savez(asked / "mnist_test.npz", images=pixels[:7], labels=CLASSES[:7])
    assert len(load("mnist", data_dir=asked)) == 7


def test_debian_folder(tmp_path: Path, pixels: np.ndarray, write_idx: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    debian = replace(DATASETS["fashion-mnist"], system_folders=(str(tmp_path / "debian"),))
    assert DATASETS["fashion-mnist"].system_folders == ("/usr/share/dataset-fashion-mnist",)
    # By way of sys.modules, because the package's function `load` hides the module of that name.
    monkeypatch.setattr(sys.modules["sigmazero.data.load"], "DATASETS", {"fashion-mnist": debian})
    write_idx(tmp_path / "debian" / f"{IMAGES}.gz", pixels)
    write_idx(tmp_path / "debian" / f"{LABELS}.gz", CLASSES)
    assert len(load("fashion-mnist")) == 12


def test_missing_files_say_everything(tmp_path: Path) -> None:
    with pytest.raises(MissingData) as caught:
        load("fashion-mnist", data_dir=tmp_path)
    text = str(caught.value)
    for part in (IMAGES, LABELS, "zalandoresearch", str(tmp_path / "fashion-mnist"), "sigmazero", "data_dir"):
        assert part in text
    with pytest.raises(FileNotFoundError):
        load("mnist")
    with pytest.raises(DataError, match="is not a folder"):
        load("mnist", data_dir=tmp_path / "absent")


def test_one_file_of_two(tmp_path: Path, pixels: np.ndarray, write_idx: Writer) -> None:
    write_idx(tmp_path / IMAGES, pixels)
    with pytest.raises(DataError, match=f"but not {LABELS}"):
        load("mnist", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-5], "cut short or damaged"),
        (lambda data: data + b"x", "cut short or damaged"),
        (lambda data: data[:7], "ends inside its header after 7 bytes"),
        (lambda data: b"", "is an empty file"),
        (lambda data: b"\x00\x00\x0d\x03" + data[4:], "begins with 00000d03"),
        (lambda data: b"  <!DOCTYPE html><html>not found", "web page"),
        (lambda data: gzip.compress(data)[:-20], "cannot be unpacked"),
        (lambda data: gzip.compress(data)[:9] + b"\x00" * 40, "cannot be unpacked"),
    ],
)
def test_damaged_images(
    tmp_path: Path, pixels: np.ndarray, write_idx: Writer, damage: Callable[[bytes], bytes], message: str
) -> None:
    path = write_idx(tmp_path / IMAGES, pixels)
    path.write_bytes(damage(path.read_bytes()))
    write_idx(tmp_path / LABELS, CLASSES)
    with pytest.raises(DataError, match=message) as caught:
        load("mnist", data_dir=tmp_path)
    assert IMAGES in str(caught.value)


def test_swapped_and_unequal_files(tmp_path: Path, pixels: np.ndarray, write_idx: Writer) -> None:
    write_idx(tmp_path / IMAGES, CLASSES)
    write_idx(tmp_path / LABELS, CLASSES)
    with pytest.raises(DataError, match="swapped"):
        load("mnist", data_dir=tmp_path)
    write_idx(tmp_path / IMAGES, pixels)
    write_idx(tmp_path / LABELS, CLASSES[:-1])
    with pytest.raises(DataError, match="12 images but 11 labels"):
        load("mnist", data_dir=tmp_path)


def test_mnist_is_not_taken_for_fashion(tmp_path: Path, pixels: np.ndarray, write_idx: Writer) -> None:
    write_idx(tmp_path / IMAGES, pixels)
    write_idx(tmp_path / LABELS, np.array([7, 2, 1, 0, 4, 1, 4, 9, 5, 9, 0, 6], dtype=np.uint8))
    assert len(load("mnist", data_dir=tmp_path)) == 12
    with pytest.raises(DataError, match="labels of mnist, not of fashion-mnist"):
        load("fashion-mnist", data_dir=tmp_path)


def test_wrong_shape_and_labels_for_the_name(tmp_path: Path, write_idx: Writer) -> None:
    write_idx(tmp_path / IMAGES, np.zeros((3, 8, 8), dtype=np.uint8))
    write_idx(tmp_path / LABELS, np.zeros(3, dtype=np.uint8))
    with pytest.raises(DataError, match=r"shape \(1, 8, 8\) instead of \(1, 28, 28\)"):
        load("mnist", data_dir=tmp_path)
    write_idx(tmp_path / IMAGES, np.zeros((3, 28, 28), dtype=np.uint8))
    write_idx(tmp_path / LABELS, np.array([0, 1, 47], dtype=np.uint8))
    with pytest.raises(DataError, match="reach 47 but it has 10 classes"):
        load("mnist", data_dir=tmp_path)
