"""The bound on the model's own rounding holds on random networks, and a proof counts it."""

import copy

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.certifier.bounds import NetworkBounds, Strength
from sigmazero.certifier.certify import Certifier
from sigmazero.certifier.graph import trace
from sigmazero.certifier.regions import OneSitePerGroup
from sigmazero.certifier.rounding import model_error
from sigmazero.certifier.subproblems import Question
from sigmazero.run.precision import Settings
from tests.certifier.soundness import random_network

T = 2


def worst_and_bound(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """How far float32 lowers margins at points with T changes at most, and the bound (rows, classes)."""
    model, shape = random_network(seed)
    x = torch.rand(2, *shape, generator=torch.Generator().manual_seed(seed))
    y = model(x).argmax(1)
    question = Question(model, NetworkBounds(trace(model, x)), x, y, torch.zeros_like(x), torch.ones_like(x))
    rows = torch.arange(2)
    region = OneSitePerGroup(question.whole(rows, T).sites(question.order), *question.ends, rows)
    bound = model_error(question.bounds, question.clean, region, y, Strength(seed % 2 * 2))
    generator = torch.Generator().manual_seed(seed)
    count = 400
    points = x.flatten(1).repeat_interleave(count, 0)
    sites = torch.randint(points.shape[1], (len(points), T), generator=generator)
    points.scatter_(1, sites, torch.rand(sites.shape, generator=generator))
    points = points.view(-1, *shape)
    exact, rounded = copy.deepcopy(model).double()(points.double()), model(points).double()
    label = y.repeat_interleave(count)[:, None]
    lost = (exact.gather(1, label) - exact) - (rounded.gather(1, label) - rounded)
    return lost.view(2, count, -1).amax(1), bound


def test_rounding_never_takes_more():
    shares = []
    for seed in range(60):
        lost, bound = worst_and_bound(seed)
        assert (lost <= bound).all(), seed
        shares.append(float((lost / bound.clamp_min(1e-30)).max()))
    assert max(shares) > 0.01, "the bound is so loose that nothing is tested"


def barely(seed: int) -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """A network whose margin over the reals is about 1e-8 at the worst of many points with one change."""
    torch.manual_seed(seed)
    last = nn.Linear(48, 2)
    net = nn.Sequential(nn.Linear(16, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), last).requires_grad_(False)
    x = torch.rand(1, 16)
    y = net(x).argmax(1)
    points = x.repeat(16, 65, 1)
    for feature in range(16):
        points[feature, :, feature] = torch.linspace(0, 1, 65)
    logits = copy.deepcopy(net).double()(points.double().view(-1, 16))
    last.bias[y] -= (logits[:, y] - logits[:, 1 - y]).min().float() - 1e-8
    return net, x, y


@pytest.mark.parametrize("seed", range(3))
def test_margins_below_the_rounding_are_not_proved(seed):
    net, x, y = barely(seed)
    found = sz.certify(net, x, y, attack=None, time_limit=20)
    assert found.status != ["proved"]
    assert not found.over_reals.any()


def test_what_cannot_be_shown_holds_over_the_reals():
    net, x, y = barely(0)
    net[4].bias[y] += 1
    assert not sz.certify(net, x, y, attack=None).over_reals.any()
    real = sz.certify(net, x, y, attack=None, arithmetic="real")
    assert real.over_reals.tolist() == [True]
    assert "over the reals" in real.table()
    cancelling = nn.Linear(2, 2).requires_grad_(False)  # terms of 5e5 leave a margin of 0.05
    cancelling.weight.copy_(torch.tensor([[1e6, -1e6], [0.0, 0.0]]))
    cancelling.bias.copy_(torch.tensor([0.05, 0.0]))
    point = torch.full((1, 2), 0.5)
    found = sz.certify(cancelling, point, torch.tensor([0]), bounds=(0.5 - 1e-9, 0.5 + 1e-9), attack=None)
    assert (found.status, found.over_reals.tolist()) == (["proved"], [True])
    before = Settings.read()
    try:
        torch.set_float32_matmul_precision("high")
        assert sz.certify(net, x, y, attack=None).over_reals.all()
    finally:
        before.write()


@pytest.mark.parametrize("ending", [nn.Softmax(1), nn.LogSoftmax(-1)])
def test_a_softmax_at_the_end_changes_no_proof(ending):
    net, x, y = barely(0)
    net[4].bias[y] += 0.3
    plain, after = (sz.certify(each, x, y, up_to=2, attack=None) for each in (net, nn.Sequential(net, ending)))
    assert plain.lower.tolist() == after.lower.tolist()
    assert plain.lower.item() > 1
    with pytest.raises(ValueError, match=r"after .*softmax"):
        sz.certify(nn.Sequential(net, ending, nn.Linear(2, 2)), x, y, attack=None)


def test_a_model_that_changes_its_buffers_is_refused():
    class Counting(nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 2)
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.get_buffer("seen").add_(1)
            return super().forward(x)

    with pytest.raises(ValueError, match="changes seen while it computes"):
        sz.certify(Counting().requires_grad_(False), torch.rand(1, 4), torch.tensor([0]), attack=None)


def test_a_proof_over_the_reals_stays_one_when_the_search_goes_on():
    net, x, y = barely(0)
    going_on = Certifier(net, x, y, up_to=2, attack=None, time_limit=1e-9, known=torch.tensor([2]))
    going_on.found.over_reals[:] = True
    list(going_on.run(lambda rows: None))
    assert (going_on.found.status, going_on.found.over_reals.tolist()) == (["open"], [True])
