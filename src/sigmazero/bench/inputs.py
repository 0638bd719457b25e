"""The clean inputs that a stored cell is about, loaded again without its model."""

from __future__ import annotations

from sigmazero.bench.cells import Loader, stored_data, without_target
from sigmazero.bench.facts import CellInfo
from sigmazero.data import Rows
from sigmazero.data.errors import DataError


def clean_rows(info: CellInfo, loader: Loader) -> Rows:
    """All rows of a cell, in its order; refused where what is here is not what was attacked."""
    try:
        rows = without_target(loader.rows(stored_data(info)), info.origin["target"])
    except DataError as error:
        # Of the same kind: a file that is not here stays a FileNotFoundError.
        raise type(error)(f"the inputs of {info.dataset} cannot be loaded again: {error}") from error
    if rows.content_hash != info.data_hash:
        raise DataError(
            f"{info.dataset} has other rows here than those attacked (sha256 {rows.content_hash[:12]}, stored "
            f"{info.data_hash[:12]}); name the folder with the same files with --data-dir"
        )
    return rows
