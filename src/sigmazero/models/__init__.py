"""Models: the zoo of the paper, its architectures, and loaders for any other network."""

from sigmazero.core.extras import MissingExtra
from sigmazero.models.load import load
from sigmazero.models.normalize import Normalize, parse_normalize
from sigmazero.models.weights import DownloadError, MissingWeights, UncheckedDownload, WeightsError, fetch
from sigmazero.models.wrapping import ArrayModel, LimitedModel, OutOfQueries, ScorerFailed, limit, wrap
from sigmazero.models.zoo import UnknownModel, ZooEntry, entries, find, get

__all__ = [
    "ArrayModel",
    "DownloadError",
    "LimitedModel",
    "MissingExtra",
    "MissingWeights",
    "Normalize",
    "OutOfQueries",
    "ScorerFailed",
    "UncheckedDownload",
    "UnknownModel",
    "WeightsError",
    "ZooEntry",
    "entries",
    "fetch",
    "find",
    "get",
    "limit",
    "load",
    "parse_normalize",
    "wrap",
]
