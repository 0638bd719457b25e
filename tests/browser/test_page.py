"""The page of a store, used as people use it; the fixture fails a test on any console message or network request."""

import re
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from sigmazero.report import latex, table
from sigmazero.report.formats import to_csv
from sigmazero.report.pages.page import make_page
from sigmazero.report.pages.render import save_page
from sigmazero.report.runs import Group, groups, load
from sigmazero.store import Store
from tests.browser.conftest import EVIL, Made, requests, said
from tests.helpers.cells import cell, fill

PIXELS = """const c = arguments[0];
return [c.width, c.height, ...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"""


def find(page: Chrome, selector: str) -> WebElement:
    return page.find_element(By.CSS_SELECTOR, selector)


def find_all(page: Chrome | WebElement, selector: str) -> list[WebElement]:
    return page.find_elements(By.CSS_SELECTOR, selector)


def attribute(node: WebElement, name: str) -> str:
    return node.get_attribute(name) or ""


def press(page: Chrome, words: str, within: str = "main") -> WebElement:
    """Click the button that says so."""
    button = next(b for b in find_all(find(page, within), "button") if b.text.strip() == words)
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()
    return button


def wait_for_status(page: Chrome, words: str) -> None:
    WebDriverWait(page, 60).until(lambda _: words in attribute(find(page, "#status"), "textContent"))


def column(page: Chrome, heading: str, within: str = "#minimum-norm") -> list[str]:
    """Return what the visible rows of a table show under a heading, without small print."""
    heads = [th.text.strip() for th in find_all(page, f"{within} thead th")]
    rows = [row for row in find_all(page, f"{within} tbody tr") if row.is_displayed()]
    return [find_all(row, "th, td")[heads.index(heading)].text.split("\n")[0] for row in rows]


def made_groups(made: Made) -> list[Group]:
    with Store(made.store) as store:
        return groups(load(store))


def detail(page: Chrome, row: int) -> WebElement:
    """Return the opened sample, once it is open."""
    WebDriverWait(page, 60).until(lambda _: find(page, ".detail").text.startswith(f"Row {row},"))
    return find(page, ".detail")


def hover(page: Chrome, share: float) -> str:
    """Point at a place of the first chart, from 0 at the left to 1 at the right; return the tooltip."""
    plot = find(page, ".plot")
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plot)
    ActionChains(page, duration=0).move_to_element_with_offset(
        plot, int((share - 0.5) * plot.size["width"]), 0
    ).perform()
    return find(page, ".tip").text


def test_tables_sort_both_ways(page):
    assert EVIL in find(page, "#minimum-norm").text
    before = column(page, "median")
    head = next(th for th in find_all(page, "#minimum-norm th") if th.text.strip() == "median")
    for state, wanted in (("ascending", sorted(before, key=float)), ("descending", sorted(before, key=float)[::-1])):
        head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        assert attribute(head, "aria-sort") == state
        assert column(page, "median") == wanted
    assert len(set(before)) > 1
    assert "Sorted by median" in attribute(find(page, "#status"), "textContent")


@pytest.mark.parametrize("clipboard", [True, False])
def test_copies_are_those_of_the_command_line(page, made, clipboard):
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    if not clipboard:
        page.execute_script("navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed'))")
    built = table.minimum_norm(made_groups(made))
    for words, text in (("LaTeX", latex.to_latex(built)), ("CSV", to_csv(built))):
        find(page, "#minimum-norm .menu summary").click()
        press(page, words, "#minimum-norm .menu")
        wait_for_status(page, f"Copied {words}")
        assert page.execute_async_script("navigator.clipboard.readText().then(arguments[0])") == text


def test_the_tooltip_reads_the_step_that_is_pointed_at(page, made):
    group, data = (
        made_groups(made)[0],
        "return JSON.parse(document.getElementById('data-charts').textContent)['curve-0']",
    )
    end = page.execute_script(data)["end"]
    for share in (0.18, 0.4, 0.77):
        text = hover(page, share)
        k = int(re.findall(r"k = (\d+)", text)[0])
        assert k <= share * end + 0.1 < k + 1.2
        for run in group.free:
            assert f"{run.name} {100 * float((run.changes <= k).mean()):.1f} %" in text
    assert "best of all" in text
    ActionChains(page, duration=0).move_to_element(find(page, "h1")).perform()
    assert not find(page, ".tip").is_displayed()


def test_the_legend_hides_curves(page):
    box = find(page, '.legend input[data-label="fmn"]')
    line = find(page, '.plot g[data-label="fmn"]')
    assert line.is_displayed()
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
    box.send_keys(Keys.SPACE)
    assert not line.is_displayed()
    assert "fmn" not in hover(page, 0.4)
    box.send_keys(Keys.SPACE)
    assert "fmn" in hover(page, 0.4)


def pixels(page: Chrome, canvas: WebElement, shape: tuple[int, int]) -> Any:
    """Return the middle of each square of a canvas that shows pixels enlarged."""
    width, height, *values = page.execute_script(PIXELS, canvas)
    (down, across), image = shape, np.array(values).reshape(height, width, 4)
    zoom = width // across
    return image[zoom // 2 :: zoom, zoom // 2 :: zoom][:down, :across, :3]


def test_samples_open_and_show_what_was_stored(page, made):
    first = find(page, ".gallery a")
    row = int(attribute(first, "href").rsplit("-", 1)[1])
    first.send_keys(Keys.ENTER)
    opened, group = detail(page, row), made_groups(made)[0]
    assert page.switch_to.active_element == opened
    with Store(made.store) as store:
        facts = {run.name: store.facts(run.info.key).take(run.places(np.array([row]))) for run in group.runs}
    articles = {each.text.split("\n")[0]: each for each in find_all(opened, "article")}
    assert set(articles) == {"clean", *facts}
    for name, known in facts.items():
        text = articles[name].text
        assert f"{known.clean_prediction[0]} → {known.prediction[0]}" in text
        assert f"{known.forwards[0] + known.backwards[0]} queries" in text
        assert np.isinf(known.l0[0]) or f"{known.l0[0]:.0f} feature" in text
        image, changes = find_all(articles[name], "canvas")
        wanted = (known.rebuild(made.images[row : row + 1])[0].permute(1, 2, 0) * 255).round().numpy()
        assert (pixels(page, image, (4, 5)) == wanted).all()
        assert f"{len(known.index)} of 60 values changed" in attribute(changes, "aria-label")


def test_samples_are_stepped_through_with_the_keyboard(page):
    rows = [int(attribute(each, "href").rsplit("-", 1)[1]) for each in find_all(page, ".gallery a")]
    find(page, ".gallery a").send_keys(Keys.ENTER)
    detail(page, rows[0]).send_keys(Keys.ARROW_RIGHT)
    detail(page, rows[1]).send_keys(Keys.ARROW_LEFT)
    detail(page, rows[0]).send_keys(Keys.ESCAPE)
    assert not find(page, ".detail").is_displayed()
    assert page.current_url.endswith("#samples")


def test_samples_are_ordered_and_found(page, made):
    def shown() -> list[int]:
        return [int(attribute(each, "href").rsplit("-", 1)[1]) for each in find_all(page, ".gallery a")]

    best = made_groups(made)[0].best
    changes = dict(zip(best.rows.tolist(), best.changes.tolist(), strict=True))
    easy = sorted((row for row in changes if changes[row] > 0), key=lambda row: (changes[row], row))
    wrong = [row for row in changes if changes[row] == 0]
    assert shown() == [*easy, *wrong]
    order = Select(next(s for s in find_all(page, ".tools select") if "fewest" in s.text))
    order.select_by_visible_text("most changes first")
    assert sorted(shown(), key=lambda row: -changes[row])[0] == shown()[0]
    order.select_by_visible_text("by row")
    assert shown() == sorted(changes)
    query = find(page, ".tools input[type=search]")
    query.send_keys("row 4")
    assert shown() == [4]
    query.send_keys("99")
    assert "No row matches." in find(page, "#samples").text


def test_an_address_opens_its_sample(page, made):
    page.get("about:blank")
    page.get(f"{made.html.as_uri()}#sample-1-3")
    detail(page, 3)
    assert Select(find(page, ".tools select")).first_selected_option.text.startswith(EVIL)
    page.execute_script("location.hash = '#sample-0-4'")
    detail(page, 4)
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    press(page, "Copy link", ".detail")
    wait_for_status(page, "Copied the link")
    assert page.execute_async_script("navigator.clipboard.readText().then(arguments[0])").endswith("#sample-0-4")


@pytest.fixture
def many(browser, tmp_path):
    """A page of many samples and runs, without pictures."""
    rng = np.random.default_rng(0)
    names = ("fmn", "bb", "vfga", "ead", "pdpgd", "sigma-zero", "corner", "genetic", "saliency", "sparsefool")
    path = fill(tmp_path / "a.db", [cell("M", name, rng.geometric(0.1, 300).tolist()) for name in names])

    def nothing(_: object) -> Any:
        raise ValueError("there are no inputs here")

    with Store(path) as store:
        save_page(tmp_path / "a.html", make_page(store, nothing, limit=300))
    browser.get((tmp_path / "a.html").as_uri())
    return browser


def test_a_long_table_is_filtered_and_many_samples_are_paged(many):
    box = find(many, "#minimum-norm input")
    assert "Minimum-norm" in box.accessible_name
    box.send_keys("spa")
    assert column(many, "attack") == ["sparsefool"]
    shown = find(many, ".tools output")
    assert shown.text == "1–24 of 300"
    assert not next(b for b in find_all(many, ".tools button") if b.text == "← Previous").is_enabled()
    press(many, "Next →", "#samples")
    assert shown.text == "25–48 of 300"
    assert len(find_all(many, ".gallery a")) == 24
    assert "there are no inputs here" in find(many, "#samples").text


@pytest.mark.parametrize("width", [320, 390, 768, 1400])
def test_nothing_is_wider_than_the_screen(page, width):
    metrics: dict[str, Any] = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.refresh()
    page.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    find(page, ".gallery a").send_keys(Keys.ENTER)
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    wide = "[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1"
    assert page.execute_script(f"return {wide} && !e.closest('.scroll, header')).map((e) => e.outerHTML)") == []


def test_everything_has_a_name_and_a_place(page):
    page.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    find(page, ".gallery a").send_keys(Keys.ENTER)
    controls = find_all(page, "button, input, select, [tabindex='0'], [role=img]")
    assert len(controls) > 20
    for control in controls:
        assert control.accessible_name.strip() or not control.is_displayed(), attribute(control, "outerHTML")
    levels = [int(heading.tag_name[1]) for heading in find_all(page, "h1, h2, h3, h4, h5, h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    ids = [attribute(node, "id") for node in find_all(page, "[id]")]
    assert len(ids) == len(set(ids))
    for link in find_all(page, "nav a"):
        assert attribute(link, "href").split("#")[1] in ids
    assert attribute(find(page, "html"), "lang") == "en"


def test_in_print_everything_is_open_and_controls_are_gone(page):
    page.execute_script("dispatchEvent(new Event('beforeprint'))")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert all(attribute(fold, "open") for fold in find_all(page, "main details:not(.menu)"))
    assert not find(page, ".tools").is_displayed()
    assert not find(page, "body > header").is_displayed()


def test_a_broken_page_would_be_noticed(tmp_path, browser):
    """The fixture's own watch: a page that complains or asks for something is seen to do so."""
    (tmp_path / "bad.html").write_text("<script>console.error('oh')</script><img src='http://127.0.0.1:9/a.png'>")
    browser.get((tmp_path / "bad.html").as_uri())
    browser.get("about:blank")  # what the page has to say it has said now
    assert any("oh" in complaint for complaint in said(browser))
    assert "http://127.0.0.1:9/a.png" in requests(browser)
