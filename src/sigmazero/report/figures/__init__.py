"""Draw figures of a store with matplotlib, as files; each is a function, registered under its name."""

from importlib import import_module

from sigmazero.report.figures.figure import FIGURES as FIGURES

for _module in ("curves", "pareto", "pictures", "grids"):
    import_module(f"sigmazero.report.figures.{_module}")
