"""Arrays in .npz files: shapes, layouts, tables, and what is refused."""

import numpy as np
import pytest
import torch

from sigmazero.data import DataError, MissingData, load

LABELS = np.arange(5)
ZEROS = np.zeros((5, 4))
NAMES = np.array(["age", "gain"])


def save(folder, **arrays):
    np.savez(folder / "own.npz", **arrays)
    return folder / "own.npz"


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((5, 7), (5, 7)),
        ((5, 28, 28), (5, 1, 28, 28)),
        ((5, 32, 32, 3), (5, 3, 32, 32)),
        ((5, 3, 32, 32), (5, 3, 32, 32)),
        ((5, 9, 9, 1), (5, 1, 9, 9)),
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float64, np.float16])
def test_shapes(tmp_path, shape, expected, kind):
    images = np.random.default_rng(2).integers(0, 256, shape, dtype=np.uint8)
    rows = load(
        save(tmp_path, x_test=images if kind is np.uint8 else (images / 255).astype(kind), y_test=LABELS[:, None])
    )
    assert (tuple(rows.images.shape), rows.images.dtype, rows.name) == (expected, torch.float32, "own.npz")
    assert rows.labels.tolist() == LABELS.tolist()
    back = rows.images.movedim(1, -1) if len(shape) == 4 and shape[3] in (1, 3) else rows.images
    np.testing.assert_allclose(back.reshape(shape).numpy() * 255, images, atol=0.2)


@pytest.mark.parametrize(
    ("shape", "layout", "expected"),
    [
        ((5, 3, 4, 3), "NCHW", (5, 3, 4, 3)),
        ((5, 3, 4, 3), "NHWC", (5, 3, 3, 4)),
        ((5, 2, 3, 4, 5), "raw", (5, 2, 3, 4, 5)),
        ((5, 3, 4, 3), None, "cannot tell where the channels"),
        ((5, 2, 3, 4, 5), "NHWC", "needs 4 dimensions"),
        ((5, 2), "HWC", "layout 'HWC' is not one of"),
    ],
)
def test_layout_entry_decides(tmp_path, shape, layout, expected):
    entry = {} if layout is None else {"layout": np.array(layout)}
    path = save(tmp_path, images=np.zeros(shape, dtype=np.uint8), labels=LABELS, **entry)
    if isinstance(expected, tuple):
        assert load(path).images.shape == expected
    else:
        with pytest.raises(DataError, match=expected):
            load(path)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": ZEROS, "labels": None}, "it needs the arrays images and labels"),
        ({"images": np.full((5, 4), 200.0)}, r"range from 200 to 200; .*bounds=\(0, 200\)"),
        ({"images": np.full((5, 4), -0.1)}, "range from -0.1"),
        ({"images": np.full((5, 4), np.nan)}, "hold NaN"),
        ({"images": np.zeros((5, 4), dtype=np.int32)}, "images are int32"),
        ({"images": np.zeros(5, dtype=np.uint8)}, r"shape \(5,\)"),
        ({"images": np.zeros((4, 4))}, "4 images but 5 labels"),
        ({"labels": np.eye(5)}, "one whole number per image"),
        ({"labels": LABELS / 2}, "one whole number per image"),
        ({"images": ZEROS[:0], "labels": LABELS[:0]}, "holds no rows"),
        ({"labels": np.array([None] * 5)}, "cannot be read"),
        ({"names": NAMES}, "2 names for 4 features"),
        ({"names": np.arange(4)}, "names is int64"),
        ({"names": NAMES, "images": np.full((5, 2), "x")}, "to float: .*'x'"),
        ({"classes": NAMES}, "label 4 of own.npz has no name"),
    ],
)
def test_bad_arrays(tmp_path, arrays, message):
    every = {"images": ZEROS, "labels": LABELS, **arrays}
    with pytest.raises(DataError, match=message):
        load(save(tmp_path, **{name: array for name, array in every.items() if array is not None}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[: len(content) // 2], "own.npz: cannot be read"),
        (lambda content: content[:200] + b"\xff" * 40 + content[240:], "own.npz: cannot be read"),
        (lambda content: b"<html>404</html>", "web page"),
        (lambda content: b"\x93NUMPY", "own.npz: cannot be read"),
    ],
)
def test_damaged_files(tmp_path, damage, message):
    path = save(tmp_path, images=np.zeros((5, 40)), labels=LABELS)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        load(path)
    with pytest.raises(MissingData, match="no such file"):
        load(tmp_path / "absent.npz")
    with pytest.raises(MissingData, match=r"did you mean .*own\.npz\? check the path"):
        load(tmp_path / "owm.npz")


@pytest.mark.parametrize("kind", [np.uint8, np.bool_, np.int64, np.float64])
def test_names_make_a_table_in_its_own_units(tmp_path, kind):
    table = np.array([[30, 0], [41, 1], [17, 0], [90, 1], [55, 1]]).astype(kind)
    path = save(tmp_path, images=table, labels=LABELS % 2, names=NAMES, classes=np.array(["poor", "rich"]))
    rows = load(path, rows="1:4")
    assert rows.images.tolist() == table[1:4].astype(float).tolist()
    assert (rows.names, rows.classes, rows.space) == (("age", "gain"), ("poor", "rich"), None)
    (tmp_path / "own.space.toml").write_text('[feature.age]\nkind = "integer"\nupper = 90\n[feature.gain]\n')
    assert load(path).space.columns((2,)).kind == ["integer", "real"]
    (tmp_path / "own.space.toml").write_text("knid = 3")
    with pytest.raises(DataError, match=r"own.space.toml.*'knid'"):
        load(path)


def test_whole_numbers_beyond_float32_keep_their_digits(tmp_path):
    rows = load(save(tmp_path, images=np.full((5, 2), (1 << 24) + 1), labels=LABELS, names=NAMES))
    assert (rows.images.dtype, rows.images[0, 0].item()) == (torch.float64, (1 << 24) + 1)
