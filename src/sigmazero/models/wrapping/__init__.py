"""Any model: make one that attacks can ask of what is no network of torch, and limit how it is asked."""

from sigmazero.models.wrapping.base import ArrayModel
from sigmazero.models.wrapping.choose import for_data, understood, wrap
from sigmazero.models.wrapping.limits import LimitedModel, OutOfQueries, Queries, ScorerFailed, limit

__all__ = [
    "ArrayModel",
    "LimitedModel",
    "OutOfQueries",
    "Queries",
    "ScorerFailed",
    "for_data",
    "limit",
    "understood",
    "wrap",
]
