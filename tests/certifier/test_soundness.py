"""No bound may be above what a point of its region has, on random networks of all kinds of layers."""

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.certifier import relaxation
from sigmazero.certifier.bounds import NetworkBounds
from sigmazero.certifier.crown import Known, LinearForms
from sigmazero.certifier.graph import UnknownOperation, trace
from sigmazero.certifier.regions import OneSitePerGroup
from sigmazero.certifier.relaxation import Relaxation
from sigmazero.certifier.subproblems import SiteGroups, curve
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
    sites = SiteGroups(torch.zeros(3, dtype=torch.long), begin, begin + 2).sites(curve(4, 4, 1 if pixels else 2))
    region = OneSitePerGroup(sites, lo, hi, torch.zeros(3, dtype=torch.long), pixels)
    tasks, origin = torch.arange(3).repeat(40), torch.randint(-1, 4, (120, 2))
    forms = LinearForms(torch.randn(120, 2, 2, 2, dtype=torch.float64), tasks, origin)
    found, expected = region.least(forms), region.least(forms.whole((4, 4, 2)))
    assert torch.allclose(found, expected, rtol=1e-12)
    assert bool((expected == 0).any())
    assert bool((expected < 0).any())


def _flipped(lines: Relaxation, part: int) -> Relaxation:
    """Lines with the offset of the lower (0) or upper (1) one gone."""
    packed = lines.packed.clone()
    c = lines.channels
    start = 2 * lines.slopes * c + part * c
    packed[..., start : start + c] = 0
    return Relaxation(packed, lines.slopes, lines.largest)


@pytest.mark.parametrize(("name", "part"), [("relax_relu", 0), ("relax_relu", 1), ("relax_pool", 0), ("relax_pool", 1)])
def test_a_wrong_line_is_caught(monkeypatch, name, part):
    right = getattr(relaxation, name)
    monkeypatch.setattr(relaxation, name, lambda *given: _flipped(right(*given), part))
    assert any(examined(seed).wrong for seed in SEEDS)


def test_more_groups_than_a_byte_counts_may_move():
    """A task of 200 sites, each a group of its own: all of them move."""
    ends = torch.ones(1, 1, 1, 200, dtype=torch.float64)
    region = OneSitePerGroup(torch.arange(200)[None, :, None], -ends, ends, torch.zeros(1, dtype=torch.long))
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
    bounds = NetworkBounds(trace(model, torch.rand(2, *shape)))
    monkeypatch.setattr(bounds, "_least", lambda *given: torch.tensor([torch.nan, -0.5]))
    end, wanted = torch.full((1, 1, 1, 3), -sign), torch.tensor([True, True, False]).view(1, 1, 1, 3)
    found = bounds._end(Known(bounds.network, None), 1, end, wanted, sign)
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


UNEVEN = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch copies the input


def padded(seed):
    """A network whose edges are unlike on all sides, and the shape of its inputs."""
    torch.manual_seed(seed)
    size, dilation = ((2, 3), (1, 2)) if seed % 2 else ((4, 2), 1)
    first = nn.Conv2d(2, 4, size, padding="same", dilation=dilation, groups=1 + seed % 2)
    second = nn.Conv2d(4, 3, 2, padding="valid")
    body = (nn.ZeroPad2d((1, 0, 0, 2)), first, nn.ReLU(), nn.ZeroPad2d((0, 1, 2, 0)), second, nn.ReLU(), nn.Flatten())
    width = nn.Sequential(*body)(torch.rand(1, 2, 4, 3)).shape[1]
    return with_weights(nn.Sequential(*body, nn.Linear(width, 3))), (2, 4, 3)


@UNEVEN
def test_bounds_hold_with_uneven_edges():
    found = [examined(seed, padded) for seed in range(8)]
    assert sum(each.wrong for each in found) == 0
    assert min(each.nearest for each in found) < 0.05, "the points never come near a bound: nothing is tested"


@UNEVEN
def test_same_is_what_it_says():
    """The same proofs as for the network with the zeros of "same" written out."""
    torch.manual_seed(0)
    named = nn.Conv2d(1, 3, (2, 4), padding="same")
    written = nn.Conv2d(1, 3, (2, 4))
    head = (nn.ReLU(), nn.Flatten(), nn.Linear(27, 2))
    x = torch.rand(4, 1, 3, 3)
    one, other = with_weights(nn.Sequential(named, *head)), nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), written, *head)
    written.load_state_dict(named.state_dict())
    found, expected = (sz.certify(model.eval(), x, one(x).argmax(1), up_to=3) for model in (one, other))
    assert found.lower.tolist() == expected.lower.tolist()
    assert len(set(found.lower.tolist())) > 1, "all inputs are alike: little is shown"


@pytest.mark.parametrize(
    "layer",
    [
        nn.ConstantPad2d(1, 0.5),
        nn.ZeroPad2d((-1, 0, 0, 0)),
        nn.ReflectionPad2d(1),
        nn.ConstantPad3d((0, 0, 0, 0, 1, 0), 0.0),
    ],
)
def test_other_edges_are_refused(layer):
    with pytest.raises(UnknownOperation, match="not known"):
        trace(nn.Sequential(layer, nn.Flatten()).eval(), torch.rand(2, 2, 4, 3))
