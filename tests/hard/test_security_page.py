"""The threat model names tests that exist."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_threat_model_names_exists():
    named = re.findall(r"`(tests/[\w/.]+)`", (ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
    assert len(named) > 10
    assert not [name for name in named if not (ROOT / name).exists()]
