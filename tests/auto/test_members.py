"""The fixed lists: what the documentation says is in them is in them, and their price is known."""

import itertools
from pathlib import Path

import pytest
import torch

import sigmazero as sz
from sigmazero.auto import CASCADES, Cascade
from tests.helpers.cascades import custom, problem


def test_the_page_lists_every_attack_with_its_cost():
    page = (Path(__file__).parents[2] / "docs" / "auto.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:2] == "| "]
    rows = {cells[0]: cells[1:] for cells in lines}
    for lists in CASCADES.values():
        listed = [", ".join(f"`{a.name}` {a.limit or a.steps:,}" for a in lists[each].attacks) for each in lists]
        few, budget, minimum = listed
        assert rows[f"`{lists['budget']}`"] == ["the same" if few == budget else few, budget, minimum]


def test_the_cost_that_is_stated_is_not_exceeded():
    net, x, y = problem(12)
    some = (sz.get("sigma-swap", queries=60), sz.get("corner-at", steps=20), sz.get("sparse-rs-inner", steps=30))
    for eps in (1, 2, 3):
        found = custom(net, eps, some).run(x, y)
        assert found.most == sum(found.cascade.most_queries(attack, found.problem) for attack in some)
        checks = 6  # the clean check and the verification of each attack
        assert int(torch.stack([run.queries for run in found.runs]).sum(0).max()) <= found.most + checks


@pytest.mark.parametrize("unit", ["pixel", "feature"])
def test_one_change_is_exact_over_corners(unit, monkeypatch):
    lists = Cascade("quick", 1, (sz.get("sigma-zero", steps=5), sz.get("corner-at", steps=20)))
    monkeypatch.setitem(CASCADES, "quick", {"few": lists})
    net, x, y = problem(10, kind="rgb")
    found = sz.SparseAutoAttack(net, eps=1, unit=unit, version="quick", verbose=False).run(x, y)
    fooled = net(x).argmax(1) != y
    sites = x.flatten(2) if unit == "pixel" else x.flatten(1)[:, None]
    for site in range(sites.shape[2]):
        for corner in itertools.product((0.0, 1.0), repeat=sites.shape[1]):
            point = sites.clone()
            point[:, :, site] = torch.tensor(corner, dtype=x.dtype)
            fooled |= net(point.view_as(x)).argmax(1) != y
    assert torch.equal(found.best.success, fooled)
    assert found.exact.startswith(f"exact at one {unit}")
    assert found.exact in str(found)
    assert not sz.SparseAutoAttack(net, eps=2, unit=unit, version="quick", verbose=False).run(x, y).exact


def test_inputs_with_too_many_single_changes_go_without_corners(monkeypatch):
    lists = Cascade("quick", 1, (sz.get("sigma-zero", steps=5), sz.get("corner-at", steps=1)))
    monkeypatch.setitem(CASCADES, "quick", {"few": lists})
    net, x, y = problem(4)
    found = sz.SparseAutoAttack(net, eps=2, version="quick", verbose=False).run(x, y)
    assert found.left_out == ("corner-at",)
    assert "without corner-at" in found.headline
