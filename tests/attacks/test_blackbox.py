"""Models that have scores or labels alone: what works on them, what is refused, and that nobody sees more than that."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.core.model import Ability, ability_of
from tests.helpers.networks import TinyNet, linear_optimum, linear_problem


class Dull(nn.Module):
    """A network of which no more than its scores can be had."""

    def __init__(self, net: nn.Module, has: str) -> None:
        super().__init__()
        self.net, self.ability = net, has

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x).detach()
        return logits


def test_an_ability_of_no_such_word_is_named_and_an_attribute_of_another_kind_is_not_ours():
    net = TinyNet("conv")
    model = Dull(net, "score")
    with pytest.raises(ValueError, match="ability='score' is not one of 'gradients', 'scores', 'labels'"):
        sz.get("corner").run(model, net.x, net.y)
    model.ability = 3
    assert ability_of(model) == "gradients"


def test_who_says_scores_gets_no_gradients():
    net = TinyNet("conv")

    @dataclass(frozen=True, kw_only=True)
    class Sly(type(sz.get("fmn"))):
        needs: ClassVar[Ability] = "scores"

    with pytest.raises(TypeError, match=r'scores are all it needs; for gradients say needs = "gradients"'):
        Sly(steps=3).run(net, net.x, net.y)


def test_a_surrogate_helps_and_is_not_counted():
    model, x, y = linear_problem((300,), 24)
    optimum = linear_optimum(model, x, y)
    rows = []

    def asked(points: Tensor) -> Tensor:
        rows.append(len(points))
        logits: Tensor = model(points)
        return logits

    guided = sz.get("query-swap", steps=60, surrogate=model.eval()).run(asked, x, y)
    assert sum(rows) == guided.forwards.sum()
    blind = sz.get("query-swap", steps=60).run(model, x, y)
    assert guided.l0.mean() < 0.8 * blind.l0.mean()
    assert guided.l0.mean() <= 1.25 * optimum.mean()


@pytest.mark.parametrize("kind", ["rgb", "conv"])
def test_a_surrogate_guides_in_any_kind_of_input(kind):
    """Pixels, features and the targets of classes, from two queries on; what was asked stays within the steps."""
    net, other = TinyNet(kind), TinyNet(kind).eval()
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(0.1 * weight.std(correction=0) * torch.randn_like(weight))
    x, y = net.x[:4], net.y[:4]
    for steps, more in ((2, {}), (12, {}), (160, {"unit": "pixel"}), (40, {"targeted": True})):
        goal = (y + 1) % net(x).shape[1] if more.get("targeted") else y
        result = sz.get("query-swap", steps=steps, surrogate=other).run(net, x, goal, **more)
        assert int(result.forwards.max()) <= steps + 3  # the clean check, and two of the success
        assert steps < 160 or result.success.all()


def test_surrogates_that_cannot_be_asked_are_refused():
    net = TinyNet("conv")
    with pytest.raises(ValueError, match=r"the surrogate is in training mode; call surrogate\.eval"):
        sz.get("query-swap", surrogate=net.train()).run(net, net.x, net.y)
    with pytest.raises(ValueError, match="steps=1 are too few with a surrogate; pass steps=2 or more"):
        sz.get("query-swap", steps=1, surrogate=net.eval()).run(net, net.x, net.y)
    with pytest.raises(ValueError, match="surrogate='M2' must be a network"):
        sz.get("query-swap", surrogate="M2")


def test_evaluate_refuses_before_anything_is_stored(tmp_path):
    net = TinyNet("conv", torch.float32)
    model, rows = Dull(net, "scores"), (net.x.float(), net.y)
    with pytest.raises(ValueError, match="fmn needs gradients"):
        sz.evaluate(model, rows, ["query-swap", "fmn"], store=tmp_path / "a.db")
    assert not list(tmp_path.iterdir())


def test_with_few_queries_each_feature_is_tried_once():
    """A flag that is set has one change, to 0; numbers have many, and one of each comes first."""
    x = torch.cat([torch.full((4, 40), 50.0), torch.ones(4, 8)], 1)
    space = sz.Space(kind=["integer"] * 40 + ["binary"] * 8, upper=[100] * 40 + [1] * 8)

    def model(points: Tensor) -> Tensor:
        score = points[:, 43] - 0.5 + 1e-4 * (points[:, :40] - 50).abs().sum(1)
        return torch.stack([score, 0 * score], 1)

    result = sz.get("query-swap", steps=100).run(model, x, torch.zeros(4).long(), space=space)
    assert result.l0.tolist() == [1.0] * 4


def test_a_climb_goes_back_where_nothing_helps():
    x, changes = torch.full((1, 48), 5.0), []

    def flat(points: Tensor) -> Tensor:
        changes.extend((points != x).sum(1).tolist())
        return torch.tensor([[1.0, 0.0]]).repeat(len(points), 1)

    space = sz.Space(kind="integer", upper=10)
    assert not sz.get("query-swap", steps=2000).run(flat, x, torch.tensor([0]), space=space).success.any()
    assert max(changes[:1190]) < 30  # before the search begins


def test_without_an_example_the_search_begins_where_the_climb_came_closest():
    x, asked = torch.full((1, 60), 5.0), []

    def narrow(points: Tensor) -> Tensor:  # one change lowers the margin, all others raise it
        asked.extend((points[:, 7] > 5).tolist())
        return torch.stack([1 - 0.5 * (points[:, 7] > 5).double() + 1e-3 * (points != x).sum(1), 0 * points[:, 0]], 1)

    space = sz.Space(kind="integer", upper=10)
    result = sz.get("query-swap", steps=200).run(narrow, x, torch.tensor([0]), space=space)
    assert not result.success.any()
    assert all(asked[110:])  # the climb's last points and the whole search have that change
