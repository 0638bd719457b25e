"""Models of any kind: wrap what is no network of torch, and limit how a model is called."""

from sigmazero.models.wrapping.base import ArrayModel
from sigmazero.models.wrapping.choose import by_names, for_data, on_table, understood, wrap
from sigmazero.models.wrapping.limits import LimitedModel, OutOfQueries, ScorerFailed, limit

__all__ = [
    "ArrayModel",
    "LimitedModel",
    "OutOfQueries",
    "ScorerFailed",
    "by_names",
    "for_data",
    "limit",
    "on_table",
    "understood",
    "wrap",
]
