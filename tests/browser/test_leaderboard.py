"""The leaderboard, used as people use it; the fixture fails a test on any console message or network request."""

import contextlib
import re
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from sigmazero.report.pages.leaderboard import Board, Card, Source, boards, write_site
from sigmazero.store import Store
from tests.browser.conftest import EVIL, Made
from tests.plans import clean

KS = (1.0, 2.0, 5.0)


@pytest.fixture(scope="module")
def site(made: Made, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Board]:
    """A site of two models with pictures; one of them has a wicked name and a finding with a wicked text."""
    folder = tmp_path_factory.mktemp("site")
    with Store(made.store, write=True) as store:
        info = next(info for info in store.cells() if info.model == EVIL)
        store.diagnose(info.key, [{"code": "SZ005", "detail": EVIL, "fix": EVIL, "severity": "error"}])
    with contextlib.chdir(made.store.parent), Store(made.store) as store:
        card = Card({"title": EVIL}, {"paper": "https://example.org/a", "bad": "javascript:alert(1)"})
        (board,) = boards([Source(store, lambda _: card, clean(store))], lambda _: KS)
        write_site(folder / "site", EVIL, EVIL, [board])
        assert [entry.changes.shape for entry in board.entries]  # read while the store is open
    return folder / "site", board


def order(page: Chrome) -> list[str]:
    """Return the models of the table, from the top, as far as they are shown."""
    links = page.find_elements(By.CSS_SELECTOR, "figure.table tbody th a")
    return [each.text for each in links if each.is_displayed()]


def open_page(page: Chrome, path: Path) -> None:
    page.get(path.as_uri())
    page.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def test_the_table_is_ranked_and_sorts(browser, site):
    folder, board = site
    open_page(browser, folder / "index.html")
    ranked = [entry.name for _, entry in board.ranked]
    assert order(browser) == ranked
    assert EVIL in ranked
    assert "SZ005" in browser.find_element(By.CSS_SELECTOR, "figure.table tbody").text
    heads = browser.find_elements(By.CSS_SELECTOR, "thead button")
    next(head for head in heads if head.text == "median").click()
    assert order(browser) == [entry.name for entry in sorted(board.entries, key=lambda entry: entry.median)]
    next(head for head in heads if head.text == "model").click()
    assert order(browser) == ranked


def test_a_picture_leads_to_its_sample_on_the_page_of_the_model(browser, site):
    folder, board = site
    open_page(browser, folder / "index.html")
    pictures = browser.find_elements(By.CSS_SELECTOR, ".strip a")
    assert len(pictures) == len(board.entries) * len(board.pictured)
    for canvas in browser.find_elements(By.CSS_SELECTOR, ".strip canvas"):
        assert browser.execute_script("return arguments[0].width", canvas) > 100  # it is drawn
    where = pictures[-1].get_attribute("href") or ""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", pictures[-1])
    changes = re.findall(r"([\d.]+) changed", pictures[-1].text)
    pictures[-1].click()
    name, row = board.ranked[-1][1].name, int(where.rpartition("-")[2])
    assert browser.find_element(By.TAG_NAME, "h1").text == name
    detail = browser.find_element(By.CSS_SELECTOR, ".detail")
    assert detail.text.startswith(f"Row {row},")
    entry = board.ranked[-1][1]
    at = entry.best.places(np.array([row]))[0]
    assert changes == ([f"{entry.changes[at]:.0f}"] if np.isfinite(entry.changes[at]) and entry.changes[at] else [])
    if finder := entry.finders[at]:
        assert f"At most {entry.changes[at]:.0f} feature" in detail.text
        assert f"by {finder.name}" in detail.text


def test_the_page_of_a_model_shows_its_findings_and_safe_links(browser, site):
    open_page(browser, site[0] / "index.html")
    browser.find_element(By.LINK_TEXT, EVIL).click()
    assert browser.find_element(By.TAG_NAME, "h1").text == EVIL
    assert "SZ005 error" in browser.find_element(By.CSS_SELECTOR, ".finding.error").text
    links = {each.text: each.get_attribute("href") for each in browser.find_elements(By.CSS_SELECTOR, "#about a")}
    assert links == {"paper": "https://example.org/a"}
    browser.find_element(By.LINK_TEXT, "← Leaderboard").click()
    assert browser.title == f"{EVIL} – sigmazero"


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1400, "light"), (1400, "dark")])
def test_nothing_is_cut(browser, site, width, theme):
    """On a wide screen every column of every table is in sight; on a narrow one tables scroll by themselves."""
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    for path in sorted(site[0].rglob("*.html")):
        open_page(browser, path)
        browser.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
        hidden = "return [...document.querySelectorAll('.scroll')].map((box) => box.scrollWidth - box.clientWidth)"
        assert width < 500 or set(browser.execute_script(hidden)) == {0}
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(20, 22, 26)") == (theme == "dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
