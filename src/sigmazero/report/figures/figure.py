"""What a figure is: a name, which is its option on the command line, and a function that draws it from a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sigmazero.core.files import replacing
from sigmazero.core.metrics import DEFAULT_KS
from sigmazero.report.figures import style
from sigmazero.report.inputs import Clean
from sigmazero.report.measure import Measured
from sigmazero.report.tables.layout import Layout
from sigmazero.store.store import Store


@dataclass(frozen=True)
class Request:
    """What a figure is drawn from, and into which file.

    cells       the cells of the store that have samples, without perturbations
    clean       gives the clean inputs of a cell
    ks          numbers of changes to give success rates at
    mix         allow what does not compare side by side
    compare     puts the figures of the paper beside those of a table; None if not asked for
    standalone  make LaTeX a whole document
    options     the values of the figure's own options, by name
    """

    path: Path
    store: Store
    cells: Sequence[Measured]
    clean: Clean
    ks: Sequence[float] = DEFAULT_KS
    mix: bool = False
    compare: Callable[[Layout], Layout] | None = None
    standalone: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Option:
    """An option of one figure alone: a whole number or, with `kind` bool, a switch."""

    name: str
    help: str
    kind: type = int

    @property
    def default(self) -> bool | None:
        """Its value where it is not given."""
        return False if self.kind is bool else None


@dataclass(frozen=True)
class Figure:
    """A figure of a store.

    name     of its option, which takes a file
    help     what the option says of itself
    draw     makes a matplotlib figure, or the text or the bytes of a file; or several, by their paths
    formats  how the file's name may end
    inputs   whether it shows clean inputs
    """

    name: str
    help: str
    draw: Callable[[Request], Any]
    formats: tuple[str, ...] = style.FORMATS
    options: tuple[Option, ...] = ()
    inputs: bool = False

    def write(self, request: Request) -> list[Path]:
        """Draw all of it, then write it; the paths of the files."""
        style.known(request.path, self.formats)
        drawn = self.draw(request)
        files: Mapping[Path, Any] = drawn if isinstance(drawn, Mapping) else {request.path: drawn}
        for path, one in files.items():
            if isinstance(one, str | bytes):
                with replacing(path) as part:
                    part.write_bytes(one.encode() if isinstance(one, str) else one)
            else:
                style.save(one, path)
        return list(files)
