"""SparseAutoAttack: a frozen cascade of sparse attacks under AutoAttack's names."""

from sigmazero.auto.cascade import SparseAutoAttack
from sigmazero.auto.document import schema
from sigmazero.auto.gating import gate
from sigmazero.auto.report import CascadeReport
from sigmazero.auto.verdict import GateVerdict
from sigmazero.auto.versions import VERSIONS, Version

__all__ = ["VERSIONS", "CascadeReport", "GateVerdict", "SparseAutoAttack", "Version", "gate", "schema"]
