"""Arrays in `.npz` files, the format for a user's own data.

The file holds `images` and `labels` (or `x_test` and `y_test`). 8-bit images are divided by 255; float images must
lie in [0, 1], unless bounds are given. (N, H, W) gains a channel, (N, H, W, C) is turned into (N, C, H, W). Where a
shape leaves the choice open, an entry `layout` decides: "NCHW", "NHWC" or "raw" (keep the shape whatever it is).

An entry `names` names the features and makes the file a table: numbers in their own units, kept as they are. An entry
`classes` names the classes, by label. A file beside it, `mine.space.toml` for `mine.npz`, says what may change.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.messages import shown
from sigmazero.data.rows import Array, DataError, MissingData, Source, in_memory, reading
from sigmazero.data.table import EXACT, space_beside

CHANNELS = (1, 3, 4)
LAYOUTS = ("NCHW", "NHWC", "raw")
PAIRS = (("images", "labels"), ("x_test", "y_test"))
WANTED = {*sum(PAIRS, ()), "layout", "names", "classes"}


def read(path: Path, bounds: tuple[Any, Any] | None = None) -> Source:
    """Read images and labels of one `.npz` file; `bounds` are those of the values, [0, 1] unless given."""
    if not path.is_file():
        near = get_close_matches(path.stem, [each.stem for each in path.parent.glob("*.npz")], 1)
        meant = f"did you mean {path.with_name(near[0] + path.suffix)}? " if near else ""
        raise MissingData(f"{path}: no such file; {meant}check the path, or give the name of a data set")
    with reading(path, "save it again with numpy.savez, without objects"):
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found, arrays = list(file.files), {name: file[name] for name in file.files if name in WANTED}
        pair = next(((x, y) for x, y in PAIRS if x in arrays and y in arrays), None)
        if pair is None:
            some = ", ".join(map(shown, sorted(found)[:20])) or "nothing"
            raise DataError(f"{path}: holds {some}; it needs the arrays images and labels")
        names, classes = (_words(arrays.get(word), word, path) for word in ("names", "classes"))
        images = arrange(arrays[pair[0]], str(arrays["layout"]) if "layout" in arrays else None, path)
        if names is not None:
            whole = images.dtype.kind in "biu" and np.abs(images.astype(np.float64)).max(initial=0) > EXACT
            images = images.astype(np.float64 if whole else np.float32)
        if not np.isfinite(images).all():
            raise DataError(f"{path}: images hold NaN or Inf; clean the data first")
        if names is None and images.dtype != np.uint8:
            _check_images(images, path, bounds)
        labels = _labels(arrays[pair[1]], path)
        return in_memory(images, labels, path, names=names, classes=classes, space=space_beside(path))


def arrange(images: Array, layout: str | None, path: Path) -> Array:
    """Put the channels of images before height and width."""
    if layout is None and images.ndim == 4 and (images.shape[1] in CHANNELS) != (images.shape[3] in CHANNELS):
        layout = "NCHW" if images.shape[1] in CHANNELS else "NHWC"
    elif layout is None and images.ndim in (2, 3):
        layout = "raw" if images.ndim == 2 else "NCHW"
    elif layout is None:
        raise DataError(f"{path}: cannot tell where the channels of shape {images.shape} are; add layout, as 'NCHW'")
    if layout not in LAYOUTS:
        raise DataError(f"{path}: layout {shown(layout)!r} is not one of {', '.join(LAYOUTS)}")
    if layout != "raw" and images.ndim == 3:
        return images[:, None]
    if layout != "raw" and images.ndim != 4:
        raise DataError(f"{path}: layout {layout} needs 4 dimensions, images have shape {images.shape}")
    return images.transpose(0, 3, 1, 2) if layout == "NHWC" else images


def _words(words: Array | None, entry: str, path: Path) -> tuple[str, ...] | None:
    if words is None:
        return None
    if words.ndim != 1 or words.dtype.kind not in "US":
        raise DataError(f"{path}: {entry} is {words.dtype} {words.shape}; store a list of texts")
    return tuple(words.astype(str).tolist())


def _check_images(images: Array, path: Path, bounds: tuple[Any, Any] | None) -> None:
    if images.dtype.kind != "f":
        raise DataError(f"{path}: images are {images.dtype}; store uint8 in 0..255, or float")
    low, high = float(images.min(initial=0)), float(images.max(initial=0))
    if bounds is None and not (low >= 0 and high <= 1):
        raise DataError(
            f"{path}: images range from {images.min():g} to {images.max():g}; give bounds=({low:g}, {high:g})"
        )


def _labels(labels: Array, path: Path) -> Array:
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or flat.dtype.kind not in "iu":
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}; store one whole number per image")
    return flat
