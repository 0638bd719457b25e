"""The leaderboard, used as people use it; the fixture fails a test on any console message or network request."""

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from sigmazero.report.site import folder
from sigmazero.report.site.ranking import boards
from tests.helpers.cells import cell

EVIL = "../<script>alert(1)</script>"
CELLS = [
    cell(model, attack, l0)
    for attack in ("fmn", "bb")
    # First at k = 24 is not first by the median, and the other way round.
    for model, l0 in ((EVIL, [1, 1, 1, 99, 99]), ("steady", [20, 20, 20, 20, 20]), ("weak", [0, 0, 1, 1, 2]))
]


@pytest.fixture
def site(tmp_path):
    folder.write_site(tmp_path / "site", CELLS, lambda info: {"architecture": EVIL})
    return tmp_path / "site"


def shown(page: Chrome) -> list[tuple[str, str]]:
    """Rank and name of each row, from the top."""
    places = page.find_elements(By.CSS_SELECTOR, "tbody .place")
    return [tuple(each.text for each in place.find_elements(By.XPATH, "./*")) for place in places]  # type: ignore[misc]


def ranked(criterion: float | None) -> list[tuple[str, str]]:
    return [(str(rank), standing.model.name) for rank, standing in boards(CELLS)[0].ranked(criterion)]


def test_the_order_follows_the_choice(browser, site):
    browser.get((site / "index.html").as_uri())
    assert shown(browser) == ranked(24.0)
    choice = Select(browser.find_element(By.CSS_SELECTOR, "select[data-board]"))
    choice.select_by_visible_text("median l0")
    assert shown(browser) == ranked(None) != ranked(24.0)
    choice.select_by_visible_text("robust accuracy at k = 10")
    assert shown(browser) == ranked(10.0)
    browser.find_element(By.CSS_SELECTOR, "thead th button").click()
    assert [rank for rank, _ in shown(browser)] == ["1", "2", "3"]


def test_pages_lead_to_each_other_and_draw(browser, site):
    browser.get((site / "index.html").as_uri())
    browser.find_element(By.LINK_TEXT, EVIL).click()
    assert browser.find_element(By.TAG_NAME, "h1").text == EVIL
    assert browser.find_elements(By.CSS_SELECTOR, ".u-over")
    browser.find_element(By.LINK_TEXT, "← Leaderboard").click()
    assert browser.title == folder.TITLE


@pytest.mark.parametrize("width", [390, 1280, 1400])
def test_nothing_is_wider_than_the_screen(browser, site, width):
    """At 1400 pixels the last column of every table is in sight, too."""
    for path in sorted(site.rglob("*.html")):
        screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.get(path.as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
        hidden = "return [...document.querySelectorAll('.scroll')].map((box) => box.scrollWidth - box.clientWidth)"
        assert width < 1400 or not any(browser.execute_script(hidden))
