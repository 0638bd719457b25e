"""Benchmarks: a plan becomes cells, cells become facts in a store, and everything reported is derived from facts."""

from sigmazero.bench.cells import Loader

__all__ = ["Loader"]
