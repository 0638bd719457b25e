"""Names beside points, none upon another: each takes the nearest free place around its point."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

SIZE = 7.5  # of the letters, in points
WIDE, HIGH = 0.66 * SIZE, 1.5 * SIZE  # a letter, and a line, with some air
CLEAR = 5.0  # around a point
ROUND = [math.pi * k / 8 for k in (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8)]  # to the right first
FAR = 9.0  # a name that is farther away than that is tied to its point by a line
TURNS = 12  # so many times farther away a place is looked for


@dataclass(frozen=True)
class LabelBox:
    """A rectangle in points."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: LabelBox) -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )

    def inside(self, other: LabelBox) -> bool:
        """Whether the other holds all of it."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.bottom <= self.bottom
            and self.top <= other.top
        )


LabelSpot = tuple[float, float]


def place(
    points: Sequence[LabelSpot], texts: Sequence[str], frame: LabelBox, line: Sequence[LabelSpot] = ()
) -> list[LabelBox]:
    """A box for the text of each point, inside the frame and clear of points, of each other and of a line of steps."""
    marks = [LabelBox(x - CLEAR, y - CLEAR, x + CLEAR, y + CLEAR) for x, y in points]
    marks += [LabelBox(min(a, c) - 1, min(b, d) - 1, max(a, c) + 1, max(b, d) + 1) for (a, b), (c, d) in pairwise(line)]
    taken: list[LabelBox] = []
    for point, text in zip(points, texts, strict=True):
        found = list(_around(point, WIDE * len(text)))
        free = [box for box in found if not any(map(box.meets, [*marks, *taken]))]
        taken.append(next((box for box in free if box.inside(frame)), (free or found)[0]))
    return taken


def _around(point: LabelSpot, width: float) -> Iterator[LabelBox]:
    for turn in range(TURNS):
        away = CLEAR + 1 + 0.8 * HIGH * turn
        for angle in ROUND:
            x, y = point[0] + away * math.cos(angle), point[1] + away * math.sin(angle)
            # The side of the box that faces the point touches the circle.
            left = x - width * (1 - math.cos(angle)) / 2
            bottom = y - HIGH * (1 - math.sin(angle)) / 2
            yield LabelBox(left, bottom, left + width, bottom + HIGH)


def write(
    axis: Any, points: Sequence[LabelSpot], texts: Sequence[str], colours: Sequence[str], line: Sequence[LabelSpot] = ()
) -> None:
    """Write the names of points in the coordinates of an axis whose place, scales and limits stand already."""
    scale = 72 / axis.figure.dpi

    def drawn(spots: Sequence[LabelSpot], how: Any) -> list[LabelSpot]:
        return [(float(x * scale), float(y * scale)) for x, y in (how.transform(spot) for spot in spots)]

    at, (low, high) = drawn(points, axis.transData), drawn([(0, 0), (1, 1)], axis.transAxes)
    boxes = place(at, texts, LabelBox(*low, *high), drawn(line, axis.transData))
    for point, (x, y), box, text, colour in zip(points, at, boxes, texts, colours, strict=True):
        middle = (box.bottom + box.top) / 2
        aside = max(box.left - x, 0.0, x - box.right), max(box.bottom - y, 0.0, y - box.top)
        far = math.hypot(*aside) > FAR
        tie = {"arrowstyle": "-", "linewidth": 0.6, "color": colour, "shrinkA": 0, "shrinkB": 3} if far else None
        look: dict[str, Any] = {"fontsize": SIZE, "color": colour, "va": "center", "arrowprops": tie}
        axis.annotate(text, point, (box.left - x, middle - y), textcoords="offset points", **look)
