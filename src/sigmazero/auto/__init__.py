"""Run fixed lists of attacks under AutoAttack's names (`SparseAutoAttack`), and judge pipelines by them (`gate`)."""

from sigmazero.auto.cascade import SparseAutoAttack
from sigmazero.auto.judge import gate
from sigmazero.auto.members import CASCADES, Cascade
from sigmazero.auto.result import CascadeResult
from sigmazero.auto.verdict import Verdict

__all__ = ["CASCADES", "Cascade", "CascadeResult", "SparseAutoAttack", "Verdict", "gate"]
