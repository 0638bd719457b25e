"""Models that have scores or labels alone: what works on them, what is refused, and that nobody sees more than that."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.attacks.blackbox import slopes
from sigmazero.attacks.blackbox.query_swap import QuerySwap
from sigmazero.bench.cells import expand
from sigmazero.bench.plan_file import parse_plan
from sigmazero.core.inputs import make_problem
from sigmazero.core.model import Ability, ability_of
from sigmazero.core.oracle import Oracle
from tests.helpers.networks import TinyNet, linear_optimum, linear_problem
from tests.plans import NET, trusting


class Dull(nn.Module):
    """A network of which no more can be had than it says."""

    def __init__(self, net: nn.Module, has: str) -> None:
        super().__init__()
        self.net, self.ability = net, has

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x).detach()
        if self.ability == "scores":
            return logits
        return F.one_hot(logits.argmax(1), logits.shape[1]).to(x.dtype)


def test_an_ability_of_no_such_word_is_named_and_an_attribute_of_another_kind_is_not_ours():
    net = TinyNet("conv")
    model = Dull(net, "score")
    with pytest.raises(ValueError, match="ability='score' is not one of 'gradients', 'scores', 'labels'"):
        sz.get("corner").run(model, net.x, net.y)
    model.ability = 3
    assert ability_of(model) == "gradients"


def test_labels_are_all_that_is_seen():
    """On a network that could say more the search is the one on a model that says its classes alone."""
    net = TinyNet("rgb")
    attack = sz.get("label-swap", steps=60)
    open_, closed = (attack.run(model, net.x, net.y) for model in (net, Dull(net, "labels")))
    assert torch.equal(open_.x_adv, closed.x_adv)
    assert torch.equal(open_.forwards, closed.forwards)
    oracle = Oracle(net, make_problem(net.x, net.y), shows="labels")
    logits = net(net.x)
    assert torch.equal(oracle.logits(net.x), F.one_hot(logits.argmax(1), logits.shape[1]).double())


def test_who_says_scores_gets_no_gradients():
    net = TinyNet("conv")

    @dataclass(frozen=True, kw_only=True)
    class Sly(type(sz.get("fmn"))):
        needs: ClassVar[Ability] = "scores"

    with pytest.raises(TypeError, match=r'scores are all it needs; for gradients say needs = "gradients"'):
        Sly(steps=3).run(net, net.x, net.y)


def test_tiles_cover_an_image_in_squares_and_tables_evenly():
    x = torch.rand(2, 3, 9, 10)
    p = make_problem(x, torch.zeros(2).long()).domain
    for most in (3, 16, 40, 400):
        side, count = slopes.grid(p, most)
        tile = slopes.tiles(p, most).view(3, 9, 10)
        assert tile.unique().tolist() == list(range(count))
        assert count <= max(most, 3)
        assert (tile[:, :side, :side] == tile[:, :1, :1]).all()
    table = make_problem(x.flatten(1), torch.zeros(2).long()).domain
    assert slopes.tiles(table, 100).bincount().tolist() == [3] * 70 + [2] * 30


def test_slopes_of_a_linear_model_are_learnt_from_its_answers():
    model, x, y = linear_problem((12,), 1, seed=4)
    p = make_problem(x, y).domain
    other = int(model(x)[0].argsort()[-2])
    true = (model.weight[y[0]] - model.weight[other]).detach()
    known = slopes.begin(p)
    g = torch.Generator().manual_seed(0)
    for _ in range(400):
        z = torch.randn(1, 1, 12, generator=g, dtype=torch.float64)
        known = replace(known, doubt=torch.ones_like(known.doubt))  # as if nothing were sure: no step becomes small
        known = slopes.learn(known, p, z, (z[:, 0] * true).sum(1))
    assert torch.allclose(known.g[0, 0], true, atol=1e-3)
    assert torch.equal(slopes.learn(known, p, z, torch.tensor([torch.nan])).g, known.g)


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


def test_the_cascade_picks_its_members_by_ability(capsys):
    net = TinyNet("conv")
    for has, members in (("scores", ("query-swap", "sparse-rs")), ("labels", ("label-swap",))):
        auto = sz.SparseAutoAttack(Dull(net, has), eps=20, version="quick")
        auto.run_standard_evaluation(net.x[:2], net.y[:2])
        assert auto.result.members == members
        assert capsys.readouterr().out.startswith(f"quick-{has} 1: 2 samples")
    with pytest.raises(ValueError, match="fmn needs gradients, and this model has labels only; use label-swap"):
        sz.SparseAutoAttack(Dull(net, "labels"), version="custom", attacks_to_run=["fmn"])


def test_evaluate_refuses_before_anything_is_stored(tmp_path):
    net = TinyNet("conv", torch.float32)
    model, rows = Dull(net, "scores"), (net.x.float(), net.y)
    with pytest.raises(ValueError, match="fmn needs gradients"):
        sz.evaluate(model, rows, ["query-swap", "fmn"], store=tmp_path / "a.db")
    assert not list(tmp_path.iterdir())


def test_plans_name_surrogates_whose_weights_are_part_of_the_question(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    np.savez("mine.npz", images=np.random.default_rng(0).random((3, 60), dtype="float32"), labels=np.arange(3))
    text = """
    [data.mine]
    source = "mine.npz"
    [attacks.guided]
    attack = "query-swap"
    steps = 40
    parameters = { surrogate = "net.py:other" }
    [[grid]]
    models = ["net.py:build"]
    data = ["mine"]
    attacks = ["guided"]
    """

    def key() -> str:
        loader = trusting()
        (cell,), missing = expand(parse_plan(text, "plan").questions, loader)
        assert not missing
        ready = loader.ready(cell.question.attack)
        assert isinstance(ready, QuerySwap)
        assert isinstance(ready.surrogate, nn.Module)
        assert cell.info.parameters["surrogate"] == "net.py:other"
        return cell.info.key

    first = key()
    assert first == key()
    (tmp_path / "net.py").write_text(NET.replace("Net(5)", "Net(6)"))
    assert first != key()
