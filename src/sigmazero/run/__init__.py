"""How an attack is run: sessions, searches, recorded steps, number formats, verification."""

from sigmazero.core.hardware import Hardware
from sigmazero.run.search_model import Prepared
from sigmazero.run.session import Session

__all__ = ["Hardware", "Prepared", "Session"]
