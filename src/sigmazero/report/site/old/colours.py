"""One colour per attack in both themes, and the contrast of colours."""

from __future__ import annotations

import numpy as np

from sigmazero.report.figures import style

DARK_PAPER, LEAST_CONTRAST = "#14161a", 4.0


def pair(attack: str) -> dict[str, str]:
    """An attack's colour, and the same colour as light as the dark theme needs it."""
    light = style.colour(attack)
    return {"light": light, "dark": lightened(light)}


def lightened(colour: str) -> str:
    """A colour mixed with as much white as it takes to be seen on dark paper.

    >>> lightened("#E69F00"), lightened("#332288")
    ('#e69f00', '#7a6fb2')
    """
    base = np.array(rgb(colour), dtype=float)
    for white in np.linspace(0, 1, 101):
        mixed = "#" + "".join(f"{round(x):02x}" for x in base + white * (255 - base))
        if contrast(mixed, DARK_PAPER) >= LEAST_CONTRAST:
            return mixed
    raise ValueError(f"even white is not seen on {DARK_PAPER}; choose a darker paper")


def rgb(colour: str) -> list[int]:
    """The three bytes of a colour such as #0072B2."""
    return list(bytes.fromhex(colour.removeprefix("#")))


def contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 defines it, from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    bright, dim = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def _luminance(colour: str) -> float:
    parts = [x / 255 for x in rgb(colour)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def dash(attack: str) -> list[float]:
    """The dashes of an attack's line, as in the figures; none for a solid one."""
    found = style.dash(attack)
    return [] if isinstance(found, str) else [2.0 * length for length in found[1]]
