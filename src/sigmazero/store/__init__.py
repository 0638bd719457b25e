"""Facts on disk: what is known of every sample, whole, checked, and never written twice."""

from sigmazero.store.database import StoreBusy, StoreError
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.results import record_of
from sigmazero.store.store import Store

__all__ = ["CellInfo", "Facts", "Store", "StoreBusy", "StoreError", "record_of"]
