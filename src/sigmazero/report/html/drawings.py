"""Small drawings of a page that need no script: bars, shaded grids and maps, in the colours of either theme."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sigmazero.core.metrics import Floats
from sigmazero.report.html import colours
from sigmazero.report.html.shell import Html, element, join
from sigmazero.report.patterns import Histogram
from sigmazero.report.png import data_uri

CELL = 38  # of a side of a grid
LETTER = 7.2  # the width of a letter, about
RAMP = np.array([[0, 0, 4], [81, 18, 124], [183, 55, 121], [252, 137, 97], [252, 253, 191]], float)  # dark to bright


def paired(attack: str) -> str:
    """An attack's colour in both themes."""
    both = colours.pair(attack)
    return f"light-dark({both['light']}, {both['dark']})"


def bars(held: Histogram, edges: Floats, attack: str, most: int) -> Html:
    """How many samples need how many changes; `most` is the height of the highest bar of all drawings beside it."""
    width, height = 300, 70
    across = width / (len(edges) - 1)
    made = []
    for place, count in enumerate(held.counts.tolist()):
        tall = (height - 18) * count / max(most, 1)
        first, last = edges[place], edges[place + 1] - 1
        span = f"{first:g}" if first == last else f"{first:g} to {last:g}"
        bar = {"x": f"{across * place:.1f}", "y": f"{height - 16 - tall:.1f}", "width": f"{max(across - 1, 1):.1f}"}
        named = element("title", f"{count} samples need {span} changes")
        made.append(element("rect", named, **bar, height=f"{tall:.1f}", fill=paired(attack)))
    line = element("path", d=f"M0,{height - 16}H{width}", stroke="currentColor", stroke_opacity="0.4")
    ends = [
        element("text", f"{edges[0]:g}", x=0, y=height - 3, font_size=11, fill="currentColor"),
        element(
            "text", f"{edges[-1] - 1:g}", x=width, y=height - 3, font_size=11, text_anchor="end", fill="currentColor"
        ),
    ]
    label = f"Histogram of the changes that {attack} needs"
    box = f"0 0 {width} {height}"
    return element("svg", *made, line, *ends, viewBox=box, role="img", aria_label=label, class_="bars")


def grid(
    shares: Floats, names: tuple[Sequence[str], Sequence[str]], label: str, about: str = "{row} to {column}: {share} %"
) -> Html:
    """Shares from rows to columns, shaded, with their numbers; nothing stands where a share is not known."""
    down, across = names
    left, above = LETTER * max(map(len, down), default=1) + 8, LETTER * max(map(len, across), default=1) * 0.72 + 14
    made: list[Html] = []
    for (row, column), share in np.ndenumerate(shares):
        if np.isnan(share):
            continue
        x, y = left + CELL * column, above + CELL * row
        said = about.format(row=down[row], column=across[column], share=f"{100 * share:.0f}")
        box = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": CELL - 2, "height": CELL - 2, "rx": 3}
        shade = element(
            "rect", element("title", said), **box, fill="var(--accent)", fill_opacity=f"{0.03 + 0.55 * share:.3f}"
        )
        place = {"x": f"{x + CELL / 2 - 1:.1f}", "y": f"{y + CELL / 2 + 3:.1f}", "text_anchor": "middle"}
        made += [shade, element("text", f"{100 * share:.0f}", **place)] if share > 0 else [shade]
    for row, name in enumerate(down):
        made.append(
            element("text", name, x=f"{left - 6:.1f}", y=f"{above + CELL * (row + 0.5) + 3:.1f}", text_anchor="end")
        )
    for column, name in enumerate(across):
        x, y = left + CELL * (column + 0.5), above - 6
        made.append(element("text", name, x=f"{x:.1f}", y=f"{y:.1f}", transform=f"rotate(-45 {x:.1f} {y:.1f})"))
    spare = LETTER * max(map(len, across[-1:]), default=1) * 0.72
    width, height = left + CELL * len(across) + spare, above + CELL * len(down)
    view = f"0 0 {width:.0f} {height:.0f}"
    drawn = element(
        "svg", *made, viewBox=view, width=f"{width:.0f}", height=f"{height:.0f}", role="img", aria_label=label
    )
    return element("div", drawn, class_="grid scroll", tabindex="0", role="region", aria_label=label)


def heat_map(shares: Floats, top: float, label: str) -> Html:
    """A map of shares, dark to bright, by their root: few are seen too."""
    level = np.sqrt(np.clip(shares / max(top, 1e-9), 0, 1)) * (len(RAMP) - 1)
    colour = np.stack([np.interp(level, np.arange(len(RAMP)), RAMP[:, c]) for c in range(3)], axis=-1)
    return element("img", src=data_uri(np.round(colour).astype(np.uint8)), alt=label, class_="heat")


def figures(parts: Sequence[tuple[Html, str]], kind: str) -> Html:
    """Drawings beside each other, each with a text below."""
    each = [element("figure", drawn, element("figcaption", text)) for drawn, text in parts]
    return element("div", join(each), class_=f"drawings {kind}")
