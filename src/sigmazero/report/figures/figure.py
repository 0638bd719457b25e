"""Register figures: a function from a request to a matplotlib figure, with a name that is its option."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from sigmazero.report.figures import style
from sigmazero.report.runs import Clean, Group
from sigmazero.store.store import Store


@dataclass(frozen=True)
class Request:
    """Hold what a figure is drawn from.

    groups   the runs of the store, by model and question
    store    where they come from
    clean    gives the clean inputs of a cell
    options  the values of the figure's own options, by name
    """

    groups: Sequence[Group]
    store: Store
    clean: Clean
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """An option of one figure: a whole number or, with `kind` bool, a switch."""

    name: str
    help: str
    kind: type = int

    @property
    def default(self) -> bool | None:
        """Return its value where it is not given."""
        return False if self.kind is bool else None


@dataclass(frozen=True)
class Figure:
    """A figure of a store.

    name     of its option, which takes a file
    help     what the option says about it
    draw     makes a matplotlib figure, or several by what sets their file names apart
    """

    name: str
    help: str
    draw: Callable[[Request], Any]
    options: tuple[Option, ...] = ()

    def write(self, request: Request, path: Path) -> list[Path]:
        """Draw the figure, then write it; return the paths of its files."""
        style.file_format(path)
        drawn = self.draw(request)
        files = drawn if isinstance(drawn, Mapping) else {"": drawn}
        written = {
            path.with_name(f"{path.stem}{'-' * bool(name)}{name}{path.suffix}"): one for name, one in files.items()
        }
        for file, one in written.items():
            style.save(one, file)
        return [*written]


FIGURES: dict[str, Figure] = {}
Draw = TypeVar("Draw", bound=Callable[[Request], Any])


def figure(name: str, help: str, *options: Option) -> Callable[[Draw], Draw]:
    """Register a function that draws a figure under a name, which becomes its option on the command line."""

    def register(draw: Draw) -> Draw:
        if name in FIGURES:
            raise ValueError(f"there is a figure {name!r} already; choose another name")
        FIGURES[name] = Figure(name, help, draw, options)
        return draw

    return register
