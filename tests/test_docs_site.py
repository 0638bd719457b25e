"""The documentation builds without a warning, and every link in what it builds leads somewhere."""

import os
import subprocess
import sys
from pathlib import Path

from tests.links import Page, broken

ROOT = Path(__file__).parents[1]


PUBLIC = {
    "sigmazero.core.attack.Attack.run",
    "sigmazero.attacks.sigma_zero.SigmaZero",
    "sigmazero.attacks.functions.sigma_zero",
    "sigmazero.bench.evaluate.evaluate",
    "sigmazero.models.load.load",
    "sigmazero.data.load.load",
    "sigmazero.bench.plan.read_plan",
    "sigmazero.store.store.Store.facts",
    "sigmazero.report.tables.layout.build",
    "sigmazero.core.result.Result.asr",
}


def test_the_site(tmp_path):
    """One test, since workers would build it once each."""
    site = build(tmp_path)
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


def build(folder: Path) -> Path:
    """The site, built as `make docs` builds it."""
    strict = ["--fail-on-warning", "--keep-going", "--nitpicky", "--quiet", "--doctree-dir", str(folder / "trees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--builder", "html", *strict, str(ROOT / "docs"), str(folder / "html")],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_the_checker_finds_what_is_broken(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.html").write_text('<p id="here">')
    links = ["in/b.html#here", "#top", "https://example.org", "in/b.html#gone", "none.html", "../x.html"]
    links += ["javascript:alert(1)", "#gone"]
    page = "".join(f'<a href="{link}">x</a>' for link in links)
    (tmp_path / "a.html").write_text(f'<body id="top">{page}<script src="https://example.org/x.js"></script>')
    found = [line.split(": ")[1] for line in broken(tmp_path)]
    assert found == [f"<a> {link}" for link in links[3:]] + ["<script> https://example.org/x.js"]
