"""What a cascade will cost at most, told before it starts."""

from dataclasses import dataclass

from sigmazero.auto.cascade import SparseAutoAttack
from sigmazero.bench.forecast import ROWS, seconds_per_query
from sigmazero.data import Rows


@dataclass(frozen=True)
class MemberCost:
    """Queries and seconds of one member if every row comes to it and none is fooled; `queries` are of one row."""

    name: str
    queries: int
    rows: int
    seconds: float


def estimate_cascade(cascade: SparseAutoAttack, rows: Rows) -> list[MemberCost]:
    """The most that each member asks about some rows, and how long that takes: passes of a few are timed here."""
    few = rows.images[:ROWS] if cascade.device is None else rows.images[:ROWS].to(cascade.device)
    most = cascade.most(rows.images, rows.labels)
    each = seconds_per_query(cascade.model, few)
    return [MemberCost(name, queries, len(rows), queries * len(rows) * each) for name, queries in most.items()]
