"""No bound may be above what a point of its region has, on random networks of all kinds of layers."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.certifier import relax
from sigmazero.certifier.backward import Known
from sigmazero.certifier.bounds import Bounder
from sigmazero.certifier.forms import Forms
from sigmazero.certifier.graph import trace
from sigmazero.certifier.planes import Forward, Free
from sigmazero.certifier.regions import Groups
from sigmazero.certifier.relax import Straight
from sigmazero.certifier.tasks import Tasks, curve
from tests.certifier.soundness import examined, random_network, with_weights

SEEDS = range(1, 60)


@pytest.mark.parametrize("first", range(0, 100, 20))
def test_bounds_hold(first):
    found = [examined(seed) for seed in range(first, first + 20)]
    assert sum(each.wrong for each in found) == 0
    assert min(each.nearest for each in found) < 0.05, "the points never come near a bound: nothing is tested"


@pytest.mark.parametrize("pixels", [False, True])
def test_a_window_has_the_least_of_the_whole(pixels):
    """Forms in windows that meet some groups and miss others, also a group that comes twice."""
    torch.manual_seed(0)
    lo, hi = -torch.rand(1, 4, 4, 2, dtype=torch.float64), torch.rand(1, 4, 4, 2, dtype=torch.float64)
    begin = torch.tensor([[0, 4, 4], [2, 2, 2], [0, 2, 6]])
    sites = Tasks(torch.zeros(3, dtype=torch.long), begin, begin + 2).sites(curve(4, 4, 1 if pixels else 2))
    region = Groups(sites, lo, hi, torch.zeros(3, dtype=torch.long), pixels)
    tasks, origin = torch.arange(3).repeat(40), torch.randint(-1, 4, (120, 2))
    forms = Forms(torch.randn(120, 2, 2, 2, dtype=torch.float64), tasks, origin)
    found, expected = region.least(forms), region.least(forms.whole((4, 4, 2)))
    assert torch.allclose(found, expected, rtol=1e-12)
    assert bool((expected == 0).any())
    assert bool((expected < 0).any())


def _flipped(lines: Straight, part: int) -> Straight:
    """Lines with the offset of the lower (0) or upper (1) one gone."""
    packed = lines.packed.clone()
    c = lines.channels
    start = 2 * lines.slopes * c + part * c
    packed[..., start : start + c] = 0
    return Straight(packed, lines.slopes, lines.largest)


@pytest.mark.parametrize(("name", "part"), [("relu_lines", 0), ("relu_lines", 1), ("pool_lines", 0), ("pool_lines", 1)])
def test_a_wrong_line_is_caught(monkeypatch, name, part):
    right = getattr(relax, name)
    monkeypatch.setattr(relax, name, lambda *given: _flipped(right(*given), part))
    assert any(examined(seed).wrong for seed in SEEDS)


def test_a_wrong_slope_is_caught(monkeypatch):
    right = relax.relu_lines

    def steep(layer, z, error, interval):
        lines = right(layer, z, error, interval)
        c = lines.channels
        low, high, rest = lines.packed[..., :c], lines.packed[..., c : 2 * c], lines.packed[..., 2 * c :]
        return Straight(torch.cat((high, low, rest), 3), 1, lines.largest)

    monkeypatch.setattr(relax, "relu_lines", steep)
    assert any(examined(seed).wrong for seed in SEEDS)


def test_a_sum_of_too_few_gains_is_caught(monkeypatch):
    right = Groups._best
    monkeypatch.setattr(Groups, "_best", lambda self, gain, tasks: right(self, gain, tasks) * 0.5)
    assert any(examined(seed).wrong for seed in SEEDS)


@pytest.mark.parametrize("name", ["_conv", "_relu", "_pool"])
def test_a_wrong_plane_is_caught(monkeypatch, name):
    """The planes above fall onto those below."""
    right = getattr(Forward, name)

    def low(self, *given):
        found = right(self, *given)
        planes, *slack = found if isinstance(found, tuple) else (found,)
        planes = replace(planes, high=planes.low.clone())
        return (planes, *slack) if slack else planes

    monkeypatch.setattr(Forward, name, low)
    assert any(examined(seed).wrong for seed in SEEDS)


def test_a_plane_that_is_searched_in_part_is_caught(monkeypatch):
    right = Free.least
    monkeypatch.setattr(Free, "least", lambda self, planes: (right(self, planes) + planes[:, -1]) / 2)
    assert any(examined(seed).wrong for seed in SEEDS)


def test_more_groups_than_a_byte_counts_may_move():
    """A task of 200 sites, each a group of its own: all of them move."""
    ends = torch.ones(1, 1, 1, 200, dtype=torch.float64)
    region = Groups(torch.arange(200)[None, :, None], -ends, ends, torch.zeros(1, dtype=torch.long))
    lo, hi = region.interval
    assert bool((lo == -1).all())
    assert bool((hi == 1).all())


def pooled_logits(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """Networks whose last layer is no linear one: a mean of each channel, or windows with gaps."""
    torch.manual_seed(seed)
    ends = (nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 3, 2, dilation=(2, 3)), nn.Conv2d(3, 3, (3, 4), groups=3))
    layers = [nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1, stride=2), ends[seed % 3], nn.Flatten()]
    return with_weights(nn.Sequential(*layers)), (1, 5, 7)


def test_logits_may_be_means_of_channels():
    found = [examined(seed, pooled_logits) for seed in range(1, 8)]
    assert sum(each.wrong for each in found) == 0
    assert min(each.nearest for each in found) < 0.05


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_is_not_a_number_makes_no_interval_narrower(monkeypatch, sign):
    """An interval without ends would count as one in which nothing moves."""
    model, shape = random_network(1)
    bounder = Bounder(trace(model, torch.rand(2, *shape)))
    monkeypatch.setattr(bounder, "_least", lambda *given: torch.tensor([torch.nan, -0.5]))
    end, wanted = torch.full((1, 1, 1, 3), -sign), torch.tensor([True, True, False]).view(1, 1, 1, 3)
    found = bounder._end(Known(bounder.network, None), 1, end, wanted, sign)
    assert found.flatten().tolist() == [-sign, -0.5 * sign, -sign]


def test_what_underflow_takes_away_is_not_proved():
    """Weights that make values too small for float64, and large again: a change of 0.5 is one of the logits at last."""
    layers: list[nn.Module] = []
    for scale in (1e-170, 1e-170, 1e170, 1e170):
        linear = nn.Linear(1, 1).double()
        nn.init.constant_(linear.weight, scale)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.ReLU()]
    last = nn.Linear(1, 2).double()
    last.weight.data, last.bias.data = torch.tensor([[0.0], [1.0]]).double(), torch.tensor([0.75, 0.0]).double()
    model = nn.Sequential(*layers, last).requires_grad_(False)
    found = sz.certify(model, torch.full((1, 1), 0.5).double(), torch.tensor([0]), attack=None, time_limit=5)
    assert found.status == ["open"]
