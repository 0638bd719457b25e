"""How figures look: one colour per attack everywhere, and files that are the same for the same numbers.

The colours are those of Okabe and Ito and of Tol, chosen to stay apart for colour-blind readers; dashes help where
there are more attacks than colours.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sigmazero.core.files import replacing

COLOURS = {
    "sigma-zero": "#D55E00",
    "fmn": "#0072B2",
    "vfga": "#009E73",
    "bb": "#E69F00",
    "bb-dataset": "#CC79A7",
    "pdpgd": "#56B4E9",
    "ead": "#882255",
    "sparsefool": "#999933",
    "pgd-l0": "#332288",
    "sparse-rs": "#44AA99",
    "spgd-projected": "#AA4499",
    "spgd-unprojected": "#117733",
    "sigma-zero-star": "#661100",
    "sigma-swap": "#B2182B",
    "swap-search": "#DE77AE",
    "query-swap": "#7B61C4",
    "label-swap": "#6B6B6B",
    "corner": "#8C6D31",
    "genetic": "#4D9221",
    "saliency": "#2B8CBE",
}
DARK = {  # the same colours on dark paper, where those would not be seen
    "#0072B2": "#147DB8",
    "#882255": "#A96085",
    "#332288": "#7A6FB2",
    "#AA4499": "#B255A2",
    "#117733": "#2E874B",
    "#661100": "#9F695E",
    "#B2182B": "#C55260",
    "#7B61C4": "#8067C6",
    "#6B6B6B": "#777777",
    "#8C6D31": "#917339",
}
VARIANTS = ("-paper", "-min", "-at", "-inner")  # ends of names that share the colour of the name before them
OTHERS = tuple(COLOURS.values())[:13]  # a fixed list, so that a name that is not known keeps its colour
LESS, MORE = "#5E3C99", "#B35806"  # of a value that became less, and more; apart for colour-blind readers
NEUTRAL = "#444444"  # of a curve whose attack is not known
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.5, 1)), (0, (5, 1, 1, 1)))
BEST = "#000000"
GAP = "#767676"  # between what attacks fool and what is proved not to fall
FORMATS = ("pdf", "svg", "png")
# Dates and random names would make two files of one figure differ; type 42 fonts are what journals take.
DATELESS: dict[str, dict[str, None]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}
SETTINGS = {"svg.hashsalt": "sigmazero", "pdf.fonttype": 42, "svg.fonttype": "path"}


def colour(attack: str) -> str:
    """The colour of an attack; its variants share it, and an unknown name always gets the same one.

    >>> colour("fmn"), colour("ead-paper") == colour("ead"), colour("mine") == colour("mine")
    ('#0072B2', True, True)
    """
    base = attack.split(" ")[0]
    for end in VARIANTS:
        base = base.removesuffix(end)
    return COLOURS[base] if base in COLOURS else OTHERS[_number(base) % len(OTHERS)]


def pair(attack: str) -> tuple[str, str]:
    """Return an attack's colour on light and on dark paper."""
    light = colour(attack)
    return light, DARK.get(light, light)


def css_dash(attack: str) -> str:
    """Return the dashes of an attack's line for SVG; empty for a solid one."""
    found = dash(attack)
    return "" if isinstance(found, str) else " ".join(f"{2 * length:g}" for length in found[1])


def known_colour(label: str | None) -> str | None:
    """The colour of a label that is an attack's name, or begins with one; None of any other.

    >>> known_colour("sigma-zero, steps 100"), known_colour("my run")
    ('#D55E00', None)
    """
    first = (label or "").split(",")[0].split(" ")[0]
    for end in VARIANTS:
        first = first.removesuffix(end)
    return COLOURS.get(first)


def dash(attack: str) -> Any:
    """The line of an attack: solid for a known one, otherwise dashed in a way that belongs to its name."""
    return DASHES[0] if attack in COLOURS else DASHES[1 + _number(attack) % (len(DASHES) - 1)]


def _number(name: str) -> int:
    # Python's own hash changes from one process to the next.
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def plain(text: str) -> str:
    r"""A text that matplotlib shows as it is: dollars would make it a formula, and a first underscore hides a label.

    >>> plain("a$b"), plain("_c")
    ('a\\$b', ' _c')
    """
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def known(path: Path, kinds: tuple[str, ...] = FORMATS) -> str:
    """The format that the end of a file's name asks for."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in kinds:
        raise ValueError(f"{path}: end the name in one of .{', .'.join(kinds)}")
    return kind


def figure(width: float, height: float) -> Any:
    """An empty figure in inches; matplotlib is loaded here and no sooner."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib; pip install 'sigmazero[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(made: Any, path: Path) -> None:
    """Write a figure as PDF, SVG or PNG, whole or not at all."""
    from matplotlib import rc_context

    kind = known(path)
    _settle(made)
    with replacing(path) as part, rc_context(SETTINGS):
        made.savefig(part, format=kind, dpi=200, metadata=DATELESS[kind])


def _settle(made: Any) -> None:
    """Give everything the place that the layout found, rounded: its last digits are not the same every time."""
    if made.get_layout_engine() is None:
        return
    made.draw_without_rendering()
    held = [(axis, axis.get_position()) for axis in made.axes]
    made.set_layout_engine("none")
    for part in made.subfigs:
        part._redo_transform_rel_fig(_rounded(part.bbox_relative))
    for axis, place in held:
        axis.set_position(_rounded(place))


def _rounded(box: Any) -> Any:
    from matplotlib.transforms import Bbox

    return Bbox(box.get_points().round(5))


def grid(panels: int, width: float = 5.2, height: float = 3.6) -> tuple[Any, list[Any]]:
    """A figure with so many axes, up to three beside each other."""
    across = min(panels, 3)
    down = -(-panels // across)
    made = figure(width * across, height * down)
    return made, [made.add_subplot(down, across, place + 1) for place in range(panels)]


def tidy(axis: Any) -> None:
    """A light grid, and no frame at the top and at the right."""
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def change_patches() -> list[Any]:
    """The two colours of changes with what they mean, for a legend."""
    from matplotlib.patches import Patch

    return [Patch(color=MORE, label="more: the value rose"), Patch(color=LESS, label="less: the value fell")]


def change_key(figure: Any, loc: str = "outside lower left") -> None:
    """What the two colours of changes mean."""
    figure.legend(handles=change_patches(), loc=loc, ncols=2, fontsize=8, frameon=False, handlelength=1.0)


def legend(axis: Any) -> None:
    """The names beside the figure, where they cover nothing."""
    axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
