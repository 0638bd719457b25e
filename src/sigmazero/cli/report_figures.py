"""How `sigmazero report` comes by its figures: each of `report.figures.FIGURES` is an option, and may have others."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from sigmazero.cli.console import show_path
from sigmazero.report.figures import FIGURES
from sigmazero.report.figures.figure import Figure, Request

BEFORE = "data_dir"  # the parameter that the options of the figures come before


def with_figures(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of all figures in place of its `**` parameter, which receives their values."""
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    place = next(at for at, parameter in enumerate(own) if parameter.name == BEFORE)
    every = [*own[:place], *_parameters(), *own[place:]]
    vars(command)["__signature__"] = inspect.Signature(every)
    return command


def _parameters() -> Iterator[inspect.Parameter]:
    for figure in FIGURES.values():
        yield _parameter(figure.name, Path, "FILE", figure.help)
        yield from (_parameter(option.name, option.kind, "N", option.help) for option in figure.options)


def _parameter(name: str, kind: Any, metavar: str, text: str) -> inspect.Parameter:
    switch = kind is bool
    option = typer.Option(f"--{name}", metavar=None if switch else metavar, help=text)
    annotation: Any = Annotated[bool if switch else kind | None, option]
    return inspect.Parameter(
        _key(name), inspect.Parameter.KEYWORD_ONLY, default=False if switch else None, annotation=annotation
    )


def _key(name: str) -> str:
    return name.replace("-", "_")


def chosen(values: Mapping[str, Any]) -> dict[Figure, Path]:
    """The figures that are asked for, and their files; an option without its figure is refused."""
    for figure in FIGURES.values():
        given = [option.name for option in figure.options if values[_key(option.name)] != option.default]
        if given and values[_key(figure.name)] is None:
            raise ValueError(f"--{given[0]} says how to draw --{figure.name}; give --{figure.name} FILE too")
    return {figure: path for figure in FIGURES.values() if (path := values[_key(figure.name)]) is not None}


def write_figures(figures: Mapping[Figure, Path], request: Callable[..., Request], values: Mapping[str, Any]) -> None:
    """Draw what is asked for and print the paths; `request` takes the values of a figure's options."""
    for figure, path in figures.items():
        options = {option.name: values[_key(option.name)] for option in figure.options}
        for written in figure.write(request(options=options), path):
            show_path(written)
