"""Data sets by name, or from files: images in [0, 1], labels, row ids and a content hash."""

from sigmazero.core.extras import MissingExtra
from sigmazero.data.encoder import Encoder, Standardize
from sigmazero.data.errors import DataError, MissingData, MissingNotes
from sigmazero.data.given import rows_of
from sigmazero.data.load import is_data_file, load
from sigmazero.data.pictures import is_folder
from sigmazero.data.registry import DATASETS, Dataset
from sigmazero.data.rows import PAPER_SEED, Rows, RowSpec, choose, paper_subset, parse_rows
from sigmazero.data.tables import open_table
from sigmazero.data.torch_dataset import from_torch

__all__ = [
    "DATASETS",
    "PAPER_SEED",
    "DataError",
    "Dataset",
    "Encoder",
    "MissingData",
    "MissingExtra",
    "MissingNotes",
    "RowSpec",
    "Rows",
    "Standardize",
    "choose",
    "from_torch",
    "is_data_file",
    "is_folder",
    "load",
    "open_table",
    "paper_subset",
    "parse_rows",
    "rows_of",
]
