"""docs/spaces.md agrees with the attacks."""

import re
from pathlib import Path

import sigmazero as sz

PAGE = Path(__file__).parents[2] / "docs" / "spaces.md"


def test_who_refuses_is_said():
    """A line names the attacks that cannot honour a space."""
    line = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if "refuse by name" in line)
    refusing = {name.removesuffix("-paper") for name, attack in sz.ATTACKS.items() if not attack.spaces}
    assert {word for word in re.findall(r"`([\w-]+)`", line)} == refusing
