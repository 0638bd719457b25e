"""Any model: what is not a network of torch becomes one that attacks can ask."""

from sigmazero.models.any import recognise
from sigmazero.models.any.asking import OutOfQueries, Queries, ScorerFailed
from sigmazero.models.any.module import WrappedModel
from sigmazero.models.any.wrap import on_table, understood, wrap

__all__ = ["OutOfQueries", "Queries", "ScorerFailed", "WrappedModel", "on_table", "recognise", "understood", "wrap"]
