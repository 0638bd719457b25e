"""How `make docs` builds the site: Markdown pages, and the reference from docstrings. Nothing is fetched."""

import inspect
import pkgutil
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import sigmazero

sys.path.insert(0, str(Path(__file__).parents[1]))
import_module("scripts.pages").write()

project = "sigmazero"
version = release = sigmazero.__version__
copyright = "The sigmazero developers"

extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "sigmazero"
html_static_path: list[str] = []
html_theme_options = {"light_css_variables": {"font-stack": "system-ui, sans-serif"}, "navigation_with_keys": True}
html_copy_source = False

myst_heading_anchors = 3
default_role = "code"  # docstrings mark code with single backticks
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_use_type_comments = False  # there are none, and to look for them takes seconds
python_maximum_signature_line_length = 100

# Every name of ours must lead somewhere; names of others have no pages here.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!sigmazero).*"),
    ("py:class", r"sigmazero\.(\w+\.)+_\w+"),  # checks inside annotations
    ("py:class", r"sigmazero\.spaces\.file\.\w+"),
]

# A name that is known to type checkers alone, such as Table of rich, may be like one of ours.
suppress_warnings = ["ref.python"]
# TypeVars have no place of their own.
nitpick_ignore = [
    ("py:class", "sigmazero.core.ops.Batched"),
    ("py:class", "sigmazero.core.oracle.Rows"),
    ("py:class", "sigmazero.core.metrics.Compute"),
    ("py:class", "sigmazero.report.figures.figure.Draw"),
]

ALIGNED = re.compile(r"^\S+(, \S+)* {2,}\S")
MARKUP = re.compile(r"((?<!^)[*|]|^[*|](?! ))", re.MULTILINE)  # but a star and a space begin an item of a list
NAMES = re.compile(r"^(?:`\w+`,? ?\n?)+$", re.MULTILINE)  # lines of nothing but names
MODULES = re.compile(r"^<!-- modules: (.*) -->$", re.MULTILINE)


def list_modules(app: Any, docname: str, source: list[str]) -> None:
    """In pages of the reference, put the docstrings of the modules where a comment names them or their package."""
    del app
    if docname.startswith("api/"):
        source[0] = MODULES.sub(lambda found: "\n\n".join(map(section, public(found.group(1).split()))), source[0])


def describe_names(app: Any, docname: str, source: list[str]) -> None:
    """On the page of public names, say after each name what it is for: the first sentence of its docstring."""
    del app
    if docname == "public-names":
        parts = re.split(r"^(##+ `(sigmazero[\w.]*)`)$", source[0], flags=re.MULTILINE)
        for place in range(2, len(parts), 3):
            home = import_module(parts[place])
            parts[place + 1] = NAMES.sub(lambda found, home=home: listed(home, found.group()), parts[place + 1])
            parts[place] = ""
        source[0] = "".join(parts)


def listed(home: Any, line: str) -> str:
    """Return names as a list with a sentence for each class, function and module."""
    rows = []
    for name in re.findall(r"`(\w+)`", line):
        thing = getattr(home, name, None) or import_module(f"{home.__name__}.{name}")
        words = (inspect.getdoc(thing) or "") if callable(thing) or inspect.ismodule(thing) else ""
        first = " ".join(words.partition("\n\n")[0].split())
        rows.append(f"- `{name}`" + (f": {first}" if first else ""))
    return "\n".join(rows)


def public(names: list[str]) -> list[str]:
    """The modules of these names; of a package also those inside it whose names do not begin with an underscore."""
    found: list[str] = []
    for name in names:
        found.append(name)
        inside = getattr(import_module(name), "__path__", ())
        found += public([f"{name}.{one.name}" for one in pkgutil.iter_modules(inside) if one.name[0] != "_"])
    return found


def section(name: str) -> str:
    """A heading, and the module's docstrings under it."""
    # What a package only passes on is described in the module that has it.
    return f"## {name}\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :ignore-module-all:\n```"


def prepare(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: keep what they align or indent as it is, and let no star or bar be markup."""
    del app, what, name, thing, options
    paragraphs = re.split(r"\n(?:[ \t]*\n)+", "\n".join(lines).strip("\n"))
    lines[:] = [*"\n\n".join(map(paragraph, paragraphs)).splitlines(), ""]


def paragraph(text: str) -> str:
    """One paragraph as reStructuredText."""
    rows = text.splitlines()
    if rows and ALIGNED.match(rows[0]) and all(len(re.split(r" {2,}", row.strip())) < 3 for row in rows):
        return table(rows)
    listed = bool(rows) and rows[0][0].isalpha() and len(rows) > 1 and all(row.startswith("  ") for row in rows[1:])
    if listed or any(ALIGNED.match(row) for row in rows) or all(row.startswith("    ") for row in rows):
        shift = "" if text.startswith("    ") else "   "
        return "\n".join([".. code-block:: text", "", *(shift + row for row in rows)])
    if text.startswith(">>>"):
        return text
    return escaped(text)


def table(rows: list[str]) -> str:
    """Names and what is said of each, aligned in a docstring, as a table; a line that goes on begins with spaces."""
    said: list[list[str]] = []
    for row in rows:
        if ALIGNED.match(row):
            said.append(re.split(r" {2,}", row, maxsplit=1))
        elif not row.startswith(" ") and " " in row and said:  # a name as long as its column: one space is between
            said.append(row.split(" ", 1))
        else:
            said[-1][1] += f" {row.strip()}"
    lines = [f"   * - ``{name}``\n     - {escaped(words)}" for name, words in said]
    return "\n".join([".. list-table::", "   :widths: 1 4", "", *lines])


def escaped(text: str) -> str:
    """Plain text with code in backticks."""
    code = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else MARKUP.sub(r"\\\1", part) for part in code)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", list_modules)
    app.connect("source-read", describe_names)
    app.connect("autodoc-process-docstring", prepare)
