"""The page about other libraries names every bridge."""

import re
from pathlib import Path

from sigmazero.adapters._callers import CALLERS
from sigmazero.adapters._peers import PEERS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "bridges.md"


def test_the_page_has_every_bridge_with_the_version_that_is_tested():
    text = PAGE.read_text(encoding="utf-8")
    pins = (ROOT / "constraints-peers.txt").read_text(encoding="utf-8")
    for name, peer in PEERS.items():
        version = dict(re.findall(r"^([\w-]+)==(.*)$", pins, re.MULTILINE))[peer.package]
        assert name in text.lower()
        assert version in text or name == "adv-lib"  # whose shape needs no version
        assert peer.least.split(".")[0] <= version.split(".")[0]
    assert all(f'"{name}:' in text for name in CALLERS)
