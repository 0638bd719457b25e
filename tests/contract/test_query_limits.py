"""`queries` is a hard limit: clean check, verification, starts and surrogates included."""

import pytest
import torch

import sigmazero as sz
from tests.helpers.networks import linear_problem
from tests.helpers.trial import Count

LIMITED = ("query-swap", "sigma-swap", "swap-search")


def linear():
    model, x, y = linear_problem((12,), 3, seed=4)
    return model.float(), x.float(), y


def demo():
    model = sz.models.load("demo")
    x = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    return model, x, model(x).argmax(1)


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize("queries", [5, 17, 30, 200])
@pytest.mark.parametrize("more", ["nothing", "help"])
@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("network", [linear, demo])
def test_no_sample_asks_more_than_its_limit(network, name, more, queries, precision):
    model, x, y = network()
    options, start = {"queries": queries}, {}
    if more == "help" and name == "query-swap":
        options |= {"surrogate": network()[0].eval()}
    elif more == "help" and name == "swap-search":
        start = {"start": 1 - x}
    for row in range(len(x)):
        count = Count(model)
        how = {"prepare": "none", "precision": precision} | {k: v[row : row + 1] for k, v in start.items()}
        found = sz.get(name, **options).run(model, x[row : row + 1], y[row : row + 1], **how)
        asked = found.forwards + found.backwards
        assert asked.item() <= queries
        if precision is None:
            assert (count.forwards, count.backwards) == (found.forwards.item(), found.backwards.item())
            assert asked.item() > 1  # something is tried


@pytest.mark.parametrize("queries", [1, 4])
@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_that_the_checks_use_up_is_refused(name, queries):
    with pytest.raises(ValueError, match=rf"queries.*{queries}.*5|queries={queries}.*5"):
        sz.get(name, queries=queries)


@pytest.mark.parametrize("name", LIMITED)
def test_a_limit_that_two_kinds_of_numbers_use_up_is_refused_before_the_first_query(name):
    """Under autocast a point is checked in the caller's numbers and in strict ones."""
    model, x, y = linear()
    count = Count(model)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(ValueError, match=r"queries=7 .*8"):
        sz.get(name, queries=7).run(model, x, y)
    assert count.forwards == 0
    with torch.autocast("cpu", torch.bfloat16):
        found = sz.get(name, queries=8).run(model, x, y)
    assert (found.forwards + found.backwards <= 8).all()


def test_a_larger_limit_is_used():
    model, x, y = linear_problem((40,), 4, seed=2)
    few, many = (sz.get("query-swap", queries=queries).run(model, x, y) for queries in (60, 2500))
    assert (many.forwards <= 2500).all()
    assert many.forwards.max() > 2000 >= 60 >= few.forwards.max()
