"""A traced search played on the page."""

import contextlib

import numpy as np
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from sigmazero.report.html.page import make_page, save_page
from sigmazero.store.store import Store
from tests.browser.test_page import CANVAS, PIXELS
from tests.plans import NET, clean, run
from tests.report.test_path import TRACED


def test_a_search_is_played_from_the_clean_input_to_what_was_found(browser, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    rng = np.random.default_rng(1)
    images = rng.random((6, 3, 4, 5), np.float32)
    np.savez(tmp_path / "mine.npz", images=images, labels=rng.integers(0, 4, 6))
    with contextlib.chdir(tmp_path):
        run(TRACED, tmp_path / "a.db")
        with Store(tmp_path / "a.db") as store:
            save_page(tmp_path / "a.html", make_page(store, clean(store)))
            facts = store.facts(store.cell_keys()[0])
    place = int(np.flatnonzero((facts.outcome == 1) & (facts.l0 > 0))[0])
    browser.get(f"{(tmp_path / 'a.html').as_uri()}#sample-0-{facts.row[place]}")
    player, canvas = (browser.find_element(By.CSS_SELECTOR, f".card {each}") for each in (".player", "canvas"))
    found = browser.execute_script(CANVAS, canvas)
    player.find_element(By.TAG_NAME, "input").send_keys(Keys.HOME)
    drawn = np.array(browser.execute_script(PIXELS, canvas)).reshape(4, 5, 4)[..., :3]
    assert (drawn == np.round(255 * images[place].transpose(1, 2, 0))).all()
    assert player.find_element(By.TAG_NAME, "output").text.startswith("query 0: l0 0, ")
    player.find_element(By.TAG_NAME, "button").click()
    WebDriverWait(browser, 60).until(lambda _: "Play" in player.find_element(By.TAG_NAME, "button").text)
    assert browser.execute_script(CANVAS, canvas) == found
    assert f"l0 {facts.l0[place]:.0f}, {facts.prediction[place]}" in player.find_element(By.TAG_NAME, "output").text
