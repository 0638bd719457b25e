"""Readers of pictures: idx files, CIFAR-10 batches, folders of pictures, ImageNet, photos in packages."""

import gzip
import io
import pickle
import struct
import sys
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image

from sigmazero import data
from sigmazero.data import DataError, load

IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
PIXELS = np.random.default_rng(0).integers(0, 256, (12, 28, 28), dtype=np.uint8)
CLASSES = np.arange(12, dtype=np.uint8) % 10
COLOURS = np.random.default_rng(1).integers(0, 256, (5, 3072), dtype=np.uint8)
FIVE = [3, 8, 8, 0, 6]
WNIDS = [f"n{number:08d}" for number in range(1, 1001)]


def idx(path, array, damage=lambda content: content):
    """Write an idx file, packed when the name ends in .gz."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    path.write_bytes(damage(gzip.compress(content) if path.suffix == ".gz" else content))


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda content: content[:-5], "9403"),
        (lambda content: b"", "empty"),
        (lambda content: b"\x00\x00\x0d\x03" + content[4:], "00000d03"),
        (lambda content: b"  <!DOCTYPE html><html>not found", "web page"),
        (lambda content: gzip.compress(content)[:-20], "cannot be read"),
    ],
)
def test_damaged_idx_files(tmp_path, damage, word):
    idx(tmp_path / IMAGES, PIXELS, damage)
    idx(tmp_path / LABELS, CLASSES)
    with pytest.raises(DataError, match=rf"{IMAGES}.*{word}"):
        load("mnist", data_dir=tmp_path)


@pytest.mark.parametrize(
    ("name", "images", "labels", "word"),
    [
        ("mnist", PIXELS, None, LABELS),
        ("mnist", PIXELS, CLASSES[:-1], "12 images but 11 labels"),
        ("mnist", PIXELS, CLASSES + 40, "49"),
        ("mnist", PIXELS[:, :8, :8], CLASSES, r"\(1, 8, 8\)"),
        ("fashion-mnist", PIXELS, np.array([7, 2, 1, 0, 4, 1, 4, 9, 5, 9, 0, 6], np.uint8), "labels of mnist, not of"),
    ],
)
def test_idx_files_that_do_not_belong_together(tmp_path, name, images, labels, word):
    idx(tmp_path / IMAGES, images)
    if labels is not None:
        idx(tmp_path / LABELS, labels)
    with pytest.raises(DataError, match=word):
        load(name, data_dir=tmp_path)


# CIFAR-10


def batch(table, protocol=2):
    return pickle.dumps({b"data": table, b"labels": FIVE, b"filenames": [b"a.png"] * 5}, protocol)


BINARY = np.hstack([np.array(FIVE, dtype=np.uint8)[:, None], COLOURS]).tobytes()


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


def archive(member, content):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name, part in (("readme.html", b"<html>"), (member, content)):
            entry = tarfile.TarInfo(f"cifar-10-batches/{name}")
            entry.size = len(part)
            file.addfile(entry, io.BytesIO(part))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("place", "content"),
    [
        *(("test_batch", batch(COLOURS, protocol)) for protocol in (0, 2, 4)),
        ("test_batch", batch(np.asfortranarray(COLOURS))),
        ("cifar-10-batches-py/test_batch", python2_batch(COLOURS)),
        ("cifar10/cifar-10-batches-bin/test_batch.bin", BINARY),
        ("cifar-10-python.tar.gz", archive("test_batch", batch(COLOURS))),
        ("cifar-10-binary.tar.gz", archive("test_batch.bin", BINARY)),
    ],
)
@pytest.mark.filterwarnings("ignore:numpy.core")  # the old name is in the published file
def test_cifar_batches(tmp_path, place, content):
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes(content)
    rows = load("cifar10", data_dir=tmp_path)
    np.testing.assert_array_equal(rows.images.numpy(), COLOURS.reshape(5, 3, 32, 32).astype("f") / np.float32(255))
    assert rows.labels.tolist() == FIVE


class Evil:
    def __reduce__(self):
        return exec, ("open('owned', 'w').close()",)


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("test_batch", pickle.dumps(Evil(), 0), "exec.*refused"),
        ("test_batch", pickle.dumps({b"data": np.array([Evil()], dtype=object), b"labels": FIVE}, 4), "exec.*refused"),
        # BUILD would set attributes of the object that a name resolves to.
        ("test_batch", b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nN}U\x0b__defaults__Nsb\x86b.", "test_batch"),
        ("test_batch", b"\x80\x02cnumpy\nndarray\n}U\x01xK\x01sb.", "test_batch"),
        ("test_batch", batch(COLOURS)[:-4000], "cannot be read"),
        ("test_batch", b"<html>moved</html>", "web page"),
        ("test_batch", pickle.dumps({"x": 1}), "labels"),
        ("test_batch", batch(COLOURS[:, :100]), "500"),
        ("test_batch", batch(COLOURS[:4]), "4 images but 5 labels"),
        ("test_batch.bin", BINARY[:-1], "3073"),
        ("test_batch.bin", b"\x0b" + BINARY[1:], "cifar10.* 11"),
        ("cifar-10-python.tar.gz", gzip.compress(b"no archive", mtime=0), "cannot be read"),
    ],
)
@pytest.mark.filterwarnings("ignore:numpy.core")
def test_hostile_and_damaged_cifar_files(tmp_path, monkeypatch, name, content, word):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=word):
        load("cifar10", data_dir=tmp_path)
    assert not (tmp_path / "owned").exists()
    assert not hasattr(np.ndarray, "x")


# Folders of pictures


def save(path, values, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.asarray(values)).save(path, **options)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for kind, shade in (("dog", 255), ("cat", 0)):
        for number in (2, 1):
            save(folder / kind / f"{number}.png", np.full((2, 3, 3), shade // number, np.uint8))
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


@pytest.mark.parametrize(
    ("ending", "levels"),
    [
        ("png", np.linspace(0, 255, 64).astype(np.uint8)),
        ("png", np.linspace(0, 65535, 64).astype(np.uint16)),
        ("tif", np.linspace(0, 1, 64, dtype=np.float32)),
    ],
    ids=["8 bits", "16 bits", "real numbers"],
)
def test_grey_keeps_its_levels_in_one_channel_unless_a_picture_is_coloured(tmp_path, ending, levels):
    save(tmp_path / "a" / f"1.{ending}", levels.reshape(8, 8))
    grey = load(tmp_path).images
    top = 1 if levels.dtype.kind == "f" else np.iinfo(levels.dtype).max
    np.testing.assert_allclose(grey[0, 0].flatten().numpy(), levels / top, rtol=1e-7)
    assert len(grey.unique()) == 64
    save(tmp_path / "b" / "1.png", np.full((8, 8, 3), 51, np.uint8))
    mixed = load(tmp_path).images
    assert mixed.shape == (2, 3, 8, 8)
    assert torch.equal(mixed[0, 2], grey[0, 0])
    assert mixed[1].unique().tolist() == pytest.approx([0.2])


def test_a_picture_is_turned_as_its_camera_says(tmp_path):
    wide = np.zeros((16, 32, 3), np.uint8)
    wide[:, :16] = 255  # bright on the left
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: the left becomes the top
    save(tmp_path / "a" / "1.jpg", wide, quality=95, exif=exif)
    save(tmp_path / "a" / "2.png", np.zeros((32, 16, 3), np.uint8))
    images = load(tmp_path).images
    assert images.shape == (2, 3, 32, 16)
    assert images[0, :, :12].min() > 0.9
    assert images[0, :, 20:].max() < 0.1


def test_what_cannot_be_read_is_named(photos, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    for folder in ("none/", "empty"):
        with pytest.raises(DataError, match=folder.strip("/")):
            load(f"{tmp_path}/{folder}")
    save(photos / "dog" / "3.png", np.zeros((5, 3, 3), np.uint8))
    with pytest.raises(DataError, match=r"3\.png: has 3×5 pixels but 1\.png 3×2"):
        load(photos)
    whole = (photos / "cat" / "1.png").read_bytes()
    for content in (b"no picture at all", whole[: len(whole) // 2]):
        (photos / "dog" / "3.png").write_bytes(content)
        with pytest.raises(DataError, match=r"3\.png"):
            load(photos)
    save(tmp_path / "real" / "a" / "1.tif", np.full((2, 2), 9, np.float32))
    with pytest.raises(DataError, match="from 9 to 9, not 0 to 1"):
        load(tmp_path / "real")
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(data.MissingExtra, match=r"'PIL'.*sigmazero\[data\]"):
        load(photos)


# ImageNet


def picture(path, colour, size=(40, 30)):
    save(path, np.full((size[1], size[0], 3), colour, np.uint8), format="JPEG", quality=95)


@pytest.fixture
def foldered(tmp_path):
    """Three of the classes, two pictures in the middle one, and the list of all classes."""
    val = tmp_path / "imagenet" / "val"
    for wnid, name, colour in ((4, "b", (200, 0, 0)), (7, "z", (0, 200, 0)), (7, "a", (0, 0, 200)), (900, "c", 90)):
        picture(val / WNIDS[wnid] / f"{name}.JPEG", colour)
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
    (foldered / "imagenet" / "val" / WNIDS[4] / "b.JPEG").write_bytes(b"damaged")
    assert load(name, data_dir=foldered, rows="1,3").labels.tolist() == [7, 900]  # others are not opened
    with pytest.raises(DataError, match=r"b\.JPEG"):
        load(name, data_dir=foldered, rows="0")


@pytest.mark.parametrize("names", [None, ["n99999999", *WNIDS[:4], *WNIDS[5:]]])
def test_incomplete_classes_need_the_list(foldered, names):
    (foldered / "imagenet" / "val" / "synsets.txt").write_text("\n".join(names or []))
    with pytest.raises(DataError, match=r"has 3 classes.* 1000.*synsets\.txt"):
        load("imagenet", data_dir=foldered)


def test_crop_and_resize_differ_as_they_should(tmp_path):
    """A wide picture with a bright left edge: the crop loses the edge, the resize keeps it."""
    wide = np.zeros((256, 512, 3), dtype=np.uint8)
    wide[:, :100] = 255
    save(tmp_path / "ILSVRC2012_val_00000001.JPEG", wide, quality=95)
    noise = np.random.default_rng(0).integers(0, 256, (300, 256, 3), dtype=np.uint8)
    save(tmp_path / "ILSVRC2012_val_00000002.JPEG", noise, format="PNG")  # lossless, whatever the name says
    (tmp_path / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 65\n\nILSVRC2012_val_00000002.JPEG 0\n")
    crop, resized = (load(name, data_dir=tmp_path) for name in ("imagenet", "imagenet-resized"))
    assert crop.labels.tolist() == resized.labels.tolist() == [65, 0]
    assert crop.images[0].max() < 0.1
    assert resized.images[0, ..., :40].min() > 0.9
    centre = noise[38:262, 16:240].transpose(2, 0, 1)
    np.testing.assert_array_equal((crop.images[1] * 255).round().byte().numpy(), centre)


@pytest.mark.parametrize("line", [None, "ILSVRC2012_val_00000002.JPEG 3", "ILSVRC2012_val_00000001.JPEG 1000", "x"])
def test_labels_of_one_folder(tmp_path, line):
    picture(tmp_path / "ILSVRC2012_val_00000001.JPEG", (60, 0, 0))
    if line is not None:
        (tmp_path / "val.txt").write_text(line)
    with pytest.raises(DataError, match=r"val\.txt has no label .*ILSVRC2012_val_00000001"):
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
