import base64
import hashlib
import json
import re
import zipfile
from pathlib import Path

import pytest

from sigmazero.report.figures import style
from sigmazero.report.html import charts, colours, page, tables
from sigmazero.report.html.shell import Html, asset, document, element, embedded, escape, join
from sigmazero.report.html.tables import HtmlCell

WICKED = '</script><script>alert("1")</script>&\u2028'


def test_text_is_escaped_and_html_is_not():
    assert element("p", WICKED, Html("<b>"), title='"') == (
        '<p title="&quot;">&lt;/script&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;\u2028<b></p>'
    )
    assert element("td", None, data_value=None, hidden=False) == "<td>None</td>"
    assert element("input", type="search") == '<input type="search">'
    assert join([element("i"), "<"]) == "<i></i>&lt;"
    assert escape(escape("<")) == "&lt;"


def test_data_cannot_end_its_block_and_reads_back():
    block = embedded("x", {"name": WICKED, "number": 1.5, "none": None})
    inside = block.removeprefix('<script type="application/json" id="data-x">').removesuffix("</script>")
    assert not set(inside) & set("<>&\u2028\u2029")
    assert json.loads(inside) == {"name": WICKED, "number": 1.5, "none": None}
    with pytest.raises(ValueError, match="JSON"):
        embedded("x", float("inf"))


def test_the_policy_allows_the_page_itself_and_no_network():
    text = document(WICKED, element("h1", WICKED), data={"a": WICKED}, scripts=["let one = 1;"], styles=["b {}"])
    policy = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[0].replace("&#x27;", "'")
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    for kind, inside in (("script", r"<script>(.*?)</script>"), ("style", r"<style>(.*?)</style>")):
        bodies = re.findall(inside, text, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(body.encode()).digest()).decode() for body in bodies]
        assert rules[f"{kind}-src"] == " ".join(f"'sha256-{one}'" for one in hashes)
        assert bodies
    assert 'alert("1")' not in text
    assert text.startswith("<!doctype html>")
    assert 'name="viewport"' in text


SHELL = ("assets/page.css", "assets/shell.js", "assets/tables.js")


@pytest.mark.parametrize("name", [*page.SCRIPTS, *page.STYLES, *SHELL])
def test_assets_can_stand_inside_a_page_and_load_nothing(name):
    text = asset(name)
    assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket|\bimport\b", text)


def test_the_chart_library_is_as_published():
    for name, digest in charts.VENDORED.items():
        assert hashlib.sha256(asset(name).encode()).hexdigest() == digest
    assert "MIT" in asset("vendor/uPlot.LICENSE")


def test_table_cells_know_their_numbers():
    rows = [
        [HtmlCell("<a>"), HtmlCell("∞", float("inf"), strong=True)],
        [tables.HtmlCell("b"), tables.HtmlCell("–")],
    ]
    table = tables.HtmlTable("t", "What <it> is", ["name", "l0"], rows, copies={"CSV": "a,b"}, notes={"l0": "changes"})
    text = tables.render(table)
    assert '<th scope="row">&lt;a&gt;</th><td class="number" data-value="Infinity"><strong>∞</strong></td>' in text
    assert '<td class="number">–</td>' in text
    assert 'title="changes"' in text
    assert 'id="t-caption">What &lt;it&gt; is<' in text
    assert tables.copies([table, tables.HtmlTable("u", "", [], [])]) == {"t": {"CSV": "a,b"}}


def tokens() -> dict[str, tuple[str, str]]:
    found = re.findall(r"--(\w+): light-dark\((#\w{6}), (#\w{6})\)", asset("assets/page.css"))
    return {name: (light, dark) for name, light, dark in found}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_is_readable_in_both_themes(theme):
    known = {name: pair[theme] for name, pair in tokens().items()}
    for ground in ("paper", "panel", "shade"):
        for text in ("ink", "muted", "accent"):
            assert colours.contrast(known[text], known[ground]) >= 4.5, f"{text} on {ground}"
    for ground in ("paper", "panel"):
        for text in ("warn", "bad", "good"):
            assert colours.contrast(known[text], known[ground]) >= 4.5, f"{text} on {ground}"
        assert colours.contrast(known["edge"], known[ground]) >= 3
    assert tokens()["paper"][1] == colours.DARK_PAPER


def test_attacks_keep_their_colour():
    for attack in style.COLOURS:
        pair = colours.pair(attack)
        assert pair["light"] == style.colour(attack)
        assert colours.contrast(pair["dark"], colours.DARK_PAPER) >= 4
    assert len({colours.pair(attack)["dark"] for attack in style.COLOURS}) == len(style.COLOURS)
    assert colours.dash("sigma-zero") == []
    assert colours.dash("mine")


def test_wheels_hold_the_assets(tmp_path):
    from hatchling.builders.wheel import WheelBuilder

    root = Path(__file__).parents[2]
    built = next(WheelBuilder(str(root)).build(directory=str(tmp_path), versions=["standard"]))
    names = zipfile.ZipFile(built).namelist()
    for name in ("assets/page.css", "assets/charts.js", *charts.VENDORED):
        assert f"sigmazero/report/html/{name}" in names
