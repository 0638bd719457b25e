"""How an attack is run: sessions, searches, recorded steps, number formats, verification."""

from sigmazero.run.hardware import Hardware
from sigmazero.run.prepared import Prepared
from sigmazero.run.session import Session

__all__ = ["Hardware", "Prepared", "Session"]
