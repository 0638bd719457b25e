"""Rows out of any torch data set."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from sigmazero.data.errors import DataError
from sigmazero.data.pictures import channels_first
from sigmazero.data.rows import Rows, RowSpec, parse_rows, take


def from_torch(
    dataset: Dataset[Any] | Sized,
    rows: RowSpec | None = None,
    *,
    limit: int | None = None,
    seed: int | None = None,
    name: str | None = None,
) -> Rows:
    """The chosen rows of a data set whose items are (sample, label).

    Samples are tensors, arrays or pictures of Pillow; 8-bit ones are divided by 255, float ones are taken as they are.
    Where the data set has `classes`, as an ImageFolder has, these are the names of the classes.

    >>> from torch.utils.data import TensorDataset
    >>> from_torch(TensorDataset(torch.rand(5, 3), torch.arange(5)), "1:4").labels
    tensor([1, 2, 3])
    """
    if not isinstance(dataset, Sized):
        raise DataError(f"{type(dataset).__name__} has no length; rows are named by number, so one is needed")
    chosen = take(parse_rows(rows, len(dataset)), limit, seed)
    if not chosen:
        raise DataError(f"{type(dataset).__name__} has no rows to take; name at least one")
    pairs = [_item(dataset, row) for row in chosen]
    first = pairs[0][0]
    for row, (sample, _) in zip(chosen, pairs, strict=True):
        if sample.shape != first.shape:
            raise DataError(
                f"row {row} has shape {tuple(sample.shape)} but row {chosen[0]} {tuple(first.shape)}; "
                "resize them to one shape in the data set's transform"
            )
    labels = torch.tensor([label for _, label in pairs], dtype=torch.int64, device="cpu")
    bytes_ = [sample.dtype == torch.uint8 for sample, _ in pairs]
    return Rows(
        torch.stack([sample.float() / 255 if sample.dtype == torch.uint8 else sample for sample, _ in pairs]),
        labels,
        torch.tensor(chosen, dtype=torch.int64, device="cpu"),
        name or type(dataset).__name__,
        classes=class_names(dataset, labels),
        scaled=any(bytes_),
    )


def class_names(dataset: Any, labels: Tensor) -> tuple[str, ...] | None:
    """What a data set calls its classes, or the one that it is a part of; None where that does not fit the labels."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    held = getattr(dataset, "classes", None)
    names = tuple(map(str, held)) if isinstance(held, list | tuple) else ()
    fits = len(set(names)) == len(names) > (int(labels.max()) if len(labels) else 0)
    return names if fits else None


def _item(dataset: Any, row: int) -> tuple[Tensor, int]:
    item = dataset[row]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"row {row} is a {type(item).__name__}, not a pair (sample, label)")
    sample, label = item
    if type(sample).__module__.partition(".")[0] == "PIL":
        sample = channels_first(sample)
    if isinstance(sample, np.ndarray):
        sample = torch.from_numpy(sample)
    if not isinstance(sample, Tensor):
        raise DataError(
            f"the sample of row {row} is a {type(sample).__name__}; give the data set a transform that makes tensors"
        )
    if not (sample.is_floating_point() or sample.dtype == torch.uint8):
        raise DataError(f"the sample of row {row} is {sample.dtype}; make it uint8 in 0..255 or float")
    number = label
    if isinstance(label, np.generic) or (isinstance(label, Tensor | np.ndarray) and label.shape in ((), (1,))):
        number = label.item()
    if isinstance(number, bool) or not isinstance(number, int):
        raise DataError(f"the label of row {row} is {label!r}; it must be one whole number, the class")
    return sample.detach(), number
