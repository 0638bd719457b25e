"""The page of a table, as people see it: what became of each feature, by name, whatever the names are."""

import contextlib

import pytest
from selenium.webdriver.common.by import By

from sigmazero.report.html.page import make_page, save_page
from sigmazero.store.store import Store
from tests.helpers import loans
from tests.plans import clean, run

EVIL = "<img src=x onerror=alert(1)>"
PLAN = loans.WITH_SPACE


@pytest.fixture(scope="module")
def tabular(tmp_path_factory):
    """A page of a small table with wicked names for a feature, its categories and a class."""
    folder = tmp_path_factory.mktemp("loans")
    names = [EVIL if name == "gain" else name.replace("nurse", f"nurse{EVIL}") for name in loans.NAMES]
    loans.write(folder, names=names, classes=[EVIL, "granted"])
    space = loans.SPACE.replace("feature.gain", f'feature."{EVIL}"').replace("nurse", f"nurse{EVIL}")
    (folder / "loan.toml").write_text(space)
    with contextlib.chdir(folder):
        run(PLAN, folder / "r.db")
        with Store(folder / "r.db") as store:
            save_page(folder / "r.html", make_page(store, clean(store)))
    return folder / "r.html"


@pytest.mark.parametrize("width", [1400, 390])
def test_changes_are_shown_by_name_and_nothing_runs(browser, tabular, width):
    view = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", view)
    try:
        browser.get(tabular.as_uri())
        browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
        card = browser.find_element(By.CSS_SELECTOR, ".card")
        assert card.find_element(By.CSS_SELECTOR, ".changes").text == f"job clerk → nurse{EVIL} cost 1"
        assert f"{EVIL} → granted" in card.text
        assert f"Row 0, class {EVIL}" in browser.find_element(By.CSS_SELECTOR, ".explorer").text
        table = browser.find_element(By.CSS_SELECTOR, "#features-0")
        assert table.find_element(By.CSS_SELECTOR, "tbody th").text == "job"
        bars = [float(bar.get_attribute("width")) for bar in table.find_elements(By.CSS_SELECTOR, "rect")]
        assert bars == sorted(bars, reverse=True)
        assert bars[0] > 50
        assert not browser.find_elements(By.CSS_SELECTOR, "main img")
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
        assert len(browser.find_elements(By.CSS_SELECTOR, "#curves .u-over")) == 2  # over changes, and over cost
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
