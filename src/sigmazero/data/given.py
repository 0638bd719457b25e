"""Rows out of whatever people have in Python: tensors, arrays, data sets, loaders, folders."""

from __future__ import annotations

import os
from collections.abc import Sized
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from sigmazero.core.inputs import check_inputs, check_labels
from sigmazero.core.warn import warn_caller
from sigmazero.data.errors import DataError
from sigmazero.data.load import load
from sigmazero.data.rows import Rows
from sigmazero.data.source import afford
from sigmazero.data.torch_dataset import class_names, from_torch

WAYS = "give (inputs, labels), a data set of such pairs, a DataLoader, or the name of a data set, file or folder"


def rows_of(data: Any, *, limit: int | None = None, name: str | None = None) -> Rows:
    """The rows of anything that holds inputs and labels; at most `limit` of them, the first.

    data   Rows; a pair (inputs, labels) of tensors, arrays or lists; a data set with a length whose items are (sample,
           label), pictures of Pillow included; a DataLoader; the name of a data set, a file or a folder of pictures

    8-bit values are divided by 255, and a warning says so. A loader that shuffles gives its data set in the data set's
    own order, so that rows have numbers that stay. Names of classes are those of the data set, its `classes`.

    >>> rows_of((np.zeros((2, 3)), [0, 1])).labels
    tensor([0, 1])
    """
    if isinstance(data, Rows):
        return data if limit is None else data.limit(limit)
    if isinstance(data, str | os.PathLike):
        return load(os.fspath(data), limit=limit)
    if isinstance(data, DataLoader):
        return _loaded(data, limit, name)
    if isinstance(data, tuple):
        if len(data) != 2:
            raise DataError(f"the data is a tuple of {len(data)}; {WAYS}")
        return _pair(data[0], data[1], limit, name or "given")
    if isinstance(data, IterableDataset) or not isinstance(data, Sized) or not hasattr(data, "__getitem__"):
        raise DataError(f"the data is a {type(data).__name__}; {WAYS}")
    if isinstance(data, Tensor | np.ndarray):
        raise DataError(f"the data is a {type(data).__name__} without labels; {WAYS}")
    rows = from_torch(data, limit=limit, name=name)
    if rows.scaled:
        _say_scaled()
    return rows


def _pair(x: Any, y: Any, limit: int | None, name: str, classes: tuple[str, ...] | None = None) -> Rows:
    inputs, labels = _tensor(x, "inputs"), _tensor(y, "labels")
    scaled = inputs.dtype == torch.uint8
    if scaled:
        _say_scaled()
        inputs = inputs.float() / 255
    check_inputs(inputs)
    check_labels(inputs, labels)
    rows = Rows(inputs, labels.long(), torch.arange(len(inputs), device="cpu"), name, classes=classes, scaled=scaled)
    return rows if limit is None else rows.limit(limit)


def _tensor(values: Any, what: str) -> Tensor:
    if isinstance(values, Tensor):
        return values.detach().cpu()
    try:
        array = np.asarray(values)  # a frame of pandas too
        if array.dtype == object or array.dtype.kind in "SUMm":
            raise TypeError(f"{array.dtype}")
        return torch.from_numpy(np.ascontiguousarray(array))
    except (TypeError, ValueError) as error:
        raise DataError(f"the {what} are a {type(values).__name__} that holds no numbers ({error}); {WAYS}") from None


def _loaded(loader: DataLoader[Any], limit: int | None, name: str | None) -> Rows:
    held = loader.dataset
    called = name or type(held).__name__
    if isinstance(loader.sampler, RandomSampler) and isinstance(held, Sized):
        return rows_of(held, limit=limit, name=called)
    inputs: list[Tensor] = []
    labels: list[Tensor] = []
    for number, batch in enumerate(loader):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise DataError(f"batch {number} of the loader is a {type(batch).__name__}, not a pair (inputs, labels)")
        for some, part in zip((inputs, labels), batch, strict=True):
            some.append(_tensor(part, "batches"))
        afford(sum(part.nbytes for part in inputs), f"{called}: {sum(map(len, inputs))} rows", "give a limit, or ")
        if limit is not None and sum(map(len, inputs)) >= limit:
            break
    if not inputs:
        raise DataError("the loader has no batches; give it a data set with rows")
    return _pair(torch.cat(inputs), torch.cat(labels), limit, called, class_names(held, torch.cat(labels)))


def _say_scaled() -> None:
    warn_caller("the inputs are 8-bit values: they were divided by 255, so that they lie in [0, 1]")
