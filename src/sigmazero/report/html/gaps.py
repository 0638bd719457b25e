"""How far the attacks of a page are from the truth, where that is known: on the networks of the exact suite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files

from sigmazero.report.html.tables import HtmlCell, HtmlTable
from sigmazero.report.measure import Measured

CAPTION = (
    "How far these attacks are from the truth on six small networks whose fewest changes are proved, in % above them, "
    "and in how many % of 1,200 digits nothing is left to gain; with about 300 queries, or an attack's own number"
)


def known() -> list[dict[str, float | str]]:
    """What was measured of each attack (`python -m benchmarks.suite --known`), the nearest to the truth first."""
    text = files("sigmazero.report").joinpath("gaps.json").read_text(encoding="utf-8")
    found: list[dict[str, float | str]] = json.loads(text)
    return found


def build(cells: Sequence[Measured]) -> list[HtmlTable]:
    """A table of the attacks that were measured in the version that the page is about; none if there are none."""
    here = {(info.attack, info.version) for info, _ in cells}
    lines = [line for line in known() if (line["attack"], line["version"]) in here]
    if not lines:
        return []
    rows = [
        [HtmlCell(line["attack"]), *(HtmlCell(line[name], float(line[name])) for name in ("gap", "optimal", "queries"))]
        for line in lines
    ]
    return [HtmlTable("gaps", CAPTION, ["attack", "gap %", "optimal %", "queries"], rows)]
