"""Benchmarks: a plan becomes cells, cells become facts in a store, and everything reported is derived from facts."""

from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import DataSpec, ModelSpec
from sigmazero.bench.plan_file import read_plan

__all__ = ["DataSpec", "Loader", "ModelSpec", "read_plan"]
