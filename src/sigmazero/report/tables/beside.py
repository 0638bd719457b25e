"""Our figures beside the paper's in a few columns: a line per figure, with its interval, so that it fits a terminal."""

from __future__ import annotations

from itertools import zip_longest

from sigmazero.report.intervals import wilson
from sigmazero.report.tables.layout import Layout
from sigmazero.report.tables.render import difference_text, interval, shown
from sigmazero.report.tables.text import NONE

PLAIN = ("model", "attack")  # words that need no name before them
FEW = 500  # samples below which a difference from the paper is likely to be chance


def lines_beside(layout: Layout) -> list[dict[str, str]]:
    """One row per run and figure; a dash where the paper has none."""
    made = [
        {
            **{name: line.words[name] for name in layout.words},
            "figure": column.heading,
            "ours": shown(line.figures[column.name], column),
            "95 %": interval(line, column),
            "paper": shown(line.paper.get(column.name), column),
            "less paper": difference_text(line, column) or NONE,
        }
        for block in layout.blocks
        for line in block
        for column in layout.columns
    ]
    return _once(made, layout.words)


def stacked(layout: Layout) -> list[dict[str, str]]:
    """The same with the words of a run below each other, in one column: for screens that are too narrow otherwise."""
    rows = lines_beside(layout)
    made: list[dict[str, str]] = []
    for line in (line for block in layout.blocks for line in block):
        figures = [rows.pop(0) for _ in layout.columns]
        words = [line.words[name] if name in PLAIN else f"{name} {line.words[name]}" for name in layout.words]
        blank = {name: "" for name in figures[0]}
        for word, row in zip_longest(words, figures):
            rest = {name: text for name, text in (row or blank).items() if name not in layout.words}
            made.append({"run": word or "", **rest})
    return made


def _once(rows: list[dict[str, str]], words: tuple[str, ...]) -> list[dict[str, str]]:
    """The rows without the words that the row before has already."""
    shown_, before = [], tuple[str, ...]()
    for row in rows:
        now = tuple(row[name] for name in words)
        shown_.append(row | {name: "" for name in words} if now == before else row)
        before = now
    return shown_


def caution(layout: Layout) -> str:
    """That the paper has nothing to compare with, or what few samples are worth; nothing where all is well."""
    if not any(value is not None for block in layout.blocks for line in block for value in line.paper.values()):
        return "The paper has no figures for these runs: models, data, attacks and steps must be those of experiments/."
    counts = [int(line.figures.get("samples") or line.info.rows) for block in layout.blocks for line in block]
    if not counts or (fewest := min(counts)) >= FEW:
        return ""
    low, high = wilson(fewest // 2, fewest)
    wide = f"a rate of 50 % is known to within {100 * (high - low) / 2:.0f} points"
    return f"Caution: with n = {fewest} samples {wide}; most smaller differences from the paper are chance."
