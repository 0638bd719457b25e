"""Folders of pictures, one sub-folder per class."""

import io
import sys

import numpy as np
import pytest
from PIL import Image

from sigmazero import data
from sigmazero.data import DataError


def save(path, values):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values, dtype=np.uint8)).save(path)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for kind, shade in (("dog", 255), ("cat", 0)):
        for number in (2, 1):
            save(folder / kind / f"{number}.png", np.full((2, 3, 3), shade // number))
    (folder / "dog" / "notes.txt").write_text("not a picture")
    (folder / ".cache").mkdir()
    return folder


def test_classes_are_the_names_of_the_folders(photos):
    rows = data.load(photos)
    assert rows.classes == ("cat", "dog")
    assert rows.labels.tolist() == [0, 0, 1, 1]
    assert rows.images.shape == (4, 3, 2, 3)
    assert rows.images[:, 0, 0, 0].tolist() == pytest.approx([0, 0, 1, 127 / 255])
    assert (rows.name, rows.scaled) == ("photos", True)
    assert data.load(f"{photos}/", rows="3").labels.tolist() == [1]


def test_grey_pictures_have_one_channel_unless_one_is_coloured(photos, tmp_path):
    grey = tmp_path / "grey"
    save(grey / "a" / "1.png", np.full((2, 3), 51))
    assert data.load(grey).images.flatten().tolist() == pytest.approx([0.2] * 6)
    save(grey / "b" / "1.png", np.zeros((2, 3, 3)))
    assert data.load(grey).images.shape == (2, 3, 2, 3)


def test_what_cannot_be_read_is_named(photos, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="none: no such folder"):
        data.load(f"{tmp_path}/none/")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no sub-folders with pictures"):
        data.load(tmp_path / "empty")
    save(photos / "dog" / "3.png", np.zeros((5, 3, 3)))
    with pytest.raises(DataError, match=r"3\.png: has 3×5 pixels but 1\.png 3×2; resize"):
        data.load(photos)
    (photos / "dog" / "3.png").write_bytes(b"no picture at all")
    with pytest.raises(DataError, match=r"3\.png: is not a readable picture"):
        data.load(photos)
    whole = (photos / "cat" / "1.png").read_bytes()
    (photos / "dog" / "3.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"3\.png: is not a"):
        data.load(photos)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(data.MissingExtra, match=r"reading pictures needs the package 'PIL'.*sigmazero\[data\]"):
        data.load(photos)


def test_a_picture_that_asks_for_too_much_is_refused(photos, monkeypatch):
    monkeypatch.setattr("PIL.Image.MAX_IMAGE_PIXELS", 4)
    with pytest.raises(DataError, match="not a readable picture"):
        data.load(photos)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "JPEG", "PPM"])
def test_a_damaged_picture_is_refused_in_a_line(kind, tmp_path):
    """Bytes at random places; what can still be read is read."""
    rng = np.random.default_rng(0)
    file = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (6, 7, 3), dtype=np.uint8)).save(file, kind)
    place = tmp_path / "all" / "a" / f"x.{kind.lower()}"
    place.parent.mkdir(parents=True)
    refused = []
    for _ in range(40):
        damaged = np.frombuffer(file.getvalue(), dtype=np.uint8).copy()
        damaged[rng.integers(0, len(damaged), 8)] = rng.integers(0, 256, 8)
        place.write_bytes(damaged[: rng.integers(1, len(damaged) + 1)].tobytes())
        try:
            data.load(tmp_path / "all")
        except DataError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert all(place.name in said and "\n" not in said for said in refused)
