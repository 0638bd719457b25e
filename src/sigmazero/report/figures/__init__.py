"""The figures of a store as pictures: one file each, and one line each in the list below."""

from importlib import import_module

from sigmazero.report.figures.figure import Figure

FIGURES: tuple[Figure, ...] = tuple(
    import_module(f"sigmazero.report.figures.{name}").FIGURE
    for name in (
        "curves",
        "pareto",
        "ablation",
        "gallery",
        "figure_one",
        "histogram",
        "classes",
        "heat",
        "effort",
        "agreement",
        "transfer",
        "path",
    )
)
