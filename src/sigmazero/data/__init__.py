"""Data sets by name, or from files: images in [0, 1], tables in their own units, labels, row ids and a content hash."""

from sigmazero.core.extras import MissingExtra
from sigmazero.data.given import from_torch, rows_of
from sigmazero.data.images import is_folder
from sigmazero.data.load import is_data_file, load
from sigmazero.data.registry import DATASETS, Dataset
from sigmazero.data.rows import (
    PAPER_SEED,
    DataError,
    MissingData,
    MissingNotes,
    Rows,
    RowSpec,
    choose,
    paper_subset,
    parse_rows,
    stratified,
)
from sigmazero.data.table import Standardize, Table

__all__ = [
    "DATASETS",
    "PAPER_SEED",
    "DataError",
    "Dataset",
    "MissingData",
    "MissingExtra",
    "MissingNotes",
    "RowSpec",
    "Rows",
    "Standardize",
    "Table",
    "choose",
    "from_torch",
    "is_data_file",
    "is_folder",
    "load",
    "paper_subset",
    "parse_rows",
    "rows_of",
    "stratified",
]
