from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from sigmazero.data import DataError, MissingData, load

RANDOM = np.random.default_rng(2)
LABELS = np.arange(5)


def save(folder: Path, **arrays: np.ndarray) -> Path:
    path = folder / "own.npz"
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 7), (5, 7)),
        ((5, 28, 28), (5, 1, 28, 28)),
        ((5, 32, 32, 3), (5, 3, 32, 32)),
        ((5, 3, 32, 32), (5, 3, 32, 32)),
        ((5, 9, 9, 1), (5, 1, 9, 9)),
        ((5, 1, 9, 9), (5, 1, 9, 9)),
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64, np.float16])
def test_shapes(tmp_path: Path, shape: tuple[int, ...], expected: tuple[int, ...], kind: type) -> None:
    images = RANDOM.integers(0, 256, shape, dtype=np.uint8)
    stored = images if kind is np.uint8 else (images / 255).astype(kind)
    rows = load(save(tmp_path, images=stored, labels=LABELS))
    assert rows.images.shape == expected
    assert rows.images.dtype == torch.float32
    assert rows.name == "own.npz"
    assert 0 <= rows.images.min() <= rows.images.max() <= 1
    back = rows.images.movedim(1, -1) if len(shape) == 4 and shape[3] in (1, 3) else rows.images
    np.testing.assert_allclose(back.reshape(shape).numpy() * 255, images, atol=0.2)


@pytest.mark.parametrize(
    ("layout", "expected"), [("NCHW", (5, 3, 4, 3)), ("NHWC", (5, 3, 3, 4)), ("raw", (5, 3, 4, 3))]
)
def test_layout_entry_decides(tmp_path: Path, layout: str, expected: tuple[int, ...]) -> None:
    images = np.zeros((5, 3, 4, 3), dtype=np.uint8)
    path = save(tmp_path, images=images, labels=LABELS, layout=np.array(layout))
    assert load(path).images.shape == expected
    with pytest.raises(DataError, match="cannot tell where the channels"):
        load(save(tmp_path, images=images, labels=LABELS))


def test_layout_raw_keeps_any_shape(tmp_path: Path) -> None:
    images = np.zeros((5, 2, 3, 4, 5), dtype=np.float32)
    assert load(save(tmp_path, images=images, labels=LABELS, layout=np.array("raw"))).images.shape == images.shape
    with pytest.raises(DataError, match="needs 4 dimensions"):
        load(save(tmp_path, images=images, labels=LABELS, layout=np.array("NHWC")))
    with pytest.raises(DataError, match="layout 'HWC' is not one of"):
        load(save(tmp_path, images=images, labels=LABELS, layout=np.array("HWC")))


def test_other_names_and_label_columns(tmp_path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        "x_train": np.zeros(1),
        "x_test": np.zeros((5, 6), dtype=np.uint8),
        "y_test": LABELS[:, None],
    }
    assert load(save(tmp_path, **arrays)).labels.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": np.zeros((5, 4))}, "it needs the arrays images and labels"),
        ({"images": np.full((5, 4), 200.0), "labels": LABELS}, r"range from 200 to 200; .*bounds=\(0, 200\)"),
        ({"images": np.full((5, 4), -0.1), "labels": LABELS}, "range from -0.1"),
        ({"images": np.full((5, 4), np.nan), "labels": LABELS}, "image 0 holds NaN"),
        ({"images": np.zeros((5, 4), dtype=np.int32), "labels": LABELS}, "images are int32"),
        ({"images": np.zeros(5, dtype=np.uint8), "labels": LABELS}, "one row per image"),
        ({"images": np.zeros((4, 4)), "labels": LABELS}, "4 images but 5 labels"),
        ({"images": np.zeros((5, 4)), "labels": np.eye(5)}, "one whole number per image"),
        ({"images": np.zeros((5, 4)), "labels": LABELS / 2}, "one whole number per image"),
        ({"images": np.zeros((5, 4)), "labels": LABELS - 1}, "label -1"),
        ({"images": np.zeros((0, 4)), "labels": LABELS[:0]}, "holds no rows"),
        ({"images": np.zeros((5, 4)), "labels": np.array([None] * 5)}, "cannot be read"),
    ],
)
def test_bad_arrays(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load(save(tmp_path, **arrays))
    assert "own.npz" in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[: len(data) // 2], "cannot be read"),
        (lambda data: data[:200] + b"\xff" * 40 + data[240:], "cannot be read"),
        (lambda data: b"<html>404</html>", "web page"),
        (lambda data: b"\x93NUMPY", "begins with 934e554d"),
        (lambda data: b"", "is an empty file"),
    ],
)
def test_damaged_files(tmp_path: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    path = save(tmp_path, images=np.zeros((5, 40)), labels=LABELS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        load(path)


def test_absent_file() -> None:
    with pytest.raises(MissingData, match="no such file"):
        load("absent.npz")


NAMES = np.array(["age", "gain"])


@pytest.mark.parametrize("kind", [np.uint8, np.bool_, np.int64, np.float64])
def test_names_make_a_table_in_its_own_units(tmp_path: Path, kind: type) -> None:
    table: np.ndarray = np.array([[30, 0], [41, 1], [17, 0], [90, 1], [55, 1]]).astype(kind)
    path = save(tmp_path, images=table, labels=LABELS % 2, names=NAMES, classes=np.array(["poor", "rich"]))
    rows = load(path, rows="1:4")
    assert rows.images.tolist() == table[1:4].astype(float).tolist()
    assert (rows.names, rows.classes, rows.space) == (("age", "gain"), ("poor", "rich"), None)
    (tmp_path / "own.space.toml").write_text('[feature.age]\nkind = "integer"\nupper = 90\n[feature.gain]\n')
    space = load(path).space
    assert space is not None
    assert space.columns((2,)).kind == ["integer", "real"]


def test_whole_numbers_beyond_float32_keep_their_digits(tmp_path: Path) -> None:
    rows = load(save(tmp_path, images=np.full((5, 2), (1 << 24) + 1), labels=LABELS, names=NAMES))
    assert (rows.images.dtype, rows.images[0, 0].item()) == (torch.float64, (1 << 24) + 1)


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"names": np.array(["age"])}, "1 names for 2 features"),
        ({"names": np.array([1, 2])}, "names is int64"),
        ({"names": NAMES, "images": np.full((5, 2), np.nan)}, "image 0 holds NaN or Inf"),
        ({"names": NAMES, "images": np.full((5, 2), "x")}, "the table is of <U1; store numbers"),
        ({"classes": NAMES}, "label 4 of own.npz has no name"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, arrays: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(DataError, match=words):
        load(save(tmp_path, **{"images": np.zeros((5, 2)), "labels": LABELS, **arrays}))


def test_a_space_beside_that_cannot_be_read(tmp_path: Path) -> None:
    path = save(tmp_path, images=np.zeros((5, 2)), labels=LABELS)
    (tmp_path / "own.space.toml").write_text("knid = 3")
    with pytest.raises(DataError, match=r"own.space.toml.*'knid'"):
        load(path)
