"""A real Chromium that sees no network, and a page from a small store to look at with it."""

import contextlib
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.render import save_page
from sigmazero.store.store import Store
from tests.plans import NET, clean, run

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
    *("--hide-scrollbars", "--force-device-scale-factor=1", "--force-prefers-reduced-motion"),
)
WIDTH, HEIGHT = 1280, 900
WHERE = "install Debian's chromium and chromium-driver to run the browser tests"


def start(profile: Path) -> webdriver.Chrome:
    """A browser with an empty profile; it is told where its driver is, so nothing is looked for or downloaded."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip(f"no {'chromium' if chromium is None else 'chromedriver'} was found; {WHERE}")
    options = Options()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(executable_path=driver))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """The one browser of all tests: to start it takes longer than most of them."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SE_OFFLINE", "true")
        environment.setenv("SE_AVOID_STATS", "true")
        environment.setenv("no_proxy", "localhost,127.0.0.1")  # the driver is here, whatever the way to the network
        driver = start(tmp_path_factory.mktemp("profile"))
    driver.set_script_timeout(300)
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    """A browser that has seen nothing yet; when the test ends, it must have nothing to complain of."""
    with new_tab(chromium):
        yield chromium


@contextlib.contextmanager
def new_tab(driver: webdriver.Chrome, *served: str) -> Iterator[None]:
    """A tab on an empty page, nothing stored and nothing permitted.

    At its end the console must be clean and nothing must have been asked for but the page, and what is `served`.
    """
    first = driver.current_window_handle
    driver.switch_to.new_window("tab")
    driver.execute_cdp_cmd("Storage.clearDataForOrigin", {"origin": "file://", "storageTypes": "all"})
    driver.execute_cdp_cmd("Browser.resetPermissions", {})
    said(driver), requests(driver)  # by the browser's own pages
    try:
        yield
        complaints, asked = said(driver), requests(driver)
    finally:
        driver.close()
        driver.switch_to.window(first)
    assert complaints == []
    assert [url for url in asked if not url.startswith(("file:///", "data:", *served))] == []


def said(driver: webdriver.Chrome) -> list[str]:
    """Every complaint in the console since the last call."""
    return [str(entry["message"]) for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def requests(driver: webdriver.Chrome) -> list[str]:
    """Every address the page asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


EVIL = "<script>alert(1)</script>"
STEPS, ROWS = 12, 6
PLAN = """
steps = {steps}
batch_size = 8

[data.mine]
source = "mine.npz"

[models."{name}"]
spec = "net.py:other"

[[grid]]
models = ["net.py:build", "{name}"]
data = ["mine"]
attacks = ["sigma-zero", "fmn", "vfga"]
"""


@dataclass(frozen=True)
class Made:
    """A page, and the store and rows it is about."""

    html: Path
    store: Path
    images: torch.Tensor


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A page of three attacks on six small colour images; one of its models has a wicked name."""
    folder = tmp_path_factory.mktemp("page")
    (folder / "net.py").write_text(NET)
    images = torch.rand(ROWS, 3, 4, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.randint(4, (ROWS,), generator=torch.Generator().manual_seed(2))
    np.savez(folder / "mine.npz", images=images.numpy(), labels=labels.numpy())
    plan = PLAN.format(name=EVIL, steps=STEPS)
    with contextlib.chdir(folder):
        run(plan, folder / "run.db")
        with Store(folder / "run.db") as store:
            save_page(folder / "report.html", make_page(store, clean(store)))
    return Made(folder / "report.html", folder / "run.db", images)


@pytest.fixture
def page(browser: webdriver.Chrome, made: Made) -> webdriver.Chrome:
    """The browser with the page open, as from disk, and drawn."""
    browser.get(made.html.as_uri())
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    return browser
