"""Give figures one look: one colour per attack everywhere, and a few helpers for matplotlib.

The colours are those of Okabe and Ito and of Tol, chosen to stay apart for colour-blind readers; dashes help where
there are more attacks than colours.
"""

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


def colour(attack: str) -> str:
    """Return the colour of an attack; its variants share it, and an unknown name always gets the same one.

    >>> colour("fmn"), colour("ead-paper") == colour("ead"), colour("mine") == colour("mine")
    ('#0072B2', True, True)
    """
    base = attack.split(" ")[0]
    for end in VARIANTS:
        base = base.removesuffix(end)
    return COLOURS[base] if base in COLOURS else OTHERS[_number(base) % len(OTHERS)]


def css_dash(attack: str) -> str:
    """Return the dashes of an attack's line for SVG; empty for a solid one."""
    found = dash(attack)
    return "" if isinstance(found, str) else " ".join(f"{2 * length:g}" for length in found[1])


def dash(attack: str) -> Any:
    """Return the line of an attack: solid for a known one, otherwise dashed in a way that belongs to its name."""
    return DASHES[0] if attack in COLOURS else DASHES[1 + _number(attack) % (len(DASHES) - 1)]


def _number(name: str) -> int:
    # Python's own hash changes from one process to the next.
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")


def plain(text: str) -> str:
    r"""Escape a text for matplotlib: dollars would make it a formula, and a first underscore hides a label.

    >>> plain("a$b"), plain("_c")
    ('a\\$b', ' _c')
    """
    return (" " if text.startswith("_") else "") + text.replace("$", r"\$")


def file_format(path: Path) -> str:
    """Return the format that the end of a file's name asks for."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise ValueError(f"{path}: end the name in one of .{', .'.join(FORMATS)}")
    return kind


def figure(width: float, height: float) -> Any:
    """Return an empty figure in inches; matplotlib is loaded here and no sooner."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("figures need matplotlib; pip install 'sigmazero[plot]'") from None
    return Figure(figsize=(width, height), layout="constrained")


def save(made: Any, path: Path) -> None:
    """Write a figure as PDF, SVG or PNG, whole or not at all."""
    from matplotlib import rc_context

    with replacing(path) as part, rc_context({"pdf.fonttype": 42}):  # fonts that journals take
        made.savefig(part, format=file_format(path), dpi=200)


def grid(panels: int, width: float = 5.2, height: float = 3.6) -> tuple[Any, list[Any]]:
    """Return a figure and its axes, one per panel, up to three side by side."""
    across = min(panels, 3)
    down = -(-panels // across)
    made = figure(width * across, height * down)
    return made, [made.add_subplot(down, across, place + 1) for place in range(panels)]


def tidy(axis: Any) -> None:
    """Give an axis a light grid, and no frame at the top and at the right."""
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def change_patches() -> list[Any]:
    """Return the two colours of changes with what they mean, for a legend."""
    from matplotlib.patches import Patch

    return [Patch(color=MORE, label="more: the value rose"), Patch(color=LESS, label="less: the value fell")]


def change_key(figure: Any, loc: str = "outside lower left") -> None:
    """Explain the two colours of changes."""
    figure.legend(handles=change_patches(), loc=loc, ncols=2, fontsize=8, frameon=False, handlelength=1.0)


def legend(axis: Any) -> None:
    """Put the names beside the axis, where they cover nothing."""
    axis.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.2)
