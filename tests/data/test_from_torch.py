from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from sigmazero.data import DataError, from_torch


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
    assert from_torch(dataset, limit=3).labels.tolist() == [0, 1, 2]
    assert len(from_torch(dataset, limit=3, seed=5)) == 3


def test_result_is_detached() -> None:
    images = torch.rand(4, 3, requires_grad=True)
    assert not from_torch(TensorDataset(images, torch.arange(4))).images.requires_grad


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


def test_no_length_and_no_rows() -> None:
    class Stream(IterableDataset[object]):
        def __iter__(self) -> Iterator[object]:
            return iter(())

    with pytest.raises(DataError, match="Stream has no length"):
        from_torch(Stream())
    with pytest.raises(DataError, match="no rows to take"):
        from_torch(Listed())
