"""Every query of adv-lib's PDPGD, reproduced: its default and the l2/3 proximal operator."""

import pytest

import sigmazero as sz
from tests.helpers.traces import check_every_query

RUNS = {"pdpgd_30": ("pdpgd-paper", 30), "pdpgd_100": ("pdpgd-paper", 100), "pdpgd_l23_100": ("pdpgd", 100)}


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("run", RUNS)
def test_every_query_is_adv_libs(run, kind):
    name, steps = RUNS[run]
    check_every_query(sz.get(name, steps=steps, random_start=0.0), run, kind)
