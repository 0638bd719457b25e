"""Fill the templates of pages; everything that a page needs is inside it."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping
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
    """A cell of a table: its text, the number it is sorted by, small print, a link, and how dark it is, 0 to 1."""

    text: str
    value: float | None = None
    small: str = ""
    best: bool = False
    href: str = ""
    shade: float | None = None

    @property
    def sort(self) -> str:
        """Return the number as JavaScript reads it; empty where there is none."""
        if self.value is None or math.isnan(self.value):
            return ""
        return f"{self.value!r}" if math.isfinite(self.value) else "Infinity" if self.value > 0 else "-Infinity"


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
    rows: list[list[Cell]]
    copies: Mapping[str, str] = field(default_factory=dict)


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
