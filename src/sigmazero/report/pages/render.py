"""Fill the templates of pages; everything that a page needs is inside it."""

import base64
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from sigmazero.core.files import replacing


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than its text.

    small  small print after the text
    best   whether it is the best figure of its block
    shade  how dark it is, from 0 to 1
    sort   the number it is sorted by, where the text does not begin with it
    """

    text: str
    small: str = ""
    best: bool = False
    href: str = ""
    shade: float | None = None
    sort: float | None = None


@dataclass(frozen=True)
class Column:
    """A heading, whether numbers stand under it, and what it means."""

    heading: str
    number: bool = False
    help: str = ""


@dataclass(frozen=True)
class PageTable:
    """A table of a page; `copies` has its text in other formats, by their names."""

    name: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell | str]]
    copies: Mapping[str, str] = field(default_factory=dict)


def lined_up(name: str, caption: str, rows: Sequence[Mapping[str, Cell | str]], words: Collection[str]) -> PageTable:
    """Return a table of rows with the same headings; those among `words` have no numbers under them."""
    columns = [Column(heading, heading not in words) for heading in (rows[0] if rows else ())]
    return PageTable(name, caption, columns, [[*row.values()] for row in rows])


@cache
def environment() -> Environment:
    """Return the templates; a name that a template does not know is an error, and every text is escaped."""
    made = Environment(
        loader=PackageLoader("sigmazero.report.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["sha256"] = lambda text: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    made.globals |= {"css": _text("report.css"), "script": _text("report.js"), "version": version("sigmazero")}
    return made


def render(template: str, **context: Any) -> str:
    """Return a page; `data` are values for its script, by name."""
    return environment().get_template(template).render(**context)


def save_page(path: Path, text: str) -> None:
    """Write a page, whole or not at all."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def _text(name: str) -> str:
    return files("sigmazero.report.pages").joinpath(name).read_text(encoding="utf-8")
