"""A folder of pictures, one sub-folder per class: cats/1.png, cats/2.png, dogs/1.png."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from sigmazero.core.extras import require
from sigmazero.core.text import one_line
from sigmazero.data.errors import DataError
from sigmazero.data.source import Array, Source, afford, refuse_disguise

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm")
GREY = ("1", "L", "LA")  # Pillow's modes with one value per pixel, or one and its transparency


def is_folder(name: str | Path) -> bool:
    """Whether a name is that of a folder: it ends in a slash, or there is one.

    >>> is_folder("photos/"), is_folder("photos.npz")
    (True, False)
    """
    return str(name).endswith("/") or (bool(str(name)) and Path(name).expanduser().is_dir())


def read(folder: Path) -> Source:
    """All pictures of a folder in the order of their names; the classes are its sub-folders, by name.

    They must have one size. They are colour (3 channels) unless all are grey. A picture is opened when it is fetched;
    before that, only its head is read.
    """
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; name one with a sub-folder of pictures for each class")
    kinds = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    held = [[path for path in sorted(kind.iterdir()) if path.suffix.lower() in ENDINGS] for kind in kinds]
    files = [path for some in held for path in some]
    if not files:
        raise DataError(f"{folder}: has no sub-folders with pictures; make one for each class ({', '.join(ENDINGS)})")
    heads = [_head(path) for path in files]
    size = heads[0][0]
    for path, (other, _) in zip(files, heads, strict=True):
        if other != size:
            raise DataError(
                f"{path}: has {other[0]}×{other[1]} pixels but {files[0].name} {size[0]}×{size[1]}; "
                "resize all to the size that the model takes"
            )
    mode = "L" if all(each in GREY for _, each in heads) else "RGB"
    channels = 1 if mode == "L" else 3
    afford(channels * size[0] * size[1], f"{files[0]}: a picture of {size[0]}×{size[1]} pixels")

    def fetch(rows: list[int]) -> Array:
        images = np.empty((len(rows), channels, size[1], size[0]), dtype=np.uint8)
        for place, row in enumerate(rows):
            images[place] = _opened(files[row], mode)
        return images

    labels = np.repeat(np.arange(len(kinds)), [len(some) for some in held])
    return Source(labels, fetch, cost=5 * channels * size[0] * size[1], classes=tuple(kind.name for kind in kinds))


def channels_first(picture: Any) -> Array:
    """A picture of Pillow as bytes (channels, height, width): 1 channel if it is grey, else 3."""
    picture = picture.convert("L" if picture.mode in GREY else "RGB")
    values = np.asarray(picture, dtype=np.uint8)
    return values[None] if values.ndim == 2 else np.ascontiguousarray(values.transpose(2, 0, 1))


def _head(path: Path) -> tuple[tuple[int, int], str]:
    with _open(path) as file:
        return file.size, file.mode


def _opened(path: Path, mode: str) -> Array:
    with _open(path) as file:
        try:
            return channels_first(file.convert(mode))
        except (OSError, ValueError, SyntaxError) as error:
            raise DataError(f"{path}: is not a whole picture ({one_line(error)}); get it again") from error


def _open(path: Path) -> Any:
    pillow = require("PIL.Image", "data", "reading pictures")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            return pillow.open(path)
    except (OSError, ValueError, SyntaxError, pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        with path.open("rb") as head:
            refuse_disguise(head.read(64), path)
        raise DataError(f"{path}: is not a readable picture ({one_line(error)}); remove or replace it") from error
