"""Rows out of what people have in Python: tensors, arrays, tables, data sets, loaders, names of files."""

from __future__ import annotations

import os
from collections.abc import Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler

from sigmazero.core.inputs import check_inputs, check_labels
from sigmazero.core.messages import warn_caller
from sigmazero.data.images import channels_first
from sigmazero.data.load import load
from sigmazero.data.rows import Array, DataError, Rows, RowSpec, parse_rows, scales, take
from sigmazero.data.table import Table

WAYS = "give (inputs, labels), a Table, a data set of pairs, a DataLoader, or the name of a data set, file or folder"


def rows_of(
    data: Any, *, limit: int | None = None, name: str | None = None, bounds: tuple[Any, Any] | None = None
) -> Rows:
    """Return the rows of anything that holds inputs and labels.

    data    Rows; a Table; a pair (inputs, labels) of tensors, arrays or lists; a data set with a length whose items are
            (sample, label), pictures of Pillow included; a DataLoader; the name of a data set, a file or a folder
    limit   at most that many: a fixed sample that has each class in its share
    bounds  of the values that the model takes; 8-bit values are divided by 255, with a warning, unless these are
            others than (0, 1)

    A loader that shuffles gives its data set in the data set's own order, so that rows have numbers that stay. One that
    can only be read from the front, such as a stream, gives its first rows. Names of classes are those of the data set.

    >>> rows_of((np.zeros((2, 3)), [0, 1])).labels
    tensor([0, 1])
    """
    if isinstance(data, str | os.PathLike):
        return load(os.fspath(data), limit=limit, bounds=bounds)
    loaded = data.dataset if isinstance(data, DataLoader) else None
    if loaded is not None:
        data, name = _loaded(data, limit), name or type(loaded).__name__
    if isinstance(data, Rows | Table):
        rows = data if isinstance(data, Rows) else data.rows()
    elif isinstance(data, tuple):
        if len(data) != 2:
            raise DataError(f"the data is a tuple of {len(data)}; {WAYS}")
        rows = _pair(*data, name or "given", bounds, loaded)
    elif isinstance(data, IterableDataset) or not isinstance(data, Sized) or not hasattr(data, "__getitem__"):
        raise DataError(f"the data is a {type(data).__name__}; {WAYS}")
    elif isinstance(data, Tensor | np.ndarray) or hasattr(data, "columns"):
        raise DataError(f"the data is a {type(data).__name__} without labels; {WAYS}")
    else:
        rows = from_torch(data, limit=limit, name=name, bounds=bounds)
    if rows.scaled and not isinstance(data, Rows):
        warn_caller("the inputs are 8-bit values: they were divided by 255, so that they lie in [0, 1]")
    return rows if limit is None else rows.limit(limit)


def from_torch(
    dataset: Dataset[Any] | Sized,
    rows: RowSpec | None = None,
    *,
    limit: int | None = None,
    seed: int | None = None,
    name: str | None = None,
    bounds: tuple[Any, Any] | None = None,
) -> Rows:
    """Return the chosen rows of a data set whose items are (sample, label).

    Samples are tensors, arrays or pictures of Pillow; 8-bit ones are divided by 255, float ones are taken as they are.
    Where the data set has `classes`, as an ImageFolder has, these are the names of the classes. A limit without a seed
    is a sample with each class in its share where the data set has `targets`; otherwise it is drawn with seed 0.

    >>> from torch.utils.data import TensorDataset
    >>> from_torch(TensorDataset(torch.rand(5, 3), torch.arange(5)), "1:4").labels
    tensor([1, 2, 3])
    """
    if not isinstance(dataset, Sized):
        raise DataError(f"{type(dataset).__name__} has no length; rows are named by number, so one is needed")
    chosen = take(parse_rows(rows, len(dataset)), limit, seed, _targets(dataset))
    if not chosen:
        raise DataError(f"{type(dataset).__name__} has no rows to take; name at least one")
    pairs = [_item(dataset, row) for row in chosen]
    labels = torch.stack([label for _, label in pairs])
    try:
        inputs = torch.stack([_float(sample, bounds) for sample, _ in pairs])
    except RuntimeError as error:
        raise DataError(f"the samples differ in shape ({error}); resize them in the data set's transform") from None
    scaled = scales(bounds) and any(sample.dtype == torch.uint8 for sample, _ in pairs)
    ids = torch.tensor(chosen, dtype=torch.int64, device="cpu")
    title, classes = name or type(dataset).__name__, _class_names(dataset, labels)
    return Rows(inputs, labels, ids, title, classes=classes, scaled=scaled)


def _float(values: Tensor, bounds: tuple[Any, Any] | None) -> Tensor:
    if values.dtype != torch.uint8:
        return values
    return values.float() / 255 if scales(bounds) else values.float()


def _targets(dataset: Any) -> Array | None:
    """Return the labels of a whole data set where it tells them without its samples."""
    if hasattr(dataset, "indices") and hasattr(dataset, "dataset"):  # a Subset
        inner = _targets(dataset.dataset)
        return None if inner is None else inner[list(dataset.indices)]
    tensors: Any = getattr(dataset, "tensors", ())
    found = tensors[1] if len(tensors) == 2 else getattr(dataset, "targets", None)
    if found is None:
        return None
    labels = np.asarray(found.cpu() if isinstance(found, Tensor) else found)
    return labels if labels.ndim == 1 and len(labels) == len(dataset) and labels.dtype.kind in "iu" else None


def _class_names(dataset: Any, labels: Tensor) -> tuple[str, ...] | None:
    """Return the classes of a data set, or of the one that it is a part of; None where they do not fit the labels."""
    while not hasattr(dataset, "classes") and hasattr(dataset, "dataset"):
        dataset = dataset.dataset
    known = getattr(dataset, "classes", None)
    names = tuple(map(str, known)) if isinstance(known, list | tuple) else ()
    fits = len(set(names)) == len(names) > (int(labels.max()) if len(labels) else 0)
    return names if fits else None


def _item(dataset: Any, row: int) -> tuple[Tensor, Tensor]:
    item = dataset[row]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise DataError(f"row {row} is a {type(item).__name__}, not a pair (sample, label)")
    sample, label = item
    if type(sample).__module__.partition(".")[0] == "PIL":
        sample = channels_first(sample)
    number = _tensor(label, f"label of row {row}")
    if number.numel() != 1 or number.is_floating_point() or number.dtype == torch.bool:
        raise DataError(f"the label of row {row} is {label!r}; it must be one whole number, the class")
    return _tensor(sample, f"sample of row {row}"), number.reshape(()).long()


def _pair(x: Any, y: Any, name: str, bounds: tuple[Any, Any] | None, dataset: Any) -> Rows:
    inputs, labels = _tensor(x, "inputs"), _tensor(y, "labels")
    scaled = inputs.dtype == torch.uint8 and scales(bounds)
    inputs = _float(inputs, bounds)
    check_inputs(inputs)
    check_labels(inputs, labels)
    ids, classes = torch.arange(len(inputs), device="cpu"), _class_names(dataset, labels)
    return Rows(inputs, labels.long(), ids, name, classes=classes, scaled=scaled)


def _tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    try:
        array = np.asarray(values)  # a frame of pandas too
        if array.dtype == object or array.dtype.kind in "SUMm":
            raise TypeError(f"{array.dtype}")
        return torch.from_numpy(np.ascontiguousarray(array))
    except (TypeError, ValueError) as error:
        raise DataError(f"{what}: a {type(values).__name__} that holds no numbers ({error}); {WAYS}") from None


def _loaded(loader: DataLoader[Any], limit: int | None) -> Any:
    """Return the data set of a loader, where its order does not matter, else the first rows as (inputs, labels)."""
    dataset, shuffles = loader.dataset, isinstance(loader.sampler, RandomSampler)
    usual = type(loader.batch_sampler) is BatchSampler and (shuffles or isinstance(loader.sampler, SequentialSampler))
    by_number = usual and isinstance(dataset, Sized) and not isinstance(dataset, IterableDataset)
    if by_number and (shuffles or limit is not None):
        return dataset
    parts: list[list[Tensor]] = []
    for number, batch in enumerate(loader):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise DataError(f"batch {number} of the loader is a {type(batch).__name__}, not a pair (inputs, labels)")
        parts.append([_tensor(part, f"batch {number}") for part in batch])
        if limit is not None and sum(len(labels) for _, labels in parts) >= limit:
            break
    if not parts:
        raise DataError("the loader has no batches; give it a data set with rows")
    x, y = (torch.cat(some)[:limit] for some in zip(*parts, strict=True))
    return x, y
