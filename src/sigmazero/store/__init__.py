"""Facts on disk: what is known of every sample, in one SQLite file that other programs read too."""

from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.results import record_of
from sigmazero.store.store import Store, StoreBusy, StoreError

__all__ = ["CellInfo", "Facts", "Store", "StoreBusy", "StoreError", "record_of"]
