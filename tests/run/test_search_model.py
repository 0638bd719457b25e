"""Copies of a model made for speed: what is folded, what is left as it is, and what is dropped."""

import copy
import logging
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sigmazero.core.hardware import Prepare
from sigmazero.models.architectures import build
from sigmazero.run.fold import fold
from sigmazero.run.precision import Numbers
from sigmazero.run.search_model import Cast, Copy, search_copy, unwrapped

X = torch.rand(8, 3, 4, 4, generator=torch.Generator().manual_seed(2))
BUILT = [
    ("resnet20", {}, 19, 19),
    ("preact-resnet18", {}, 8, 17),
    ("wide-resnet", {"depth": 10, "width": 1}, 3, 7),
    ("resnet18-cifar", {}, 20, 20),
]


def settled(model: nn.Module) -> nn.Module:
    """The model in eval mode with norms that do something."""
    generator = torch.Generator().manual_seed(1)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 2, generator=generator)
    return model.eval().requires_grad_(False)


class Net(nn.Module):
    """A small network with norms; `kind` says what is special about it."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4 * 16, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 3)
        settled(self)
        self.out.bias.data -= self(X.clone()).mean(0)  # so that no class always wins

    def forward(self, x):
        if x.ndim != 4 or x.shape[1] != 3:
            raise ValueError("images, please")
        y = self.conv(x.sub_(0.3) if self.kind == "writes" else x)
        y = F.relu_(y) if self.kind == "between" else y
        skip = y if self.kind == "skip" else 0
        y = F.relu(self.bn(y)) + skip
        if self.kind == "twice":
            y = self.bn(y)
        if self.kind == "unfolded" and isinstance(self.bn, nn.Identity):
            y = -y
        if self.kind == "random":
            y = y + 10 * torch.randn(y.shape)
        if self.kind == "data" and y.sum() > 1e9:
            return self.out(self.norm(self.fc(y.flatten(1)))) * 0
        y = self.fc(y.flatten(1))
        return self.out(F.relu(self.norm(y)))


def asked(model: Any, x: Tensor, bf16: bool = False, prepare: Prepare = "fold") -> Any:
    with torch.no_grad():
        return search_copy(model, x, Numbers.strict("cpu"), bf16=bf16, prepare=prepare)


@pytest.mark.parametrize(("name", "options", "folded", "norms"), BUILT)
def test_norms_are_folded_and_answers_stay(name, options, folded, norms):
    model = settled(build(name, **options))
    assert sum(isinstance(m, nn.BatchNorm2d) for m in model.modules()) == norms
    own, x = copy.deepcopy(model), torch.rand(2, 3, 32, 32)
    assert fold(own, x) == folded
    before, after = model(x), own(x)
    assert (before - after).abs().max() < 1e-5 * before.abs().max()
    assert sum(isinstance(m, nn.BatchNorm2d) for m in own.modules()) == norms - folded
    assert not any(p.requires_grad for p in own.parameters())


@pytest.mark.parametrize(
    ("kind", "folded"), [("plain", 2), ("skip", 1), ("twice", 1), ("data", 2), ("between", 1), ("writes", 2)]
)
def test_only_a_norm_that_is_alone_behind_its_layer_is_folded(kind, folded):
    net = Net(kind)
    own = copy.deepcopy(net)
    assert fold(own, X) == folded
    assert torch.allclose(own(X.clone()), net(X.clone()), atol=1e-5)
    assert not own.bn._forward_pre_hooks


def test_a_copy_that_answers_otherwise_is_dropped_under_its_code(caplog):
    net = Net("random")
    assert asked(net, X) is net
    assert "SZ016" in caplog.text
    assert "so do its own from call to call: is dropout on?" in caplog.text
    caplog.clear()
    net = Net("unfolded")
    assert asked(net, X) is net
    assert "SZ016" in caplog.text
    assert "prepare='none' makes none" in caplog.text


class Stubborn(Net):
    def __deepcopy__(self, memo):
        raise TypeError("never\nat all")


def double_weights(net: Net) -> Net:
    net.out.double()
    return net


def with_hook(net: Net) -> Net:
    net.conv.register_forward_hook(lambda *_: None)
    return net


def scripted(net: Net) -> nn.Module:
    return torch.jit.trace(net, X)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda _: Stubborn(), "no copy of it could be made (never)"),
        (scripted, "the model is a script"),
        (with_hook, "the model has hooks"),
        (double_weights, "weights in torch.float64"),
    ],
    ids=["stubborn", "script", "hooks", "double"],
)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_what_cannot_be_taken_apart_is_searched_as_it_is_and_said(change, words, caplog):
    model = change(Net())
    with caplog.at_level(logging.INFO, "sigmazero"):
        assert asked(model, X) is model
    assert words in caplog.text


def test_models_that_gain_nothing_are_searched_themselves():
    net, bare = Net(), nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(8, 3)).eval()

    def function(x):
        return net(x)

    for model in (bare, function):
        assert asked(model, X) is model
    assert asked(net, X, prepare="none") is net
    assert asked(double := Net().double(), X.double()) is double
    assert isinstance(asked(bare, X, bf16=True), Copy)
    assert isinstance(asked(function, X, bf16=True), Cast)
    lowered = asked(net, X, prepare="none", bf16=True)
    assert isinstance(lowered.model.bn, nn.BatchNorm2d)
    assert (next(lowered.parameters()).dtype, lowered(X).dtype) == (torch.bfloat16, torch.float32)


def test_a_copy_is_of_the_network_inside_and_knows_nothing_of_it():
    net = Net()
    for wrapped in (torch.compile(net, backend="eager"), nn.DataParallel(net), net):
        assert unwrapped(wrapped) is net
        made = asked(wrapped, X)
        assert isinstance(made, Copy)
    before = made(X)
    net.out.weight.data.zero_()
    assert torch.equal(made(X), before)
    assert isinstance(net.bn, nn.BatchNorm2d)
