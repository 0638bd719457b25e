"""Models beside each other, as the paper prints them: a band of some models, with one row per attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sigmazero.report.site.old.layout import Layout, Line

# What all lines of a block have in common stands above it.
ABOVE = ("model", "data", "goal", "unit", "weights", "rows", "space")

TableBlock = tuple[Line, ...]


@dataclass(frozen=True)
class Band:
    """Blocks beside each other under their headings; a row has the line of each block, None where it lacks one."""

    headings: tuple[str, ...]
    blocks: tuple[TableBlock, ...]
    rows: tuple[tuple[Line | None, ...], ...]


def row_words(layout: Layout) -> list[str]:
    """The words that stand before a row of a band."""
    return [name for name in layout.words if name not in ABOVE]


def row_word(lines: Sequence[Line | None], name: str) -> str:
    """A word of a row; all that its lines have, where they differ."""
    return " / ".join(dict.fromkeys(line.words[name] for line in lines if line is not None))


def bands(layout: Layout) -> list[Band]:
    """The blocks of each data set, as many beside each other as the layout says."""
    sets: dict[str, list[TableBlock]] = {}
    for block in layout.blocks:
        sets.setdefault(block[0].words["data"], []).append(block)
    names = _headings(layout)
    made = []
    for blocks in sets.values():
        for start in range(0, len(blocks), layout.across):
            chosen = tuple(blocks[start : start + layout.across])
            made.append(Band(tuple(names[id(block)] for block in chosen), chosen, _rows(layout, chosen)))
    return made


def _headings(layout: Layout) -> dict[int, str]:
    """What to call each block; a number tells apart those that differ in nothing that is shown."""
    shown = [name for name in layout.words if name in ABOVE]
    names: dict[int, str] = {}
    for block in layout.blocks:
        name = ", ".join(block[0].words[word] for word in shown)
        twice = sum(name == other.split(" #")[0] for other in names.values())
        names[id(block)] = f"{name} #{twice + 1}" if twice else name
    return names


def _rows(layout: Layout, blocks: Sequence[TableBlock]) -> tuple[tuple[Line | None, ...], ...]:
    """The lines of the same attack together, from the least to the most effective on average over the blocks."""
    # How far runs are may differ within a row.
    words = [name for name in row_words(layout) if name != "samples"]
    places: dict[tuple[object, ...], list[tuple[float, int, Line]]] = {}
    for number, block in enumerate(blocks):
        seen: dict[tuple[str, ...], int] = {}
        for place, line in enumerate(block):
            key = tuple(line.words[name] for name in words)
            seen[key] = seen.get(key, 0) + 1  # two settings of an attack may bear one name
            places.setdefault((*key, seen[key]), []).append(((place + 0.5) / len(block), number, line))
    ordered = sorted(places.values(), key=lambda found: sum(place for place, *_ in found) / len(found))
    by_block = [{number: line for _, number, line in found} for found in ordered]
    return tuple(tuple(found.get(number) for number in range(len(blocks))) for found in by_block)
