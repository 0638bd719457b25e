"""Rows out of what people have in Python."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from sigmazero import data
from sigmazero.data import DataError, from_torch

X = torch.rand(7, 3, 2, 2, generator=torch.Generator().manual_seed(0))
Y = torch.arange(7) % 3
LEVELS = (X * 255).byte()


class Pictures(list[Any]):
    classes = ("ant", "bee", "cat")


class Stream(IterableDataset[Any]):
    def __iter__(self):
        return iter(())


class Listed(Dataset[object]):
    def __init__(self, *items):
        self.items, self.asked = items, []

    def __len__(self):
        return len(self.items)

    def __getitem__(self, row):
        self.asked.append(row)
        return self.items[row]


def test_a_loader_gives_its_rows_in_an_order_that_stays():
    dataset = TensorDataset(X, Y)
    for loader in (DataLoader(dataset, batch_size=3), DataLoader(dataset, batch_size=2, shuffle=True)):
        assert data.rows_of(loader).content_hash == data.rows_of((X, Y)).content_hash
    assert sorted(data.rows_of((X.numpy(), Y.tolist()), limit=3).labels.tolist()) == [0, 1, 2]
    sample = data.rows_of((X, Y.int()), limit=4).ids.tolist()
    whole = Subset(dataset, range(7))
    for given in (dataset, DataLoader(dataset, batch_size=3), DataLoader(dataset, shuffle=True), whole):
        assert data.rows_of(given, limit=4).ids.tolist() == sample
    assert data.rows_of(DataLoader(Subset(dataset, [5, 1]), batch_size=2)).labels.tolist() == [2, 1]


def test_pictures_with_names_of_classes():
    colours = [Image.new("RGB", (4, 2), (255, 0, 51)), Image.new("RGBA", (4, 2)), Image.new("P", (4, 2))]
    with pytest.warns(UserWarning, match="divided by 255"):
        rows = data.rows_of(Pictures((picture, label) for label, picture in enumerate(colours)))
    assert rows.images.shape == (3, 3, 2, 4)
    assert rows.images[0, :, 0, 0].tolist() == pytest.approx([1, 0, 0.2])
    assert rows.classes == ("ant", "bee", "cat")
    whole: Any = Pictures((torch.rand(3), label) for label in (0, 2))
    assert data.rows_of(Subset(whole, [1])).classes == rows.classes  # also those of the data set that it is a part of
    assert data.rows_of(DataLoader(whole)).classes == rows.classes
    assert data.rows_of(Pictures([(torch.rand(3), 3)])).classes is None  # a name is missing


@pytest.mark.parametrize("given", [(LEVELS, Y), TensorDataset(LEVELS, Y), DataLoader(TensorDataset(LEVELS, Y))])
def test_8_bit_values_are_scaled_unless_the_bounds_say_otherwise(given):
    with pytest.warns(UserWarning, match="8-bit values: they were divided by 255"):
        rows = data.rows_of(given)
    assert rows.scaled
    assert torch.equal(rows.images, LEVELS.float() / 255)
    rows = data.rows_of(given, bounds=(0, 255))  # the units that the model is called with
    assert torch.equal(rows.images, LEVELS.float())
    assert not rows.scaled


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((X, Y, Y), "a tuple of 3; give"),
        (X, "a Tensor without labels"),
        (Stream(), "a Stream; give"),
        (3, "a int; give"),
        ((np.array(["a", "b"]), Y), "inputs: a ndarray that holds no numbers"),
        (DataLoader(Stream()), "the loader has no batches"),
        (DataLoader(X), "batch 0 of the loader is a Tensor, not a pair"),
        ((X.long(), Y), "inputs have dtype torch.int64"),
        ((X, Y.float()), "labels have dtype .*y.long"),
        ((X, torch.eye(4)[Y]), r"labels have dtype .*y.argmax\(1\)"),
        ((X, Y[:3]), "labels have shape"),
        (Listed((X[0], 0), X[0]), "row 1 is a Tensor, not a pair"),
        (Listed(("picture", 1)), "sample of row 0: a str that holds no numbers"),
        (Listed((X[0].int(), 1)), "torch.int32"),
        (Listed((X[0], 0.5)), "the label of row 0 is 0.5"),
        (Listed((X[0], torch.tensor([1, 0]))), "one whole number"),
        (Listed((X[0], 0), (X[0, 0], 1)), "differ in shape"),
    ],
)
def test_what_holds_no_rows_is_named(given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        data.rows_of(given)


def test_chosen_rows_of_a_data_set():
    grey = np.full((1, 2, 2), 51, dtype=np.uint8)
    mixed = Listed((grey, 1), (torch.full((1, 2, 2), 0.5), np.int64(2)), (grey / 255.0, torch.tensor([3])))
    rows = from_torch(mixed, "0,1")
    assert (rows.labels.tolist(), rows.name) == ([1, 2], "Listed")
    assert rows.images.flatten(1).mean(dim=1).tolist() == pytest.approx([0.2, 0.5])
    dataset = Listed(*((torch.rand(3), i) for i in range(10)))
    assert from_torch(dataset, rows=[7, 2], name="mine").ids.tolist() == [7, 2]
    assert dataset.asked == [7, 2]
    assert from_torch(dataset, limit=3).ids.tolist() == data.choose(10, 3, 0)  # no labels without the samples
    assert from_torch(dataset, limit=3, seed=5).ids.tolist() == data.choose(10, 3, 5)
    with pytest.raises(DataError, match="has no length"):
        from_torch(Stream())
