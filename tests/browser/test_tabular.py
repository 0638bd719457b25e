"""The page of a table, as people see it: what became of each feature, by name, whatever the names are."""

import contextlib

import pytest
from selenium.webdriver.common.by import By

from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.render import save_page
from sigmazero.store.store import Store
from tests.helpers import loans
from tests.plans import clean, run

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def tabular(tmp_path_factory):
    """A page of a small table with wicked names for a feature, its categories and a class."""
    folder = tmp_path_factory.mktemp("loans")
    names = [EVIL if name == "gain" else name.replace("nurse", f"nurse{EVIL}") for name in loans.NAMES]
    loans.write(folder, names=names, classes=[EVIL, "granted"])
    space = loans.SPACE.replace("feature.gain", f'feature."{EVIL}"').replace("nurse", f"nurse{EVIL}")
    (folder / "loan.toml").write_text(space)
    with contextlib.chdir(folder):
        run(loans.WITH_SPACE, folder / "r.db")
        with Store(folder / "r.db") as store:
            save_page(folder / "r.html", make_page(store, clean(store)))
    return folder / "r.html"


@pytest.mark.parametrize("width", [1400, 390])
def test_changes_are_shown_by_name_and_nothing_runs(browser, tabular, width):
    view = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", view)
    try:
        browser.get(f"{tabular.as_uri()}#sample-0-0")
        for holder in (".answer .words", "#samples .words", ".detail article"):
            fields = [each.text for each in browser.find_elements(By.CSS_SELECTOR, f"{holder} .fields tr")]
            assert f"job clerk → nurse{EVIL} cost 1" in fields, holder
        assert f"{EVIL} → granted" in browser.find_element(By.CSS_SELECTOR, ".detail").text
        table = browser.find_element(By.CSS_SELECTOR, "#features-0")
        assert table.find_element(By.CSS_SELECTOR, "tbody th").text == "job"
        assert not browser.find_elements(By.CSS_SELECTOR, "main img")
        assert browser.execute_script("return document.documentElement.scrollWidth") == width
        assert len(browser.find_elements(By.CSS_SELECTOR, ".plot")) == 2  # over changes, and over cost
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
