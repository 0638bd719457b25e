"""Networks of torch that are not plain: outputs with logits, one column, channels last, programs, quantised layers."""

import types
from typing import Any

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.models.doctor import examine


class ModelOutput(dict[str, Any]):
    """As Hugging Face has it: a dictionary whose entries are also attributes."""

    def __getattr__(self, name):
        return self[name]


class Odd(nn.Module):
    def __init__(self, twist):
        super().__init__()
        self.inner, self.twist = nn.Linear(6, 3), twist

    def forward(self, x):
        return self.twist(self.inner(x))


@pytest.mark.parametrize(
    "twist",
    [
        lambda z: ModelOutput(loss=None, logits=z),
        lambda z: types.SimpleNamespace(logits=z),
        lambda z: {"logits": z, "hidden": z[:, :1]},
        lambda z: (z, "attentions"),
    ],
)
def test_outputs_that_hold_the_logits(twist):
    torch.manual_seed(0)
    model, x = Odd(twist), torch.rand(4, 6)
    y = model.inner(x).argmax(1)
    attack = sz.get("sigma-zero", steps=10)
    assert torch.equal(attack.run(model, x, y).x_adv, attack.run(model.inner, x, y).x_adv)
    assert examine(model, x, y) == []


def test_normalisation_in_front():
    net, x = nn.Sequential(nn.Flatten(), nn.Linear(12, 3)), torch.rand(2, 3, 2, 2)
    mean, std = [0.1, 0.2, 0.3], [0.5, 0.25, 2.0]
    wanted = net((x - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1))
    for given in ((mean, std), (torch.tensor(mean), torch.tensor(std)), "0.1:0.2:0.3,0.5:0.25:2.0"):
        assert torch.allclose(sz.wrap(net, normalize=given)(x), wanted, atol=1e-5)
    net.pretrained_cfg = {"mean": mean, "std": std}  # as timm has it
    assert torch.allclose(sz.wrap(net)(x), wanted, atol=1e-5)
    assert sz.wrap(net, normalize=False) is net
    net.pretrained_cfg = {"mean": None}
    with pytest.raises(ValueError, match="normalize="):
        sz.wrap(net)


def test_one_output_needs_a_word():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid()), torch.rand(5, 6)
    y = (net(x)[:, 0] > 0.5).long()
    with pytest.raises(ValueError, match=r"from 0\.\d+ to 0\.\d+.*gives='scores'"):
        sz.get("sigma-zero", steps=5).run(net, x, y)
    (found,) = examine(net, x, y)
    assert (found.code, "gives='probabilities'" in found.fix) == ("SZ009", True)
    model = sz.wrap(net, gives="probabilities")
    assert torch.allclose(model(x).exp()[:, 1:], net(x).double())
    result = sz.get("sigma-zero", steps=40).run(model, x, y)
    assert result.success.any()
    assert torch.equal((net(result.x_adv)[:, 0] > 0.5) != y.bool(), result.success)
    assert torch.equal(sz.wrap(net[0], gives="scores")(x).argmax(1), (net[0](x)[:, 0] > 0).long())


@pytest.mark.parametrize("dynamic", [False, True])
def test_an_exported_program_takes_any_number_of_rows(dynamic, tmp_path):
    network, x = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), torch.rand(5, 1, 2, 2)
    shapes = {"dynamic_shapes": ({0: torch.export.Dim("batch", min=1, max=64)},)} if dynamic else {}
    made = torch.export.export(network.eval(), (x[:2],), **shapes)
    torch.export.save(made, tmp_path / "m.pt2")
    for model in (sz.wrap(made), sz.models.load(tmp_path / "m.pt2")):
        assert torch.allclose(model(x), network(x), atol=1e-6)
        (grad,) = torch.autograd.grad(model(x.requires_grad_()).sum(), x)
        assert torch.allclose(grad[0].flatten(), network[1].weight.sum(0), atol=1e-6)
        model.eval().train()  # the program itself would refuse
    assert sz.get("sigma-zero", steps=20).run(made, x.detach(), network(x).argmax(1)).success.any()
