"""The `[space]` of a plan: what may change, to which values, at what cost.

    [space]                               # for the whole plan: a file,
    file = "adult.space.toml"

    [data.adult.space.feature.age]        # or what such a file would have; for one data set,
    kind = "integer"

    [grid.space]                          # or for the grid above it
    kind = "binary"

A grid's wins over that of its data, and that over the plan's. Without any, the space that the data comes with holds.
"""

from __future__ import annotations

from sigmazero.bench import plan_words
from sigmazero.bench.toml import TomlTable
from sigmazero.spaces import file as space_file
from sigmazero.spaces.space import Space


def space_of(data: TomlTable, grid: TomlTable, top: TomlTable) -> Space | None:
    """The space of some data in a grid: the grid's own, that of the data's table, or that of the whole plan."""
    for table in (grid, data, top):
        if "space" in table:
            return _space(table)
    return None


def _space(table: TomlTable) -> Space:
    said = table.below("space")
    file = said.text("file")
    try:
        if file is None:
            return space_file.build(said.values, "space")
        said.only(tuple(plan_words.SPACE))
        return space_file.read(file)
    except ValueError as error:
        if str(error).startswith(table.file):
            raise
        raise table.error(str(error).removeprefix("space: ").removeprefix("space: "), "space") from None
