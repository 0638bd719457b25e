"""Which inputs are images, images in small axes, and marks on changed pixels, visible however large the image is."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

ACROSS = 56  # a mark is at least the longer side divided by this
CORNERS = 16


def is_image(x: Tensor) -> bool:
    """Whether a batch can be shown: (N, 1 or 3 channels, height, width)."""
    return x.ndim == 4 and x.shape[1] in (1, 3) and min(x.shape[2:]) > 1


def largest_change(clean: Tensor, adversarial: Tensor) -> Any:
    """Per position, the change of the channel that changed most, with its sign."""
    delta = adversarial - clean
    return delta.gather(0, delta.abs().argmax(0, keepdim=True))[0].numpy()


def pixels(image: Tensor) -> Any:
    """An image as matplotlib takes it."""
    return image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).clamp(0, 1).numpy()


def show(axis: Any, image: Tensor, text: str = "") -> None:
    """An image without ticks, with a text below it."""
    axis.imshow(pixels(image), cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    for side in axis.spines.values():
        side.set(linewidth=0.4, color="#888888")
    if text:
        axis.set_xlabel(text, fontsize=7, labelpad=2, linespacing=1.1)


def faint(image: Tensor) -> Tensor:
    """An image in light greys, to draw upon."""
    return 0.8 + 0.2 * image.mean(0, keepdim=True)


def mark(axis: Any, clean: Tensor, adversarial: Tensor) -> None:
    """A square on each changed pixel, in the colour of its largest change; a larger disc where pixels are tiny.

    Where marks would cover half of the image, the changes are shown as they are.
    """
    from matplotlib.collections import PolyCollection

    change = largest_change(clean, adversarial)
    changed = (clean != adversarial).any(0).numpy()
    rows, columns = np.nonzero(changed)
    size = max(1.0, max(change.shape) / ACROSS)
    look: dict[str, Any] = {"cmap": "PuOr_r", "clim": (-1, 1)}
    if len(rows) * size**2 > change.size / 2:
        axis.imshow(np.ma.masked_array(change, ~changed), interpolation="nearest", **look)
        return
    corners = 4 if size == 1 else CORNERS
    angles = 2 * np.pi * (np.arange(corners) + 0.5) / corners
    radius = size / 2 / (np.cos(np.pi / 4) if corners == 4 else 1)
    shape = radius * np.stack([np.cos(angles), np.sin(angles)], 1)
    outlines = np.stack([columns, rows], 1)[:, None] + shape[None]
    marks = PolyCollection(outlines, array=change[rows, columns], edgecolors="#222222", linewidths=0.35, **look)
    axis.add_collection(marks, autolim=False)
