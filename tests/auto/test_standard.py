"""The standard cascade: its members, a cost that is known, what slips past it, and random models."""

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.auto import VERSIONS, draws, versions
from sigmazero.auto.versions import Version, most_queries
from sigmazero.core.inputs import make_problem
from sigmazero.core.result import Outcome
from tests.auto.conftest import problem

FIRST = ["sigma-swap 2000", "sigma-zero-star 1000", "spgd-unprojected 10000", "sparse-rs 5000"]
FIRST_MINIMUM = ["sigma-swap 2000", "sigma-zero-star 1000", "spgd-unprojected-min 5000", "sparse-rs-min 5000"]


def _said(member: sz.Attack) -> str:
    return f"{member.name} {member.limit or member.steps}"


@pytest.mark.parametrize("eps", [1, 4, 5, 24, None])
def test_standard_begins_with_the_same_four_kinds_of_search(eps):
    members = VERSIONS["standard"].members(eps)
    assert [_said(member) for member in members[:4]] == (FIRST_MINIMUM if eps is None else FIRST)
    assert len(members) == 6


@pytest.mark.parametrize("unit", ["feature", "pixel"])
@pytest.mark.parametrize("shape", [(1, 14, 14), (1, 28, 28), (3, 32, 32)])
@pytest.mark.parametrize("eps", [1, 2, 4, 10, 24, None])
def test_a_sample_that_stands_costs_at_most_1_3_times_what_the_first_four_members_cost(shape, eps, unit):
    x = torch.zeros(1, *shape)
    asked = make_problem(x, torch.zeros(1, dtype=torch.int64), budget=eps, unit=unit)
    every = VERSIONS["standard"].fitting(eps, asked)
    assert every[:-1] == VERSIONS["standard"].members(eps)[:-1]
    assert every[-1].steps >= 150  # enough to be of use
    members = [m for m in every if not versions.too_large(m, asked)]
    assert most_queries(members, asked) <= 1.3 * most_queries(members[:4], asked)


def test_the_cost_that_is_stated_is_not_exceeded():
    net, x, y = problem(12)
    some = (sz.get("sigma-swap", queries=60), sz.get("corner-at", steps=20), sz.get("sparse-rs-inner", steps=30))
    for eps in (1, 2, 3):
        auto = sz.SparseAutoAttack(net, eps=eps, version="custom", attacks_to_run=some, verbose=False)
        auto.run_standard_evaluation(x, y)
        checks = 6  # clean and afresh, of each member
        assert int(auto.report.queries.sum(0).max()) <= auto.report.most + checks


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standard that takes seconds: blind to all but what it is tested for."""
    members = (sz.get("sigma-zero", steps=5), sz.get("corner-at", steps=20))
    monkeypatch.setitem(VERSIONS, "standard", Version("standard", 5, members, members, small=members))


@pytest.mark.parametrize("unit", ["pixel", "feature"])
def test_one_change_is_exact_over_corners_and_says_so(small, unit):
    net, x, y = problem(10, kind="rgb")
    auto = sz.SparseAutoAttack(net, eps=1, unit=unit, verbose=False)
    auto.run_standard_evaluation(x, y)
    fooled = net(x).argmax(1) != y
    sites = x.flatten(2) if unit == "pixel" else x.flatten(1)[:, None]
    for site in range(sites.shape[2]):
        for corner in itertools.product((0.0, 1.0), repeat=sites.shape[1]):
            point = sites.clone()
            point[:, :, site] = torch.tensor(corner, dtype=x.dtype)
            fooled |= net(point.view_as(x)).argmax(1) != y
    assert torch.equal(auto.report.result.success, fooled)
    assert auto.report.exact.startswith(f"exact at one {unit} over corners")
    assert auto.report.exact in str(auto.report)
    two = sz.SparseAutoAttack(net, eps=2, unit=unit, verbose=False)
    two.run_standard_evaluation(x, y)
    assert not two.report.exact


def test_inputs_with_too_many_single_changes_go_without_that_member(small, monkeypatch):
    net, x, y = problem(4)
    members = (sz.get("sigma-zero", steps=5), sz.get("corner-at", steps=1))
    monkeypatch.setitem(VERSIONS, "standard", Version("standard", 5, members, members))
    auto = sz.SparseAutoAttack(net, eps=2, verbose=False)
    auto.run_standard_evaluation(x, y)
    assert auto.report.left_out == ("corner-at",)
    assert "without corner-at" in auto.report.headline


class Trimmed(nn.Module):
    """Inputs at the ends of the box do not count."""

    def forward(self, x: Tensor) -> Tensor:
        inside = torch.where((x > 0.02) & (x < 0.98), x, 0.5).flatten(1)
        return torch.stack([inside.mean(1) - 0.45, 0.45 - inside.mean(1)], 1)


def test_values_inside_the_box_reach_what_corners_do_not():
    x, y = torch.full((3, 1, 4, 4), 0.5), torch.zeros(3, dtype=torch.int64)
    corners = sz.get("sparse-rs", steps=200).run(Trimmed(), x, y, budget=3)
    inside = sz.get("sparse-rs-inner", steps=200).run(Trimmed(), x, y, budget=3)
    assert not corners.success.any()
    assert inside.success.all()
    assert (inside.l0 <= 3).all()


class Votes(nn.Module):
    """Counts, through which no gradient comes."""

    def forward(self, x: Tensor) -> Tensor:
        bright = (x.flatten(1) > 0.5).sum(1)
        return torch.stack([bright, 16 - bright], 1).to(x.dtype)


def test_a_model_without_gradients_gets_the_members_that_need_none():
    x = torch.rand(6, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    y = Votes()(x).argmax(1)
    auto = sz.SparseAutoAttack(Votes(), eps=8, version="quick", verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        auto.run_standard_evaluation(x, y)
    assert auto.report.version == "quick-scores 1"
    assert auto.report.robust_accuracy() == 0
    refused = sz.SparseAutoAttack(Votes(), eps=8, version="custom", attacks_to_run=["sigma-zero"], verbose=False)
    with pytest.raises(TypeError, match="carries no gradient"):
        refused.run_standard_evaluation(x, y)


class Noisy(nn.Module):
    """A linear model with noise on its logits."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 3, generator=torch.Generator().manual_seed(2)))
        self.size, self.calls = size, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        logits = x.flatten(1) @ self.weight
        return logits + self.size * torch.randn_like(logits)


def _random(monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[sz.SparseAutoAttack, Tensor, Tensor, Noisy]:
    members = (sz.get("sigma-zero", steps=20), sz.get("sparse-rs", steps=30))
    monkeypatch.setitem(VERSIONS, "rand", Version("rand", 1, members, members[:1], draws=4))
    net = Noisy(0.5).requires_grad_(False)
    x = torch.rand(8, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    y = (x.flatten(1) @ net.weight).argmax(1)
    return sz.SparseAutoAttack(net, version="rand", verbose=False, **options), x, y, net


def test_a_random_model_is_wrong_by_majority(monkeypatch):
    auto, x, y, net = _random(monkeypatch, eps=3)
    torch.manual_seed(7)
    x_adv = auto.run_standard_evaluation(x, y)
    left = torch.random.get_rng_state()
    found = auto.report.result.outcome == Outcome.FOUND
    assert found.any()
    wrong = torch.stack([net(x_adv).argmax(1) != y for _ in range(400)]).double().mean(0)
    assert (wrong[found] > 0.5).all()
    torch.manual_seed(8)  # nothing depends on the state outside, nor changes it
    again, *_ = _random(monkeypatch, eps=3)
    assert torch.equal(again.run_standard_evaluation(x, y), x_adv)
    torch.manual_seed(7)
    assert torch.equal(torch.random.get_rng_state(), left)


@pytest.mark.filterwarnings("ignore:SZ003")
def test_points_that_are_wrong_by_luck_do_not_count():
    x, y = torch.full((4, 1, 4, 4), 0.5), torch.zeros(4, dtype=torch.int64)

    class Coin(nn.Module):
        """Class 0 most of the time, whatever it is asked."""

        def forward(self, x: Tensor) -> Tensor:
            tossed = (torch.rand(len(x)) < 0.4).to(x.dtype) + 0 * x.flatten(1).sum(1)
            return torch.stack([1 - tossed, tossed], 1)

    asked = make_problem(x, y, budget=2)
    lucky = sz.get("sparse-rs", steps=40).run(Coin(), x, y, budget=2)
    settled = draws.confirmed(lucky, asked, draws.Expected(Coin(), 4, seed=0))
    held = lucky.outcome == Outcome.FOUND
    assert held.any()
    assert not (settled.outcome == Outcome.FOUND).any()
    assert (settled.outcome[held] == Outcome.UNVERIFIED).all()
    assert torch.equal(settled.x_adv[held], x[held])
    assert settled.l0[held].isinf().all()
    assert torch.equal(settled.forwards, lucky.forwards * 4 + draws.TRIALS * held)


def test_an_answer_does_not_depend_on_company():
    net = Noisy(0.5).requires_grad_(False)
    asked, x = draws.Expected(net, 3, seed=1), torch.rand(5, 1, 4, 4)
    assert torch.allclose(asked(x)[2:3], asked(x[2:3]))
    assert not torch.allclose(asked(x), draws.Expected(net, 3, seed=2)(x))
