"""The documentation builds without a warning, and every link in what it builds leads somewhere."""

import sys
from pathlib import Path

import pytest
import sphinx.cmd.build

from tests.helpers.links import Page, broken

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


PUBLIC = {
    "sigmazero.core.attack.Attack.run",
    "sigmazero.attacks.sigma_zero.SigmaZero",
    "sigmazero.attacks.functions.sigma_zero",
    "sigmazero.bench.evaluate.evaluate",
    "sigmazero.models.load.load",
    "sigmazero.data.load.load",
    "sigmazero.bench.plan_file.read_plan",
    "sigmazero.store.store.Store.facts",
    "sigmazero.report.table.build",
    "sigmazero.core.result.Result.asr",
}


def test_the_site(tmp_path, children):
    """One test, since workers would build it once each."""
    site, warnings = tmp_path / "html", tmp_path / "warnings"
    builder, _ = children.start(build, site, warnings)
    builder.join()
    assert builder.exitcode == 0, warnings.read_text(encoding="utf-8")
    assert not list(broken(site))
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert "url(http" not in text, style
        assert "@import" not in text, style
    linked = {target.split("#")[0] for _, target in Page(site / "index.html").links}
    for source in (ROOT / "docs").rglob("*.md"):
        page = source.relative_to(ROOT / "docs").with_suffix(".html")
        assert page.as_posix() in linked or page == Path("index.html"), f"{page} is in no table of contents"
    places = set().union(*(Page(path).places for path in (site / "api").glob("*.html")))
    assert places >= PUBLIC


def build(site, warnings, _pipe):
    """The site, built as `make docs` builds it, but for the list of a page's classes and functions at its side.

    These are links that Sphinx makes, to the places to which each class and function links itself as well; to copy them
    for every page takes as long as half of the rest.
    """
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--warning-file", str(warnings)]
    strict += ["--define", "toc_object_entries=0"]
    trees = ["--doctree-dir", str(site.with_name("trees"))]
    sys.exit(sphinx.cmd.build.main(["--builder", "html", *strict, *trees, str(ROOT / "docs"), str(site)]))


def test_the_checker_finds_what_is_broken(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.html").write_text('<p id="here">')
    links = ["in/b.html#here", "#top", "https://example.org", "in/b.html#gone", "none.html", "../x.html"]
    links += ["javascript:alert(1)", "#gone"]
    page = "".join(f'<a href="{link}">x</a>' for link in links)
    (tmp_path / "a.html").write_text(f'<body id="top">{page}<script src="https://example.org/x.js"></script>')
    found = [line.split(": ")[1] for line in broken(tmp_path)]
    assert found == [f"<a> {link}" for link in links[3:]] + ["<script> https://example.org/x.js"]
