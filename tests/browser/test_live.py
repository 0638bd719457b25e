"""`sigmazero view` in the browser: facts arrive, and the page follows."""

import contextlib
import threading

import numpy as np
import torch
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.serve import LiveServer
from sigmazero.store import Store
from tests.browser.conftest import EVIL, PLAN, new_tab, said
from tests.plans import NET, clean, run

ONE = PLAN.format(name=EVIL, steps=3).replace('"sigma-zero", "fmn", "vfga"', '"sigma-zero"')


def inside(page, selector):
    """What the report in the frame shows there."""
    page.switch_to.frame("report")
    try:
        return [each.text for each in page.find_elements(By.CSS_SELECTOR, selector)]
    finally:
        page.switch_to.default_content()


def test_the_page_follows_the_facts_and_says_when_nobody_answers(chromium, tmp_path):
    (tmp_path / "net.py").write_text(NET)
    images = torch.rand(6, 3, 4, 5, generator=torch.Generator().manual_seed(1)).numpy()
    np.savez(tmp_path / "mine.npz", images=images, labels=np.arange(6) % 4)
    with contextlib.chdir(tmp_path):
        run(ONE, tmp_path / "run.db")
        server = LiveServer(tmp_path / "run.db", lambda store: make_page(store, clean(store)), seconds=0.1)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)  # a failure must not wait
        thread.start()
        with new_tab(chromium, server.url):
            page, wait = chromium, WebDriverWait(chromium, 60)
            page.get(server.url)
            wait.until(lambda _: "all 12 rows are done" in page.find_element(By.ID, "progress").text)
            assert EVIL in page.find_element(By.ID, "progress").text
            wait.until(lambda _: len(inside(page, "#minimum-norm tbody tr")) == 2)
            assert inside(page, "h1") == [""]  # the name is around the frame
            run(ONE.replace('"sigma-zero"', '"sigma-zero", "vfga"'), tmp_path / "run.db")
            wait.until(lambda _: "all 24 rows are done" in page.find_element(By.ID, "progress").text)
            wait.until(lambda _: len(inside(page, "#minimum-norm tbody tr")) == 4)
            with Store(tmp_path / "run.db", write=True) as store:
                store.diagnose(store.cell_keys()[0], [{"code": "SZ005", "detail": "at chance", "severity": "error"}])
            wait.until(lambda _: any("at chance" in text for text in inside(page, ".finding.error")))
            assert not page.find_element(By.ID, "trouble").is_displayed()
            assert said(page) == []
            server.shutdown()
            thread.join()
            server.server_close()
            wait.until(lambda _: "No answer" in page.find_element(By.ID, "trouble").text)
            page.get("about:blank")  # or it would ask on
            said(page)  # the browser itself complains of the silence
