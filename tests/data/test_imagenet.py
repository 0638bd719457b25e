from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from sigmazero.data import DataError, load

WNIDS = [f"n{number:08d}" for number in range(1, 1001)]


def picture(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (40, 30)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, "JPEG", quality=95)
    return path


def flat(folder: Path, count: int) -> list[Path]:
    return [picture(folder / f"ILSVRC2012_val_{row:08d}.JPEG", (60 * row, 0, 0)) for row in range(1, count + 1)]


@pytest.fixture
def foldered(tmp_path: Path) -> Path:
    """Three of the classes, two pictures in the middle one, and the list of all classes."""
    val = tmp_path / "imagenet" / "val"
    picture(val / WNIDS[4] / "b.JPEG", (200, 0, 0))
    picture(val / WNIDS[7] / "z.JPEG", (0, 200, 0))
    picture(val / WNIDS[7] / "a.JPEG", (0, 0, 200))
    picture(val / WNIDS[900] / "c.JPEG", (90, 90, 90))
    (val / WNIDS[7] / "notes.txt").write_text("not a picture")
    (val / "synsets.txt").write_text("\n".join(WNIDS))
    return tmp_path


@pytest.mark.parametrize("name", ["imagenet", "imagenet-resized"])
def test_class_folders(foldered: Path, name: str) -> None:
    rows = load(name, data_dir=foldered)
    assert rows.images.shape == (4, 3, 224, 224)
    assert rows.labels.tolist() == [4, 7, 7, 900]
    colours = (rows.images.mean(dim=(2, 3)) * 255).round().int().tolist()
    np.testing.assert_allclose(colours, [[200, 0, 0], [0, 0, 200], [0, 200, 0], [90, 90, 90]], atol=2)


def test_only_chosen_rows_are_opened(foldered: Path) -> None:
    (foldered / "imagenet" / "val" / WNIDS[4] / "b.JPEG").write_bytes(b"damaged")
    rows = load("imagenet", data_dir=foldered, rows="1,3")
    assert rows.ids.tolist() == [1, 3]
    assert rows.labels.tolist() == [7, 900]
    with pytest.raises(DataError, match=r"b\.JPEG: is not a readable picture"):
        load("imagenet", data_dir=foldered, rows="0")


def test_crop_and_resize_differ_as_they_should(tmp_path: Path) -> None:
    """A wide picture with a bright left edge: the crop loses the edge, the resize keeps it."""
    wide = np.zeros((256, 512, 3), dtype=np.uint8)
    wide[:, :100] = 255
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 65\n")
    Image.fromarray(wide).save(tmp_path / "ILSVRC2012_val_00000001.JPEG", quality=95)
    crop, resized = (load(name, data_dir=tmp_path) for name in ("imagenet", "imagenet-resized"))
    assert crop.labels.tolist() == resized.labels.tolist() == [65]
    assert crop.images.max() < 0.1
    assert resized.images[..., :40].min() > 0.9
    assert crop.content_hash != resized.content_hash


def test_crop_is_centred_pixel_by_pixel(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (300, 256, 3), dtype=np.uint8)
    path = tmp_path / "ILSVRC2012_val_00000001.JPEG"
    Image.fromarray(noise).save(path, "PNG")  # lossless, whatever the name says
    (tmp_path / "val.txt").write_text(f"{path.name} 0")
    images = load("imagenet", data_dir=tmp_path).images[0]
    expected = noise[38:262, 16:240].transpose(2, 0, 1)
    np.testing.assert_array_equal((images * 255).round().byte().numpy(), expected)


def test_incomplete_classes_need_the_list(foldered: Path) -> None:
    (foldered / "imagenet" / "val" / "synsets.txt").unlink()
    with pytest.raises(DataError, match="has 3 class folders instead of 1000"):
        load("imagenet", data_dir=foldered)
    (foldered / "imagenet" / "LOC_synset_mapping.txt").write_text("n00000005 tench, Tinca tinca\n")
    with pytest.raises(DataError, match=f"class {WNIDS[7]} is not in the list"):
        load("imagenet", data_dir=foldered)


def test_flat_with_kaggle_solution(tmp_path: Path) -> None:
    flat(tmp_path, 3)
    (tmp_path / "synsets.txt").write_text("\n".join(WNIDS))
    lines = ["ImageId,PredictionString"]
    lines += [f"ILSVRC2012_val_{row:08d},{WNIDS[10 * row]} 1 2 3 4 " for row in (3, 1, 2)]
    (tmp_path / "LOC_val_solution.csv").write_text("\n".join(lines))
    assert load("imagenet", data_dir=tmp_path).labels.tolist() == [10, 20, 30]
    (tmp_path / "synsets.txt").unlink()
    with pytest.raises(DataError, match="names 3 classes instead of 1000"):
        load("imagenet", data_dir=tmp_path)


def test_flat_with_development_kit(tmp_path: Path) -> None:
    """The kit counts classes from 1 in an order of its own: here backwards, after which come inner nodes."""
    flat(tmp_path, 2)
    (tmp_path / "ILSVRC2012_validation_ground_truth.txt").write_text("1000\n3\n")
    with pytest.raises(DataError, match=r"put the kit's meta\.mat beside it"):
        load("imagenet", data_dir=tmp_path)
    kinds = [("ILSVRC2012_ID", "f8"), ("WNID", "O")]
    entries = [(float(number), name) for number, name in enumerate([*WNIDS[::-1], "n99999999"], 1)]
    savemat(tmp_path / "meta.mat", {"synsets": np.array(entries, dtype=kinds)})
    assert load("imagenet", data_dir=tmp_path).labels.tolist() == [0, 997]
    (tmp_path / "ILSVRC2012_validation_ground_truth.txt").write_text("1000\n5000\n")
    with pytest.raises(DataError, match="'5000' is not a class number"):
        load("imagenet", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("truth", "message"),
    [
        (None, "has pictures but no labels"),
        ("ILSVRC2012_val_00000001.JPEG 3", "no label for ILSVRC2012_val_00000002"),
        ("ILSVRC2012_val_00000001.JPEG 1000", "line 1: .* label from 0 to 999"),
        ("ILSVRC2012_val_00000001.JPEG", "line 1"),
    ],
)
def test_flat_label_errors(tmp_path: Path, truth: str | None, message: str) -> None:
    flat(tmp_path, 2)
    if truth is not None:
        (tmp_path / "val.txt").write_text(truth)
    with pytest.raises(DataError, match=message):
        load("imagenet", data_dir=tmp_path)


def test_web_page_in_place_of_a_picture(tmp_path: Path) -> None:
    flat(tmp_path, 1)[0].write_text("<html><body>Please log in</body></html>")
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 3")
    with pytest.raises(DataError, match="web page"):
        load("imagenet", data_dir=tmp_path)
