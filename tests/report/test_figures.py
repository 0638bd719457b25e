"""Figures: colours, files and options; tests/golden and tests/judge have what is drawn."""

from dataclasses import replace

import pytest

from sigmazero.report.figures import FIGURES, style
from sigmazero.report.figures.figure import Request, figure
from sigmazero.report.runs import groups, load
from sigmazero.store import Store
from tests.helpers.cells import cell, fill


@pytest.fixture
def request_of(tmp_path):
    with Store(fill(tmp_path / "a.db", [cell("M", "fmn", [1, 2, 3]), cell("M", "bb", [2, 2, 9])])) as store:
        yield Request(groups(load(store)), store, lambda info: None)


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("attack", style.COLOURS)
def test_every_attack_is_seen_on_dark_paper_and_keeps_its_colour(attack):
    light = style.colour(f"{attack}-paper")
    assert light == style.colour(attack)
    assert (luminance(style.DARK.get(light, light)) + 0.05) / (luminance("#14161a") + 0.05) > 3.9


def test_known_attacks_have_colours_of_their_own():
    assert len(set(style.COLOURS.values())) == len(style.COLOURS)
    assert style.dash("fmn") == "-" != style.dash("somebody's")
    assert style.css_dash("fmn") == ""


@pytest.mark.parametrize("kind", ["pdf", "svg", "png"])
def test_a_figure_is_written_in_the_format_of_its_name(request_of, tmp_path, kind):
    (path,) = FIGURES["curves"].write(request_of, tmp_path / f"deep/c.{kind}")
    assert path.read_bytes().startswith({"pdf": b"%PDF", "svg": b"<?xml", "png": b"\x89PNG"}[kind])


def test_mistakes_name_the_value_and_write_nothing(request_of, tmp_path):
    with pytest.raises(ValueError, match=r"c\.gif"):
        FIGURES["curves"].write(request_of, tmp_path / "c.gif")
    with pytest.raises(ValueError, match="until=-3"):
        FIGURES["curves"].draw(replace(request_of, options={"until": -3}))
    with pytest.raises(ValueError, match="curves"):
        figure("curves", "twice")(lambda request: None)
    assert [path.suffix for path in tmp_path.iterdir() if path.suffix not in (".db", ".lock")] == []
