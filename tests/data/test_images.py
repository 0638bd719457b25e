"""Readers of pictures: idx files, CIFAR-10 batches, ImageNet, folders of pictures, those in packages."""

import gzip
import io
import pickle
import sys
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from sigmazero import data
from sigmazero.data import DataError, load

IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
CLASSES = np.arange(12, dtype=np.uint8) % 10
COLOURS = np.random.default_rng(1).integers(0, 256, (5, 3072), dtype=np.uint8)
FIVE = [3, 8, 8, 0, 6]
WNIDS = [f"n{number:08d}" for number in range(1, 1001)]


# MNIST and Fashion-MNIST


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("folder", [".", "mnist", "MNIST/raw"])
def test_idx_files_in_usual_places(tmp_path, pixels, write_idx, ending, folder):
    write_idx(tmp_path / folder / (IMAGES + ending), pixels)
    write_idx(tmp_path / folder / (LABELS + ending), CLASSES)
    rows = load("mnist", data_dir=tmp_path)
    np.testing.assert_array_equal(rows.images[:, 0].numpy(), pixels.astype(np.float32) / np.float32(255))
    assert (rows.labels.tolist(), rows.ids.tolist()) == (CLASSES.tolist(), list(range(12)))


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda data: data[:-5], "9403"),
        (lambda data: data + b"x", "9409"),
        (lambda data: data[:7], "00000803"),
        (lambda data: b"", "empty"),
        (lambda data: b"\x00\x00\x0d\x03" + data[4:], "00000d03"),
        (lambda data: b"  <!DOCTYPE html><html>not found", "web page"),
        (lambda data: gzip.compress(data)[:-20], "unpacked"),
        (lambda data: gzip.compress(data)[:9] + b"\x00" * 40, "unpacked"),
    ],
)
def test_damaged_idx_files(tmp_path, pixels, write_idx, damage, word):
    path = write_idx(tmp_path / IMAGES, pixels)
    path.write_bytes(damage(path.read_bytes()))
    write_idx(tmp_path / LABELS, CLASSES)
    with pytest.raises(DataError, match=rf"{IMAGES}.*{word}"):
        load("mnist", data_dir=tmp_path)


def test_idx_files_that_do_not_belong_together(tmp_path, pixels, write_idx):
    write_idx(tmp_path / IMAGES, pixels)
    with pytest.raises(DataError, match=LABELS):
        load("mnist", data_dir=tmp_path)
    write_idx(tmp_path / LABELS, CLASSES[:-1])
    with pytest.raises(DataError, match="12 images but 11 labels"):
        load("mnist", data_dir=tmp_path)
    write_idx(tmp_path / LABELS, np.array([7, 2, 1, 0, 4, 1, 4, 9, 5, 9, 0, 6], dtype=np.uint8))
    with pytest.raises(DataError, match="labels of mnist, not of fashion-mnist"):
        load("fashion-mnist", data_dir=tmp_path)
    write_idx(tmp_path / LABELS, CLASSES + 40)
    with pytest.raises(DataError, match="49"):
        load("mnist", data_dir=tmp_path)
    write_idx(tmp_path / IMAGES, pixels[:, :8, :8])
    with pytest.raises(DataError, match=r"\(1, 8, 8\)"):
        load("mnist", data_dir=tmp_path)


# CIFAR-10


def batch(table, protocol=2):
    return pickle.dumps({b"data": table, b"labels": FIVE, b"filenames": [b"a.png"] * 5}, protocol)


def binary(table):
    return np.hstack([np.array(FIVE, dtype=np.uint8)[:, None], table]).tobytes()


def python2_batch(table):
    """A batch as Python 2 wrote it: byte strings for keys and pixels, the old name of numpy's module."""

    def short(text):
        return b"U" + bytes([len(text)]) + text

    dtype = b"cnumpy\ndtype\n" + short(b"u1") + b"K\x00K\x01\x87R(K\x03" + short(b"|")
    dtype += b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    raw = b"T" + table.nbytes.to_bytes(4, "little") + table.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + short(b"b") + b"\x87R"
    array += b"(K\x01K\x05M\x00\x0c\x86" + dtype + b"\x89" + raw + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in FIVE) + b"e"
    return b"\x80\x02}(" + short(b"data") + array + short(b"labels") + labels + b"u."


def archive(path, member, content):
    with tarfile.open(path, "w:gz") as file:
        for name, part in (("readme.html", b"<html>"), (member, content)):
            entry = tarfile.TarInfo(f"cifar-10-batches/{name}")
            entry.size = len(part)
            file.addfile(entry, io.BytesIO(part))


@pytest.mark.parametrize(
    ("place", "content"),
    [
        *(("test_batch", batch(COLOURS, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)),
        ("test_batch", batch(np.asfortranarray(COLOURS))),
        ("cifar-10-batches-py/test_batch", python2_batch(COLOURS)),
        ("cifar10/cifar-10-batches-bin/test_batch.bin", binary(COLOURS)),
        ("cifar-10-python.tar.gz", ("test_batch", batch(COLOURS))),
        ("cifar-10-binary.tar.gz", ("test_batch.bin", binary(COLOURS))),
    ],
)
@pytest.mark.filterwarnings("ignore:numpy.core")  # the old name is in the published file
def test_cifar_batches(tmp_path, place, content):
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, tuple):
        archive(path, *content)
    else:
        path.write_bytes(content)
    rows = load("cifar10", data_dir=tmp_path)
    np.testing.assert_array_equal(rows.images.numpy(), COLOURS.reshape(5, 3, 32, 32).astype("f") / np.float32(255))
    assert rows.labels.tolist() == FIVE


class Evil:
    def __reduce__(self):
        return exec, ("open('owned', 'w').close()",)


@pytest.mark.parametrize(
    "content",
    [{b"data": Evil(), b"labels": FIVE}, Evil(), {b"data": np.array([Evil()], dtype=object), b"labels": FIVE}],
)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_is_refused(tmp_path, monkeypatch, content, protocol):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol))
    with pytest.raises(DataError, match=r"exec.*refused"):
        load("cifar10", data_dir=tmp_path)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nN}U\x0b__defaults__Nsb\x86b.",
        b"\x80\x02cnumpy\nndarray\n}U\x01xK\x01sb.",
    ],
)
@pytest.mark.filterwarnings("ignore:numpy.core")
def test_a_pickle_alters_nothing(tmp_path, content):
    # BUILD would set attributes of the object that a name resolves to.
    (tmp_path / "test_batch").write_bytes(content)
    with pytest.raises(DataError, match="test_batch"):
        load("cifar10", data_dir=tmp_path)
    assert not hasattr(np.ndarray, "x")


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("test_batch", batch(COLOURS)[:-4000], "test_batch"),
        ("test_batch", b"<html>moved</html>", "web page"),
        ("test_batch", b"", "empty"),
        ("test_batch", pickle.dumps([1, 2]), "list"),
        ("test_batch", pickle.dumps({"x": 1}), "data"),
        ("test_batch", batch(COLOURS[:, :100]), r"\(5, 100\)"),
        ("test_batch", batch(COLOURS.astype(np.int16)), "int16"),
        ("test_batch", batch(COLOURS[:4]), "4 images but 5 labels"),
        ("test_batch.bin", binary(COLOURS)[:-1], "3073"),
        ("test_batch.bin", b"\x0b" + binary(COLOURS)[1:], "label 11"),
        ("cifar-10-python.tar.gz", b"<!doctype html>", "web page"),
        ("cifar-10-python.tar.gz", gzip.compress(b"no archive", mtime=0), "unpacked"),
    ],
)
def test_damaged_cifar_files(tmp_path, name, content, word):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=word) as caught:
        load("cifar10", data_dir=tmp_path)
    assert name in str(caught.value)


# Folders of pictures


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
    rows = load(photos)
    assert (rows.classes, rows.labels.tolist()) == (("cat", "dog"), [0, 0, 1, 1])
    assert rows.images.shape == (4, 3, 2, 3)
    assert rows.images[:, 0, 0, 0].tolist() == pytest.approx([0, 0, 1, 127 / 255])
    assert (rows.name, rows.scaled) == ("photos", True)
    assert load(f"{photos}/", rows="3").labels.tolist() == [1]
    assert load(photos, bounds=(0, 255)).images[:, 0, 0, 0].tolist() == [0, 0, 255, 127]


def test_grey_pictures_have_one_channel_unless_one_is_coloured(tmp_path):
    save(tmp_path / "a" / "1.png", np.full((2, 3), 51))
    assert load(tmp_path).images.flatten().tolist() == pytest.approx([0.2] * 6)
    save(tmp_path / "b" / "1.png", np.zeros((2, 3, 3)))
    assert load(tmp_path).images.shape == (2, 3, 2, 3)


def test_16_bit_grey_keeps_its_levels(tmp_path):
    levels = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    (tmp_path / "a").mkdir()
    Image.fromarray(levels).save(tmp_path / "a" / "1.png")
    rows = load(tmp_path)
    assert rows.images.shape == (1, 1, 8, 8)
    assert len(rows.images.unique()) == 64
    np.testing.assert_array_equal(rows.images[0, 0].numpy(), (levels / 65535).astype(np.float32))
    save(tmp_path / "b" / "1.png", np.full((8, 8, 3), 51))
    mixed = load(tmp_path).images
    assert mixed.shape == (2, 3, 8, 8)
    assert torch.equal(mixed[0, 2], rows.images[0, 0])
    assert mixed[1].unique().tolist() == pytest.approx([0.2])


def test_pictures_of_real_numbers_are_taken_from_0_to_1_alone(tmp_path):
    values = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
    (tmp_path / "a").mkdir()
    Image.fromarray(values).save(tmp_path / "a" / "1.tif")
    np.testing.assert_array_equal(load(tmp_path).images[0, 0].numpy(), values)
    Image.fromarray(9 * values).save(tmp_path / "a" / "1.tif")
    with pytest.raises(DataError, match="from 0 to 9, not 0 to 1"):
        load(tmp_path)


def test_what_cannot_be_read_is_named(photos, tmp_path, monkeypatch):
    with pytest.raises(DataError, match="none"):
        load(f"{tmp_path}/none/")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty"):
        load(tmp_path / "empty")
    save(photos / "dog" / "3.png", np.zeros((5, 3, 3)))
    with pytest.raises(DataError, match=r"3\.png: has 3×5 pixels but 1\.png 3×2"):
        load(photos)
    whole = (photos / "cat" / "1.png").read_bytes()
    for content in (b"no picture at all", whole[: len(whole) // 2]):
        (photos / "dog" / "3.png").write_bytes(content)
        with pytest.raises(DataError, match=r"3\.png"):
            load(photos)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(data.MissingExtra, match=r"'PIL'.*sigmazero\[data\]"):
        load(photos)


# ImageNet


def picture(path, colour, size=(40, 30)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path, "JPEG", quality=95)


@pytest.fixture
def foldered(tmp_path):
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
def test_class_folders(foldered, name):
    rows = load(name, data_dir=foldered)
    assert rows.images.shape == (4, 3, 224, 224)
    assert rows.labels.tolist() == [4, 7, 7, 900]
    colours = (rows.images.mean(dim=(2, 3)) * 255).round().int().tolist()
    np.testing.assert_allclose(colours, [[200, 0, 0], [0, 0, 200], [0, 200, 0], [90, 90, 90]], atol=2)


def test_only_chosen_rows_are_opened(foldered):
    (foldered / "imagenet" / "val" / WNIDS[4] / "b.JPEG").write_bytes(b"damaged")
    assert load("imagenet", data_dir=foldered, rows="1,3").labels.tolist() == [7, 900]
    with pytest.raises(DataError, match=r"b\.JPEG"):
        load("imagenet", data_dir=foldered, rows="0")


def test_incomplete_classes_need_the_list(foldered):
    names = foldered / "imagenet" / "val" / "synsets.txt"
    names.write_text("\n".join(["n99999999", *WNIDS[:4], *WNIDS[5:]]))
    with pytest.raises(DataError, match=WNIDS[4]):
        load("imagenet", data_dir=foldered)
    names.unlink()
    with pytest.raises(DataError, match="has 3 classes instead of 1000"):
        load("imagenet", data_dir=foldered)


def test_crop_and_resize_differ_as_they_should(tmp_path):
    """A wide picture with a bright left edge: the crop loses the edge, the resize keeps it."""
    wide = np.zeros((256, 512, 3), dtype=np.uint8)
    wide[:, :100] = 255
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 65\n")
    Image.fromarray(wide).save(tmp_path / "ILSVRC2012_val_00000001.JPEG", quality=95)
    crop, resized = (load(name, data_dir=tmp_path) for name in ("imagenet", "imagenet-resized"))
    assert crop.labels.tolist() == resized.labels.tolist() == [65]
    assert crop.images.max() < 0.1
    assert resized.images[..., :40].min() > 0.9


def test_crop_is_centred_pixel_by_pixel(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (300, 256, 3), dtype=np.uint8)
    path = tmp_path / "ILSVRC2012_val_00000001.JPEG"
    Image.fromarray(noise).save(path, "PNG")  # lossless, whatever the name says
    (tmp_path / "val.txt").write_text(f"{path.name} 0")
    images = load("imagenet", data_dir=tmp_path).images[0]
    np.testing.assert_array_equal((images * 255).round().byte().numpy(), noise[38:262, 16:240].transpose(2, 0, 1))


@pytest.mark.parametrize(
    ("truth", "word"),
    [
        (None, "val.txt"),
        ("ILSVRC2012_val_00000001.JPEG 3", "ILSVRC2012_val_00000002"),
        ("ILSVRC2012_val_00000001.JPEG 1000", "line 1"),
        ("ILSVRC2012_val_00000001.JPEG", "line 1"),
    ],
)
def test_labels_of_one_folder(tmp_path, truth, word):
    for row in (1, 2):
        picture(tmp_path / f"ILSVRC2012_val_{row:08d}.JPEG", (60 * row, 0, 0))
    if truth is not None:
        (tmp_path / "val.txt").write_text(truth)
    with pytest.raises(DataError, match=word):
        load("imagenet", data_dir=tmp_path)


def test_photos_of_foolbox(tmp_path, monkeypatch):
    for number, label in ((10, 541), (2, 438)):
        picture(tmp_path / "foolbox" / "data" / f"imagenet_{number:02d}_{label}.jpg", (0, 20 * number, 0), (512, 512))
    (tmp_path / "foolbox" / "__init__.py").write_text("raise RuntimeError('only its files are wanted')")
    picture(tmp_path / "foolbox" / "data" / "cifar10_00_3.png", (9, 9, 9))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "foolbox", raising=False)
    rows = load("imagenet-20")
    assert (rows.labels.tolist(), rows.images.shape) == ([438, 541], (2, 3, 224, 224))
    assert (rows.images[:, 1].mean((1, 2)) * 255).round().tolist() == [40, 200]
