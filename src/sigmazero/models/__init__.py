"""Models: the zoo of the paper, its architectures, and loaders for any other network."""

from sigmazero.core.extras import MissingExtra
from sigmazero.models.any import OutOfQueries, ScorerFailed, WrappedModel, wrap
from sigmazero.models.download import DownloadError, UncheckedDownload, fetch
from sigmazero.models.load import load
from sigmazero.models.normalize import Normalize, parse_normalize
from sigmazero.models.weights import MissingWeights, WeightsError
from sigmazero.models.zoo import UnknownModel, ZooEntry, entries, find, get

__all__ = [
    "DownloadError",
    "MissingExtra",
    "MissingWeights",
    "Normalize",
    "OutOfQueries",
    "ScorerFailed",
    "UncheckedDownload",
    "UnknownModel",
    "WeightsError",
    "WrappedModel",
    "ZooEntry",
    "entries",
    "fetch",
    "find",
    "get",
    "load",
    "parse_normalize",
    "wrap",
]
