"""Reads the pages of a folder and says which of their links lead nowhere, and what they would fetch from elsewhere."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LINKS = {"a": "href", "area": "href", "link": "href", "img": "src", "script": "src", "iframe": "src", "source": "src"}


@dataclass
class Page(HTMLParser):
    """The links of a page, with the element each is in, and the places that links may lead to."""

    path: Path
    links: list[tuple[str, str]] = field(default_factory=list)
    places: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.places |= {value for name in ("id", "name") if (value := given.get(name))}
        target = given.get(LINKS.get(tag, ""))
        if target is not None:
            self.links.append((tag, target))


def broken(folder: Path) -> Iterator[str]:
    """What is wrong with the links of the pages in a folder, one line each."""
    pages = {path.resolve(): Page(path) for path in sorted(folder.rglob("*.html"))}
    for path, page in pages.items():
        for tag, target in page.links:
            wrong = _problem(folder.resolve(), path, tag, target, pages)
            if wrong:
                yield f"{path.relative_to(folder.resolve())}: <{tag}> {target}: {wrong}"


def _problem(folder: Path, path: Path, tag: str, target: str, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        if tag == "a":
            return None if parts.scheme in ("https", "mailto") else "leaves the site by something other than https"
        return None if parts.scheme == "data" else "is fetched from elsewhere"
    found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not found.is_relative_to(folder):
        return "leaves the folder"
    if not found.is_file():
        return "no such file"
    if parts.fragment and found in pages and unquote(parts.fragment) not in pages[found].places:
        return "no such place on the page"
    return None
