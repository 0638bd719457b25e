"""The page of a store, used as people use it; the fixture fails a test on any console message or network request."""

import re
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from sigmazero.core import metrics
from sigmazero.report import measure
from sigmazero.report.measure import load
from sigmazero.report.separating import separating
from sigmazero.report.tables import latex, layout, render
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import Store
from tests.browser.conftest import EVIL, Made, new_tab, requests, said

CANVAS = "return arguments[0].toDataURL()"
M = layout.Column("median_l0", "median", "l0")
PIXELS = "const c = arguments[0]; return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"


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
    """What was announced stays in the page when it is no longer shown."""
    WebDriverWait(page, 60).until(lambda _: words in attribute(find(page, "#status"), "textContent"))


def column(page: Chrome, heading: str) -> list[str]:
    """What the visible rows of the table of results show under a heading."""
    heads = [th.text.strip() for th in find_all(page, "#minimum-norm thead th")]
    rows = [row for row in find_all(page, "#minimum-norm tbody tr") if row.is_displayed()]
    return [find_all(row, "th, td")[heads.index(heading)].text for row in rows]


def cells(made: Made) -> list[tuple[CellInfo, Facts]]:
    with Store(made.store) as store:
        return load(store)


def pointer(page: Chrome) -> ActionChains:
    """Moves of the mouse that arrive at once."""
    return ActionChains(page, duration=0)


def hover(page: Chrome, share: float) -> str:
    """Point at a place of the first chart, from 0 at the left to 1 at the right; what the tooltip says."""
    over = find(page, ".u-over")
    page.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", over)
    pointer(page).move_to_element_with_offset(over, int((share - 0.5) * over.size["width"]), 0).perform()
    return find(page, ".tip").text


def test_names_are_shown_and_not_run(page):
    assert page.title == "run – sigmazero"
    assert EVIL in column(page, "model")
    assert EVIL in find(page, "#summary").text
    assert EVIL in find(page, ".explorer").text
    assert page.execute_script("return window.document.scripts.length") == len(find_all(page, "script"))
    assert not [s for s in find_all(page, "script") if attribute(s, "textContent") == "alert(1)"]


def test_tables_sort_both_ways_and_back(page):
    before = column(page, "median")
    head = next(th for th in find_all(page, "#minimum-norm th") if th.text.strip() == "median")
    assert attribute(head, "aria-sort") == "none"
    for state, wanted in (
        ("ascending", sorted(before, key=float)),
        ("descending", sorted(before, key=float, reverse=True)),
        ("none", before),
    ):
        head.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        assert attribute(head, "aria-sort") == state
        assert column(page, "median") == wanted
    assert len(set(before)) > 1
    assert "Original order" in attribute(find(page, "#status"), "textContent")


def test_tables_filter_by_words(page):
    box = find(page, "#minimum-norm input")
    assert "Minimum-norm" in box.accessible_name
    box.send_keys("fmn <SCRIPT>")
    assert column(page, "attack") == ["fmn"]
    assert column(page, "model") == [EVIL]
    assert "1 of 6 rows" in find(page, "#minimum-norm").text
    box.send_keys("zzz")
    assert column(page, "attack") == []
    assert "No row has “fmn <SCRIPT>zzz”." in find(page, "#minimum-norm").text
    box.clear()
    box.send_keys(" ")
    assert len(column(page, "attack")) == 6


@pytest.mark.parametrize("clipboard", [True, False])
def test_copies_are_those_of_the_command_line(page, made, clipboard):
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    if not clipboard:
        page.execute_script("navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed'))")
    table = layout.build("minimum-norm", cells(made), separating(cells(made)))
    for words, text in (("LaTeX", latex.to_latex(table)), ("CSV", render.to_csv(table))):
        press(page, f"Copy {words}", "#minimum-norm")
        wait_for_status(page, f"Copied {words}")
        copied = page.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
        assert copied == text


def test_curves_are_read_by_pointing(page, made):
    said = hover(page, 0.4)
    k = int(re.findall(r"k = (\d+)", said)[0])
    known = {info.attack: measure.changes(facts, info.unit) for info, facts in cells(made) if info.model != EVIL}
    for attack, l0 in known.items():
        assert re.search(rf"{attack}\n{100 * metrics.asr(l0, k):.1f} %", said)
    assert "best of all" in said
    pointer(page).move_to_element(find(page, "h1")).perform()
    assert not find(page, ".tip").is_displayed()


def test_curves_are_read_with_the_keyboard(page):
    over = find(page, ".u-over")
    assert attribute(over, "role") == "slider"
    over.send_keys(Keys.HOME)
    assert attribute(over, "aria-valuetext").startswith("k = 0: ")
    over.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert attribute(over, "aria-valuetext").startswith("k = 1: ")
    assert float(attribute(over, "aria-valuenow")) == 1
    over.send_keys("+")
    assert [b for b in find_all(page, ".chart button") if b.text == "Reset zoom"]
    over.send_keys(Keys.ESCAPE)
    assert not [b for b in find_all(page, ".chart button") if b.text == "Reset zoom"]


def test_legend_hides_and_shows(page):
    canvas = find(page, ".plot canvas")
    whole = page.execute_script(CANVAS, canvas)
    button = press(page, "fmn", ".legend")
    assert attribute(button, "aria-pressed") == "false"
    assert "fmn" not in hover(page, 0.4)
    hidden = page.execute_script(CANVAS, canvas)
    assert hidden != whole
    button.click()
    assert "fmn" in hover(page, 0.4)
    pointer(page).move_to_element(find(page, "h1")).perform()
    assert page.execute_script(CANVAS, canvas) == whole


def test_k_is_picked_by_the_reader(page, made):
    chosen = separating(cells(made))
    first = find(page, "#minimum-norm .picks select")
    assert attribute(first, "value") == f"{chosen[0]:g}"
    table = layout.build("minimum-norm", cells(made), (2,))
    Select(first).select_by_value("2")
    assert column(page, "ASR 2") == [f"{100 * (line.figures['asr_2'] or 0):.1f}" for b in table.blocks for line in b]
    strong = [cell.text for cell in find_all(page, "#minimum-norm tbody td.number strong")]
    assert {f"{100 * (layout.best(block, table.columns[0]) or 0):.1f}" for block in table.blocks} - {"0.0"} <= set(
        strong
    )
    head = next(th for th in find_all(page, "#minimum-norm th") if th.text.strip() == "ASR 2")
    head.find_element(By.TAG_NAME, "button").click()
    found = [float(text) for text in column(page, "ASR 2")]
    assert found == sorted(found)


def test_intervals_are_shown_when_asked_for(page, made):
    table = layout.build("minimum-norm", cells(made), separating(cells(made)))
    before = column(page, "median")
    assert not any("–" in text for text in before)
    press(page, "95 % intervals", "#minimum-norm")
    lines = [line for block in table.blocks for line in block]
    wanted = [f"{render.shown(x.figures['median_l0'], M)}\n{render.interval(x, M)}" for x in lines]
    assert column(page, "median") == wanted


def test_headings_are_explained(page):
    heads = {th.text.strip(): th.find_element(By.TAG_NAME, "button") for th in find_all(page, "#minimum-norm thead th")}
    assert attribute(heads["s"], "title").startswith("Seconds per sample")
    assert attribute(heads["kqueries"], "title").startswith("Thousands of forward and backward passes")
    find(page, "#minimum-norm summary").click()
    assert "Thousands of forward" in find(page, "#minimum-norm details").text


def test_the_band_is_that_of_the_curve_pointed_at(page):
    """Without a pointer the strongest has it; a name in the legend shows its own."""
    canvas = find(page, ".plot canvas")
    first = page.execute_script(CANVAS, canvas)
    seen = {first}
    for button in find_all(find(page, ".legend"), "button")[:3]:
        pointer(page).move_to_element(button).perform()
        seen.add(page.execute_script(CANVAS, canvas))
    assert len(seen) == 3  # one of the three is the strongest
    pointer(page).move_to_element(find(page, "h1")).perform()
    assert page.execute_script(CANVAS, canvas) == first


def test_drag_zooms_and_the_button_resets(page):
    canvas, over = find(page, ".plot canvas"), find(page, ".u-over")
    whole = page.execute_script(CANVAS, canvas)
    hover(page, 0.3)
    pointer(page).click_and_hold().move_by_offset(over.size["width"] // 4, 0).release().perform()
    assert page.execute_script(CANVAS, canvas) != whole
    press(page, "Reset zoom", ".chart")
    assert page.execute_script(CANVAS, canvas) == whole
    press(page, "Logarithmic k", ".chart")
    assert page.execute_script(CANVAS, find(page, ".plot canvas")) != whole


def test_samples_open_by_keyboard_and_show_what_was_stored(page, made):
    listed = find(page, ".picker [role=listbox]")
    listed.send_keys(Keys.ARROW_DOWN)
    assert find(page, ".sample h4").text.startswith("Row 1, class")
    cards = find_all(page, ".card")
    assert len(cards) == 6
    with Store(made.store) as store:
        infos = store.cells()
        facts = {info.key: store.facts(info.key) for info in infos}
    for card, info in zip(cards, infos, strict=True):
        known = facts[info.key].take(np.array([1]))
        assert f"l0\n{known.l0[0]:.0f}" in card.text or (np.isinf(known.l0[0]) and "∞" in card.text)
        assert f"queries\n{known.forwards[0] + known.backwards[0]}" in card.text
        assert f"{known.clean_prediction[0]} → {known.prediction[0]}" in card.text
        drawn = np.array(page.execute_script(PIXELS, card.find_element(By.TAG_NAME, "canvas"))).reshape(4, 5, 4)
        wanted = (known.rebuild(made.images[1:2])[0].permute(1, 2, 0) * 255).round().numpy()
        assert (drawn[..., :3] == wanted).all()
        image, changes = find_all(card, "canvas")
        assert f"classified as {known.prediction[0]}" in attribute(image, "aria-label")
        assert f"{len(known.index)} of 60 values differ" in attribute(changes, "aria-label")


def test_samples_are_found_and_ordered(page):
    proposed = attribute(find(page, ".picker input"), "placeholder")
    find(page, ".picker input").send_keys(proposed)
    assert find(page, ".sample h4").text.lower() == proposed.lower()  # what is proposed is there
    find(page, ".picker input").clear()
    find(page, ".picker input").send_keys("row 4")
    assert find(page, ".sample h4").text.startswith("Row 4")
    find(page, ".picker input").send_keys("99")
    assert "No row matches." in find(page, ".picker").text
    find(page, ".picker input").clear()
    find(page, ".picker input").send_keys(Keys.SPACE)
    find_all(page, ".picker select")[0].send_keys("most")
    texts = [option.text for option in find_all(page, ".picker [role=option]")]
    assert len(texts) == 6
    found = [float(text.rsplit(" ", 1)[1].replace("∞", "inf")) for text in texts]
    assert found == sorted(found, reverse=True)
    press(page, "Next →")
    assert [attribute(each, "aria-selected") for each in find_all(page, ".picker [role=option]")].index("true") == 1


def test_an_address_opens_its_sample(page, made):
    """The address follows what is looked at, and opens it again."""
    find(page, ".picker [role=listbox]").send_keys(Keys.END)
    assert page.current_url.endswith("#sample-0-5")
    page.get("about:blank")
    page.get(f"{made.html.as_uri()}#sample-0-3")
    assert find(page, ".sample h4").text.startswith("Row 3, class")
    page.execute_script("location.hash = '#sample-0-4'")
    WebDriverWait(page, 60).until(lambda _: find(page, ".sample h4").text.startswith("Row 4"))
    page.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    press(page, "Copy link", ".picker")
    wait_for_status(page, "Copied the link to this sample")
    assert page.execute_async_script("navigator.clipboard.readText().then(arguments[0])").endswith("#sample-0-4")


def saved(page: Chrome, folder: Path, kind: str) -> bytes:
    """What the one file of that kind holds, once the browser has it; until then its name ends otherwise."""
    (path,) = WebDriverWait(page, 60).until(lambda _: list(folder.glob(f"*.{kind}")))
    return WebDriverWait(page, 60).until(lambda _: path.read_bytes())


def test_figures_and_data_are_saved(page, made, tmp_path):
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    starts = {"svg": b"<svg", "png": b"\x89PNG", "csv": b"k,sigma-zero,sigma-zero low,sigma-zero high,"}
    for kind, start in starts.items():
        press(page, f"Save {kind.upper()}", ".chart")
        assert saved(page, tmp_path, kind).startswith(start)
    rates = next(tmp_path.glob("*.csv")).read_text().splitlines()
    assert "best of all" in rates[0]
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    press(page, "Save CSV", ".picker")
    lines = saved(page, tmp_path, "csv").decode().splitlines()
    assert len(lines) == 1 + 6 * 6
    assert lines[0].startswith("row,class,model,attack")


def test_dark_and_light(page):
    def paper() -> str:
        return str(page.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light, chart = paper(), page.execute_script(CANVAS, find(page, ".plot canvas"))
    button = find(page, "#theme")
    button.click()
    assert attribute(button, "aria-pressed") == "true"
    assert paper() != light
    assert page.execute_script(CANVAS, find(page, ".plot canvas")) != chart
    page.refresh()
    assert paper() != light
    find(page, "#theme").click()
    assert paper() == light


def test_the_system_may_ask_for_dark(page):
    asked = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", asked)
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    assert attribute(find(page, "#theme"), "aria-pressed") == "true"


@pytest.mark.parametrize("width", [320, 390, 768])
def test_no_sideways_scrolling_on_a_phone(page, width):
    metrics: dict[str, Any] = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page.refresh()
    page.execute_script("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.execute_script("return document.documentElement.scrollWidth") <= width
    wide = (
        "return [...document.querySelectorAll('button, input, select')].filter((e) => e.getBoundingClientRect().right"
    )
    assert page.execute_script(f"{wide} > innerWidth && !e.closest('.scroll')).map((e) => e.outerHTML)") == []


def test_everything_has_a_name_and_a_place(page):
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
    links, canvases = find_all(page, "nav a"), find_all(page, ".plot canvas, .images canvas")
    assert links
    assert canvases
    for link in links:
        assert attribute(link, "href").split("#")[1] in ids
    for canvas in canvases:
        assert attribute(canvas, "role") == "img"
    assert attribute(find(page, "html"), "lang") == "en"
    first = page.switch_to.active_element
    first.send_keys(Keys.TAB)
    assert page.switch_to.active_element.text == "Skip to the content"


def test_a_broken_page_would_be_noticed(tmp_path, browser):
    """The fixture's own watch: a page that complains or asks for something is seen to do so."""
    (tmp_path / "bad.html").write_text("<script>console.error('oh')</script><img src='http://127.0.0.1:9/a.png'>")
    browser.get((tmp_path / "bad.html").as_uri())
    browser.get("about:blank")  # what the page has to say it has said now
    assert any("oh" in complaint for complaint in said(browser))
    assert "http://127.0.0.1:9/a.png" in requests(browser)


def test_the_next_test_finds_nothing_of_this_one(page, made):
    find(page, "#theme").click()
    assert page.execute_script("return localStorage.length") == 1
    with new_tab(page):
        page.get(made.html.as_uri())
        assert page.execute_script("return localStorage.length") == 0
        assert attribute(find(page, "#theme"), "aria-pressed") == "false"
