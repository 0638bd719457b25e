"""The rows that a command is about, and what is said of them."""

from pathlib import Path

from sigmazero import data
from sigmazero.cli.console import tell


def load_rows(name: str, rows: str | None, limit: int | None, seed: int | None, data_dir: Path | None) -> data.Rows:
    """The chosen rows of a data set, a file or a folder; that 8-bit values of the user's own were scaled is said."""
    chosen = data.load(name, rows=rows, limit=limit, seed=seed, data_dir=data_dir)
    if chosen.scaled and name not in data.DATASETS:
        tell(f"{chosen.name} holds 8-bit values: they were divided by 255")
    return chosen
