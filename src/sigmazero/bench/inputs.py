"""The clean inputs that a stored cell is about: loaded again without its model, or kept in the store.

A data set is named in a store and loaded again when it is needed. Tensors handed in from Python have no such name, so
the store keeps them, as long as they are not too many.
"""

from __future__ import annotations

from math import prod

import numpy as np
import torch

from sigmazero.bench.cells import Loader, origin, without_target
from sigmazero.bench.plan import DataSpec
from sigmazero.data import Rows
from sigmazero.data.errors import DataError
from sigmazero.store.facts import CellInfo
from sigmazero.store.pack import Array, pack, unpack
from sigmazero.store.store import Store, StoreError

GIVEN = "given in Python"  # where rows come from that no file and no data set holds
MOST = 64 * 2**20  # bytes of inputs that a store keeps of one data set
_LEVELS = 255  # of 8-bit images, which take a byte per feature instead of four


def keep(store: Store, rows: Rows) -> bool:
    """Keep rows given in Python, once for all cells about them; False if they are too many, or no attack takes them."""
    if store.inputs(rows.content_hash) is not None:
        return True
    if rows.images.dtype not in (torch.float32, torch.float64):
        return False
    images = rows.images.detach().cpu().numpy()
    levels = np.rint(images * _LEVELS)
    whole = bool((levels >= 0).all() and (levels <= _LEVELS).all() and _same(_scaled(levels, images.dtype), images))
    values = levels.astype(np.uint8) if whole else images
    if values.nbytes > MOST:
        return False
    shape = np.array([images.itemsize, *images.shape])
    flat = [values.ravel(), rows.labels.cpu().numpy(), rows.ids.cpu().numpy()]
    store.keep_inputs(rows.content_hash, pack([shape, *flat], compress=True))
    return True


def kept(store: Store, info: CellInfo) -> Rows | None:
    """The rows of a cell that the store itself holds, if it does."""
    blob = store.inputs(info.data_hash)
    if blob is None:
        return None
    try:
        (itemsize, *shape), values, labels, ids = unpack(blob)
        kind = np.dtype(f"f{int(itemsize)}")
        images = _scaled(values, kind) if values.dtype.kind in "iu" else values.astype(kind)
        if len(images) != prod(int(n) for n in shape):
            raise ValueError(f"{len(images)} values are not the {'×'.join(map(str, shape))} they should be")
    except (ValueError, TypeError) as error:
        raise StoreError(f"{store.path}: the inputs of {info.dataset} cannot be read ({error})") from error
    pictures = torch.from_numpy(np.ascontiguousarray(images)).view([int(n) for n in shape])
    numbers = [torch.from_numpy(column.astype(np.int64)) for column in (labels, ids)]
    return Rows(pictures, numbers[0], numbers[1], info.dataset)


def recall(store: Store, info: CellInfo, loader: Loader) -> DataSpec:
    """What to ask the loader for the rows of a cell; it is given those that only the store holds."""
    spec = origin(info).data
    if spec.source != GIVEN:
        return spec
    rows = kept(store, info)
    if rows is not None:
        loader.give_rows(spec, rows)
    elif not loader.has(spec):
        raise DataError(
            f"the inputs of {info.dataset} were tensors, and the store does not hold them: they were more than "
            f"{MOST // 2**20} MB, or keep_inputs=False; save them as .npz and pass its name to sz.evaluate"
        )
    return spec


def clean_rows(store: Store, info: CellInfo, loader: Loader) -> Rows:
    """All rows of a cell, in its order; refused where what is here is not what was attacked."""
    spec = recall(store, info, loader)
    try:
        rows = without_target(loader.rows(spec), origin(info).target)
    except DataError as error:
        # Of the same kind: a file that is not here stays a FileNotFoundError.
        raise type(error)(f"the inputs of {info.dataset} cannot be loaded again: {error}") from error
    if rows.content_hash != info.data_hash:
        raise DataError(
            f"{info.dataset} has other rows here than those attacked (sha256 {rows.content_hash[:12]}, stored "
            f"{info.data_hash[:12]}); give the folder that has the same files (data_dir)"
        )
    return rows


def _scaled(levels: Array, kind: np.dtype[np.floating]) -> Array:
    """8-bit values as they are when an image is divided by 255 in its own number format."""
    scaled: Array = levels.astype(kind) / kind.type(_LEVELS)
    return scaled


def _same(one: Array, two: Array) -> bool:
    """Bit by bit: a negative zero is not zero."""
    return one.tobytes() == two.tobytes()
