"""Tasks: at most one site from each of t ranges of sites, and how a task becomes smaller ones.

Sites are numbered along a curve that keeps neighbours together, so that a range is a compact patch of the image. A
range may come several times in a task: then as many of its sites may change. Two ranges of a task are the same or have
no site in common, and the same ones stand side by side.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.certifier.piles import join


@dataclass(frozen=True, eq=False)
class Tasks:
    """The row of each task's input, and the begins and ends of its ranges (tasks, t)."""

    rows: Tensor
    begin: Tensor
    end: Tensor

    def __len__(self) -> int:
        """Number of tasks."""
        return len(self.rows)

    def take(self, chosen: Tensor | slice) -> "Tasks":
        """Some of the tasks."""
        return Tasks(self.rows[chosen], self.begin[chosen], self.end[chosen])

    @property
    def longest(self) -> Tensor:
        """Sites in the longest range of each task."""
        return (self.end - self.begin).amax(1)

    @property
    def levels(self) -> Tensor:
        """The power of two that holds the longest range of each task."""
        return self.longest.double().log2().ceil().long()

    def sites(self, order: Tensor) -> Tensor:
        """The sites of each range (tasks, t, places), -1 beyond its end."""
        width = int(self.longest.max())
        place = self.begin[:, :, None] + torch.arange(width, device=order.device)
        inside = place < self.end[:, :, None]
        return torch.where(inside, order[place.clamp_max(len(order) - 1)], -1)

    def halved(self) -> "Tasks":
        """Tasks that together allow what these allow: each one's longest range in two parts.

        A range that comes m times becomes j times its first half and m - j times its second, for every j; but never
        more often than it has sites, since no site changes twice.
        """
        length = self.end - self.begin
        longest = length.amax(1, keepdim=True)
        first = (length == longest).to(torch.int8).argmax(1, keepdim=True)
        place = torch.arange(length.shape[1], device=length.device)
        start, stop = self.begin.gather(1, first), self.end.gather(1, first)
        middle = (start + stop) // 2
        same = (self.begin == start) & (self.end == stop)
        times = same.sum(1, keepdim=True)
        children = []
        for j in range(length.shape[1] + 1):
            left = same & (place < first + j)
            right = same & ~left
            fits = (j <= times) & (j <= middle - start) & (times - j <= stop - middle)
            begin = torch.where(right, middle, self.begin)
            end = torch.where(left, middle, self.end)
            children.append(Tasks(self.rows, begin, end).take(fits[:, 0]))
        found: Tasks = join(children)
        return found


def whole(rows: Tensor, sites: int, t: int) -> Tasks:
    """For each input one task that allows any t sites."""
    shape = (len(rows), t)
    return Tasks(rows, rows.new_zeros(shape), rows.new_full(shape, sites))


def curve(height: int, width: int, channels: int) -> Tensor:
    """Sites (in the order height, width, channels) along a Z-shaped curve; the channels of a position come together.

    >>> curve(2, 4, 1).tolist()
    [0, 1, 4, 5, 2, 3, 6, 7]
    """
    y, x = torch.meshgrid(torch.arange(height, device="cpu"), torch.arange(width, device="cpu"), indexing="ij")
    code = torch.zeros_like(y)
    for bit in range(max(height, width).bit_length()):
        code |= ((y >> bit & 1) << (2 * bit + 1)) | ((x >> bit & 1) << (2 * bit))
    place = code.flatten().argsort()
    return (place[:, None] * channels + torch.arange(channels, device="cpu")).flatten()
