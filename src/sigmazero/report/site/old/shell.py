"""The shell of every page: one HTML file with its style, scripts and data inside, and nothing fetched.

Text becomes HTML in `element` alone, which escapes whatever is not `Html` already. Tables are made in `tables`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from importlib.resources import files

VOID = ("br", "hr", "img", "input", "link", "meta")
# What would end a script element, begin a comment in one, or end a line in old readers of JSON.
UNSAFE = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E%3Crect width='8' height='8' "
    "rx='1.6' fill='%23D55E00'/%3E%3Cpath d='M2 2h1v1H2zM5 3h1v1H5zM3 5h1v1H3z' fill='%23fff'/%3E%3C/svg%3E"
)


class Html(str):
    """Text that is HTML already; every other text is escaped where it enters an element."""

    __slots__ = ()


def escape(text: object) -> Html:
    """Any text as HTML that shows it.

    >>> escape("<script>")
    '&lt;script&gt;'
    """
    return text if isinstance(text, Html) else Html(html.escape(str(text)))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """An element; children and attributes are escaped, unless they are `Html`.

    A trailing underscore of an attribute is dropped (`class_`), others become hyphens (`aria_label`); True is an
    attribute without a value, None and False are none.

    >>> element("p", "1 < 2", element("br"), class_="note", hidden=True)
    '<p class="note" hidden>1 &lt; 2<br></p>'
    """
    given = {key.removesuffix("_").replace("_", "-"): value for key, value in attributes.items()}
    shown = [
        f" {key}" if value is True else f' {key}="{escape(value)}"'
        for key, value in given.items()
        if value is not None and value is not False
    ]
    start = f"<{name}{''.join(shown)}>"
    return Html(start if name in VOID else f"{start}{join(children)}</{name}>")


def join(parts: Sequence[object]) -> Html:
    """Parts one after the other; what is not HTML is escaped.

    >>> join(["a & b", element("b", "c")])
    'a &amp; b<b>c</b>'
    """
    return Html("".join(escape(part) for part in parts))


def asset(name: str) -> str:
    """The text of a file that belongs to the pages, such as `assets/page.css`."""
    return files("sigmazero.report.site.old").joinpath(name).read_text(encoding="utf-8")


def embedded(name: str, value: object) -> Html:
    """Data for scripts, as a block that cannot end early; scripts find it as `data-NAME`."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(UNSAFE)
    return element("script", Html(text), type="application/json", id=f"data-{name}")


def document(
    title: str,
    body: str,
    *,
    data: Mapping[str, object] | None = None,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    nav: str = "",
    own: Sequence[str] = (),
) -> str:
    """A whole page around a body made of elements.

    data     values for the scripts: `JSON.parse(document.getElementById("data-NAME").textContent)`
    scripts  after those of the shell, which switch the theme and make tables sortable
    styles   after those of the shell
    nav      links at the top, between the name and the theme's button
    own      what the page may do with the server that it came from, such as `connect-src`; a page from disk has none
    """
    style = "\n".join([asset("assets/page.css"), *styles])
    code = [asset("assets/shell.js"), asset("assets/tables.js"), *scripts]
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy([style], code, own)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"sigmazero {version('sigmazero')}"),
        element("link", rel="icon", href=ICON),
        element("title", title),
        element("style", Html(style)),
    ]
    button = element("button", "Dark theme", type="button", id="theme", aria_pressed="false", hidden=True)
    bar = element("header", element("a", "sigmazero", href="#top", class_="brand"), Html(nav), button, class_="bar")
    content = [
        element("a", "Skip to the content", href="#content", class_="skip"),
        bar,
        element("main", Html(body), id="content", tabindex="-1"),
        element("p", role="status", id="status", class_="status"),
        *(embedded(name, value) for name, value in (data or {}).items()),
        *(element("script", Html(text)) for text in code),
    ]
    page = element("html", element("head", *head), element("body", *content, id="top"), lang="en")
    return f"<!doctype html>\n{page}\n"


def policy(styles: Sequence[str], scripts: Sequence[str], own: Sequence[str] = ()) -> str:
    """What the page may do: show its own pictures, run its own scripts by their hashes, and load nothing else."""
    style, script = (" ".join(map(_source, texts)) for texts in (styles, scripts))
    rules = ["default-src 'none'", "img-src data:", f"style-src {style}", f"script-src {script}"]
    rules += [f"{name} 'self'" for name in own]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
