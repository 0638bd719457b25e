"""A table as the text of a file."""

from __future__ import annotations

from collections.abc import Callable

from sigmazero.report.tables.latex import to_latex
from sigmazero.report.tables.layout import Layout
from sigmazero.report.tables.render import to_csv, to_markdown

WRITERS: dict[str, Callable[[Layout], str]] = {"markdown": to_markdown, "csv": to_csv, "latex": to_latex}
ENDINGS = {".md": "markdown", ".csv": "csv", ".tex": "latex"}


def as_text(layout: Layout, form: str, *, standalone: bool = False) -> str:
    """The table in one of the formats that files have; `standalone` makes LaTeX a whole document."""
    if form not in WRITERS:
        raise ValueError(f"there is no format {form!r}; choose one of {', '.join(WRITERS)}")
    if standalone and form != "latex":
        raise ValueError(f"standalone=True makes a LaTeX document, not {form}")
    return to_latex(layout, standalone=True) if standalone else WRITERS[form](layout)
