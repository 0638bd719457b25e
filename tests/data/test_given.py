"""Rows out of what people have in Python."""

from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

from sigmazero import data
from sigmazero.data import DataError, from_torch

X = torch.rand(7, 3, 2, 2, generator=torch.Generator().manual_seed(0))
Y = torch.arange(7) % 3


class Pictures(list[Any]):
    classes = ("ant", "bee", "cat")


def test_tensors_arrays_and_lists_are_the_same_rows():
    held = [data.rows_of(each) for each in ((X, Y), (X.numpy(), Y.numpy()), (X, Y.tolist()), (X, Y.int()))]
    assert len({rows.content_hash for rows in held}) == 1
    assert held[0].ids.tolist() == list(range(7))
    assert sorted(data.rows_of((X, Y), limit=3).labels.tolist()) == [0, 1, 2]
    assert data.rows_of(held[0]) is held[0]
    assert len(data.rows_of("digits-8x8", limit=3)) == 3


def test_a_loader_gives_its_rows_in_an_order_that_stays():
    dataset = TensorDataset(X, Y)
    for loader in (DataLoader(dataset, batch_size=3), DataLoader(dataset, batch_size=2, shuffle=True)):
        rows = data.rows_of(loader)
        assert torch.equal(rows.images, X)
        assert torch.equal(rows.labels, Y)
    sample = data.rows_of((X, Y), limit=4)
    for held in (
        dataset,
        DataLoader(dataset, batch_size=3),
        DataLoader(dataset, shuffle=True),
        Subset(dataset, range(7)),
    ):
        assert data.rows_of(held, limit=4).ids.tolist() == sample.ids.tolist()
    part = data.rows_of(DataLoader(Subset(dataset, [5, 1]), batch_size=2))
    assert part.labels.tolist() == [2, 1]


def test_pictures_with_names_of_classes():
    colours = [Image.new("RGB", (4, 2), (255, 0, 51)), Image.new("RGBA", (4, 2)), Image.new("P", (4, 2))]
    dataset = Pictures((picture, label) for label, picture in enumerate(colours))
    with pytest.warns(UserWarning, match="divided by 255"):
        rows = data.rows_of(dataset)
    assert rows.images.shape == (3, 3, 2, 4)
    assert rows.images[0, :, 0, 0].tolist() == pytest.approx([1, 0, 0.2])
    assert rows.classes == ("ant", "bee", "cat")
    whole: Any = Pictures((torch.rand(3), label) for label in (0, 2))
    assert data.rows_of(Subset(whole, [1])).classes == rows.classes  # also those of the data set that it is a part of
    assert data.rows_of(DataLoader(whole)).classes == rows.classes
    assert data.rows_of(Pictures([(torch.rand(3), 3)])).classes is None  # a name is missing


def test_8_bit_values_are_scaled_with_a_word():
    with pytest.warns(UserWarning, match="8-bit values: they were divided by 255"):
        rows = data.rows_of(((X * 255).byte().numpy(), Y))
    assert rows.scaled
    assert float(rows.images.max()) <= 1
    levels = (X * 255).byte()
    for held in ((levels, Y), TensorDataset(levels, Y), DataLoader(TensorDataset(levels, Y))):
        rows = data.rows_of(held, bounds=(0, 255))  # the units that the model is called with
        assert torch.equal(rows.images, levels.float())
        assert not rows.scaled


class Stream(IterableDataset[Any]):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((X, Y, Y), "a tuple of 3; give"),
        (X, "a Tensor without labels"),
        (Stream(), "a Stream; give"),
        (3, "a int; give"),
        ((np.array(["a", "b"]), Y), "inputs are a ndarray that holds no numbers"),
        (DataLoader(Stream()), "the loader has no batches"),
        (DataLoader(cast(Any, X)), "batch 0 of the loader is a Tensor, not a pair"),
        ((X.long(), Y), "inputs have dtype torch.int64"),
        ((X, Y.float()), "labels have dtype .*y.long"),
        ((X, torch.eye(4)[Y]), r"labels have dtype .*y.argmax\(1\)"),
        ((X, Y[:3]), "labels have shape"),
    ],
)
def test_what_holds_no_rows_is_named(given, said):
    with pytest.raises((ValueError, TypeError), match=said):
        data.rows_of(given)


class Listed(Dataset[object]):
    def __init__(self, *items: object) -> None:
        self.items = items
        self.asked: list[int] = []

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, row: int) -> object:
        self.asked.append(row)
        return self.items[row]


def test_tensors_arrays_and_bytes() -> None:
    grey = np.full((1, 2, 2), 51, dtype=np.uint8)
    rows = from_torch(
        Listed((grey, 1), (torch.full((1, 2, 2), 0.5), np.int64(2)), (grey / 255.0 * 0, torch.tensor([3]))), "0,1"
    )
    assert rows.labels.tolist() == [1, 2]
    assert rows.images.flatten(1).mean(dim=1).tolist() == pytest.approx([0.2, 0.5])
    assert rows.name == "Listed"


def test_only_chosen_rows_are_touched() -> None:
    dataset = Listed(*((torch.rand(3), i) for i in range(10)))
    assert from_torch(dataset, rows=[7, 2], name="mine").ids.tolist() == [7, 2]
    assert dataset.asked == [7, 2]
    assert from_torch(dataset, limit=3).ids.tolist() == data.choose(10, 3, 0)  # no labels without the samples
    assert from_torch(dataset, limit=3, seed=5).ids.tolist() == data.choose(10, 3, 5)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (torch.rand(3), "is a Tensor, not a pair"),
        (("picture", 1), "is a str; give the data set a transform"),
        ((torch.zeros(3, dtype=torch.int32), 1), "torch.int32"),
        ((torch.rand(3), 0.5), "the label of row 1 is 0.5"),
        ((torch.rand(3), torch.tensor([1, 0])), "one whole number"),
        ((torch.rand(4), 1), r"row 1 has shape \(4,\) but row 0 \(3,\)"),
    ],
)
def test_bad_items_name_the_row(item: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_torch(Listed((torch.rand(3), 0), item))
