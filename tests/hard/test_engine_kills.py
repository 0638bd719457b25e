"""kill -9 of a worker, a node of a cluster, the driver: one kill here, forty each night."""

import os

import pytest

from tests.hard import engine_kills
from tests.helpers.trial import NIGHTLY

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

pytest.importorskip("ray", reason="Ray is not installed: nothing is known of the engine 'ray' here")


def test_killed_at_any_point_the_facts_are_the_same(tmp_path):
    """On two nodes joined by address, which have none of the plan's files: models and rows travel."""
    found = engine_kills.soak(40 if NIGHTLY else 1, int(os.environ.get("SIGMAZERO_SEED", "0")), tmp_path)
    everyone = {"worker of ray", "node of ray", "driver of ray"}
    assert everyone <= found.keys() if NIGHTLY else everyone & found.keys()
