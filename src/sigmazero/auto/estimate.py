"""What a cascade will cost at most, told before it starts."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from sigmazero.bench.cost import row_queries
from sigmazero.bench.forecast import ROWS, seconds_per_query
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Model


@dataclass(frozen=True)
class MemberCost:
    """Queries and seconds of one member if every row comes to it and none is fooled; `queries` are of one row."""

    name: str
    queries: int
    rows: int
    seconds: float


def estimate_cascade(members: Sequence[Attack], model: Model, x: Tensor, rows: int) -> list[MemberCost]:
    """The most that each member asks about so many rows, and how long that takes: a few like `x` are timed here."""
    each = seconds_per_query(model, x[:ROWS])
    found = ((member.name, row_queries(member)) for member in members)
    return [MemberCost(name, queries, rows, queries * rows * each) for name, queries in found]
