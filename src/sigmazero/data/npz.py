"""Arrays in `.npz` files, the format for a user's own data.

The file holds `images` and `labels` (or `x_test` and `y_test`). 8-bit images are divided by 255; float images must
lie in [0, 1] already. Shapes: (N, D) is kept, (N, H, W) gains a channel, (N, H, W, C) is turned into (N, C, H, W),
and (N, C, H, W) is kept. Where a shape leaves the choice open, an entry `layout` decides: "NCHW", "NHWC" or "raw"
(keep the shape whatever it is).
"""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from sigmazero.data.errors import DataError, MissingData
from sigmazero.data.source import Array, Source, in_memory, refuse_disguise

CHANNELS = (1, 3, 4)
LAYOUTS = ("NCHW", "NHWC", "raw")


def read(path: Path) -> Source:
    """Images and labels of one `.npz` file."""
    arrays = _arrays(path)
    for images, labels in (("images", "labels"), ("x_test", "y_test")):
        if images in arrays and labels in arrays:
            layout = str(arrays["layout"]) if "layout" in arrays else None
            pixels = arrange(_checked_images(arrays[images], path), layout, path)
            return in_memory(pixels, _checked_labels(arrays[labels], path), path)
    names = ", ".join(sorted(arrays)) or "nothing"
    raise DataError(f"{path}: holds {names}; it needs the arrays images and labels")


def arrange(images: Array, layout: str | None, path: Path) -> Array:
    """The same images with channels before height and width."""
    if layout is None:
        layout = _guess(images.shape, path)
    if layout not in LAYOUTS:
        raise DataError(f"{path}: layout {layout!r} is not one of {', '.join(LAYOUTS)}")
    if layout != "raw" and images.ndim == 3:
        return images[:, None]
    if layout != "raw" and images.ndim != 4:
        raise DataError(f"{path}: layout {layout} needs 4 dimensions, images have shape {images.shape}")
    return images.transpose(0, 3, 1, 2) if layout == "NHWC" else images


def _guess(shape: tuple[int, ...], path: Path) -> str:
    if len(shape) == 2:
        return "raw"
    if len(shape) == 3:
        return "NCHW"
    if len(shape) == 4 and (shape[1] in CHANNELS) != (shape[3] in CHANNELS):
        return "NCHW" if shape[1] in CHANNELS else "NHWC"
    raise DataError(
        f"{path}: cannot tell where the channels of shape {shape} are; "
        "add an entry layout with the text NCHW, NHWC or raw to the file"
    )


def _arrays(path: Path) -> dict[str, Array]:
    if not path.is_file():
        raise MissingData(f"{path}: no such file; check the path, or give one of the names in sigmazero.data.DATASETS")
    with path.open("rb") as file:
        head = file.read(64)
    refuse_disguise(head, path)
    if not head.startswith(b"PK"):
        raise DataError(f"{path}: begins with {head[:4].hex()}; it is not an .npz file (numpy.savez)")
    try:
        # Pickled objects could run code; plain arrays cannot.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            wanted = ("images", "labels", "x_test", "y_test", "layout")
            return {name: file[name] if name in wanted else np.empty(0) for name in file.files}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError) as error:
        raise DataError(f"{path}: cannot be read ({error}); save it again with numpy.savez, without objects") from error


def _checked_images(images: Array, path: Path) -> Array:
    if images.ndim < 2:
        raise DataError(f"{path}: images have shape {images.shape}; they need one row per image")
    if images.dtype == np.uint8:
        return images
    if not np.issubdtype(images.dtype, np.floating):
        raise DataError(f"{path}: images are {images.dtype}; store uint8 in 0..255 or float in [0, 1]")
    finite = np.isfinite(images.reshape(len(images), -1)).all(1) if len(images) else np.ones(0, bool)
    if not finite.all():
        raise DataError(f"{path}: image {int((~finite).argmax())} holds NaN or Inf; clean the data first")
    if images.size and not (images.min() >= 0 and images.max() <= 1):
        raise DataError(
            f"{path}: float images range from {images.min()} to {images.max()}; store them in [0, 1] "
            "and give the network its normalisation instead"
        )
    return images


def _checked_labels(labels: Array, path: Path) -> Array:
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.ndim != 1 or not np.issubdtype(flat.dtype, np.integer):
        raise DataError(f"{path}: labels are {labels.dtype} {labels.shape}; store one whole number per image")
    if flat.size and int(flat.min()) < 0:
        raise DataError(f"{path}: label {int(flat.min())} is negative; number the classes from 0")
    return flat
