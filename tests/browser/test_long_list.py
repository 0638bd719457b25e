"""A list of many samples: few of them are in the page at a time, and all can be reached."""

import numpy as np
import pytest
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By

from sigmazero.report.html.page import make_page, save_page
from sigmazero.store.store import Store
from tests.report.test_layout import cell, fill

ROWS = 3000
MOST = 60  # what is in sight, and some above and below


def no_data(_):
    raise ValueError("there are none here")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    rng = np.random.default_rng(0)
    path = fill(folder / "a.db", [cell("M", name, rng.geometric(0.1, ROWS).tolist()) for name in ("fmn", "bb")])
    with Store(path) as store:
        save_page(folder / "a.html", make_page(store, no_data, limit=ROWS))
    return folder / "a.html"


def shown(browser) -> list[str]:
    rows = browser.execute_script("return [...document.querySelectorAll('.rows .row')].map((row) => row.textContent)")
    assert 0 < len(rows) <= MOST
    return [str(row) for row in rows]


def test_few_rows_are_in_the_page_and_all_can_be_reached(browser, large):
    browser.get(large.as_uri())
    box = browser.find_element(By.CSS_SELECTOR, ".rows")
    assert box.get_attribute("role") == "listbox"
    assert shown(browser)[0].startswith("row 0, ")
    box.send_keys(Keys.END)
    assert shown(browser)[-1].startswith(f"row {ROWS - 1}, ")
    assert browser.find_element(By.CSS_SELECTOR, ".sample h4").text.startswith(f"Row {ROWS - 1}, ")
    active = browser.execute_script(
        "return document.getElementById(arguments[0].getAttribute('aria-activedescendant'))", box
    )
    assert active.get_attribute("aria-posinset") == active.get_attribute("aria-setsize") == str(ROWS)
    browser.execute_script("arguments[0].scrollTop = 28 * 1500", box)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    assert any(text.startswith("row 1500, ") for text in shown(browser))
    search = browser.find_element(By.CSS_SELECTOR, ".picker input")
    search.send_keys("row 299")
    found = shown(browser)
    assert len(found) == 11  # 299 and 2990 to 2999
    search.send_keys("x")
    assert browser.find_elements(By.CSS_SELECTOR, ".rows .row") == []
    assert "No row matches." in browser.find_element(By.CSS_SELECTOR, ".picker").text
