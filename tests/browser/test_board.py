"""The site of a leaderboard, used as people use it; the fixture fails a test on any console message or request."""

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.select import Select

from sigmazero.report.site import entry_page, score_page
from sigmazero.report.site.folder import place_site
from sigmazero.report.site.scores import MAIN, EntryCard, Score, boards_of

EVIL = "../<script>alert(1)</script>"
INF = np.inf
# First at k = 24 is not first by the median, and the other way round.
CHANGES: dict[str, list[float]] = {
    EVIL: [1, 1, 1, 99, 99],
    "steady": [20, 20, 20, 20, 20],
    "weak": [0, 0, 1, 1, 2],
    "hard": [5, 9, 30, 40, INF],
}


def score(name: str, changes: list[float], track: str = MAIN) -> Score:
    l0 = np.array(changes, np.float64)
    lower = np.minimum(l0, 4.0) if name == "steady" else np.minimum(l0, 1.0)
    found = np.isfinite(l0) & (l0 > 0)
    finding = {"code": "SZ004", "severity": "error", "detail": EVIL, "about": EVIL, "fix": EVIL}
    slug = f"model-{sorted([*CHANGES, 'quiet']).index(name)}"
    card = EntryCard(
        name, slug, {"title": EVIL}, {"paper": "https://example.org/a"}, [finding] if name == "weak" else []
    )
    by, tool, date = (np.where(found, text, "").tolist() for text in (EVIL, "a tool with a long name", "2026-01-02"))
    return Score(card, track, np.arange(len(l0)), np.zeros(len(l0), np.int64), l0, lower, by, tool, date)


@pytest.fixture
def site(tmp_path):
    scores = [score(name, changes) for name, changes in CHANGES.items()] + [
        score("quiet", [1, 2, 3, 4, 5], "scores-only")
    ]
    boards = boards_of("digits", "mnist", "feature", "ab" * 32, (1, 4, 10, 24, 50), scores)
    pages = {"index.html": score_page.page("A board", boards)}
    pages |= {f"models/{each.card.slug}.html": entry_page.page(each.card, boards) for each in scores}
    place_site(tmp_path / "site", pages)
    return tmp_path / "site"


def order(board):
    """The models on a board, from the top, as far as they are shown."""
    return [each.text for each in board.find_elements(By.CSS_SELECTOR, "tbody .place a") if each.is_displayed()]


def test_rank_sort_and_filter(browser, site):
    browser.get((site / "index.html").as_uri())
    main = browser.find_element(By.ID, "digits")
    assert order(main) == ["hard", EVIL, "steady", "weak"]
    Select(main.find_element(By.CSS_SELECTOR, "select[data-board]")).select_by_visible_text("median l0")
    assert order(main) == ["hard", "steady", EVIL, "weak"]
    next(each for each in main.find_elements(By.CSS_SELECTOR, "thead button") if each.text == "clean").click()
    assert order(main)[0] == "weak"
    main.find_element(By.CSS_SELECTOR, "input[type=search]").send_keys("stea")
    assert order(main) == ["steady"]
    assert "≥ 100.0" in main.find_element(By.CSS_SELECTOR, "tbody tr:not([hidden])").text  # certified at k = 1
    assert "give no gradients" in browser.find_element(By.ID, "digits-scores-only").text


def test_curves_tell_rates_and_bands_on_hover(browser, site):
    browser.get((site / "index.html").as_uri())
    over = browser.find_element(By.CSS_SELECTOR, "#digits .u-over")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", over)
    ActionChains(browser).move_to_element(over).perform()
    tip = browser.find_element(By.CSS_SELECTOR, "#digits .tip").text
    assert "steady" in tip
    assert "100.0 % (56.6–100.0)" in tip
    assert "hard\n80.0 % (37.6–96.4)" in tip
    over.send_keys(Keys.HOME)
    assert "weak\n40.0 % (11.8–76.9)" in browser.find_element(By.CSS_SELECTOR, "#digits .tip").text


def test_pages_lead_to_each_other_and_name_who_found_what(browser, site):
    browser.get((site / "index.html").as_uri())
    browser.find_element(By.LINK_TEXT, "weak").click()
    assert browser.find_element(By.TAG_NAME, "h1").text == "weak"
    assert "SZ004 error" in browser.find_element(By.CSS_SELECTOR, ".finding.error").text
    samples = browser.find_element(By.ID, "digits-samples")
    assert [row.text.count(EVIL) for row in samples.find_elements(By.CSS_SELECTOR, "tbody tr")] == [0, 0, 1, 1, 1]
    assert browser.find_element(By.LINK_TEXT, "paper").get_attribute("href") == "https://example.org/a"
    browser.find_element(By.LINK_TEXT, "← Leaderboard").click()
    assert browser.title == "A board"


@pytest.mark.parametrize(("width", "theme"), [(390, "dark"), (1400, "light"), (1400, "dark")])
def test_nothing_is_cut(browser, site, width, theme):
    """On a wide screen every column of every table is in sight; on a narrow one tables scroll by themselves."""
    media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    for path in sorted(site.rglob("*.html")):
        screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        browser.get(path.as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
        hidden = "return [...document.querySelectorAll('.scroll')].map((box) => box.scrollWidth - box.clientWidth)"
        assert width < 500 or set(browser.execute_script(hidden)) == {0}
    dark = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(20, 22, 26)") == (theme == "dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
