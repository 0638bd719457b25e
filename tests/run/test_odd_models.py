"""Models that a copy made for speed could break: each is searched, said so in one line, and left as it was."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.core.hardware import Precision
from sigmazero.run.fold import fold

pytestmark = pytest.mark.slow

ATTACK = sz.get("sigma-zero", steps=20)
X = torch.rand(6, 1, 8, 8, generator=torch.Generator().manual_seed(4)) * 0.6 + 0.2


class Base(nn.Module):
    """A convolution, a norm and a linear layer; what is odd comes in the classes below."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.out = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(256, 5)
        assert self.bn.running_mean is not None
        assert self.bn.running_var is not None
        self.bn.running_mean.normal_()
        self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.bn(self.conv(x)).flatten(1))


class Deep(Base):
    """Deep enough for channels last, in which such a view is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Sequential(*[nn.Conv2d(4, 4, 3, padding=1) for _ in range(5)])

    def forward(self, x):
        return self.out(self.more(self.bn(self.conv(x))).view(len(x), -1))


class Backward(torch.autograd.Function):
    """The identity, whose way back wants one layout."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0].view(-1).view(grads[0].shape)


class DeepBackward(Deep):
    def forward(self, x):
        return self.out(self.more(Backward.apply(self.bn(self.conv(x)))).flatten(1))


class Complex(Base):
    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(8, 5, dtype=torch.complex64))

    def forward(self, x):
        return super().forward(torch.fft.irfft2(torch.fft.rfft2(x) * self.filter))


class Closure(Base):
    """A deep copy of it still asks the layers of the original."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = lambda x: Base.forward(self, x)

    def forward(self, x):
        return self.ask(x)


class Selfish(Base):
    def __deepcopy__(self, memo: Any) -> "Selfish":
        return self


ODD = [Deep, DeepBackward, Complex, Closure, Selfish]


@pytest.mark.parametrize("precision", [None, "bf16"])
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_odd_models_are_searched_and_left_as_they_were(kind: type[Base], precision: Precision | None, caplog):
    net = kind().eval()
    with torch.no_grad():
        net.out.bias.sub_(net(X).float().mean(0))  # so that no class always wins
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    y = net(X).argmax(1)
    with caplog.at_level(logging.WARNING, "sigmazero"):
        result = ATTACK.run(net, X, y, hardware=sz.Hardware(precision=precision))
    assert result.success.any()
    assert bool((net(result.x_adv).argmax(1) != y)[result.success].all())
    assert type(net.bn) is nn.BatchNorm2d
    assert net.state_dict().keys() == before.keys()
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert all(p.requires_grad for p in net.parameters())
    assert len(caplog.messages) <= 1
    if precision == "bf16" and kind not in (Deep, DeepBackward):
        assert "in bf16 by autocast: no copy of it could be made" in caplog.text


class Between(Base):
    """Somebody writes to the layer's output before the norm sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.out(self.bn(self.relu(self.conv(x))).flatten(1))


class Rows(Base):
    """The norm's features are not those that the linear layer gives."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(8, features), nn.BatchNorm1d(8)
        self.last = nn.Linear(8 * features, 5)

    def forward(self, x):
        return self.last(self.norm(self.linear(x[:, 0])).flatten(1))


class Writes(Base):
    def forward(self, x):
        return super().forward(x.sub_(0.3))


@pytest.mark.parametrize(
    ("net", "folded"), [(Between(), 0), (Rows(8), 0), (Rows(7), 0), (Writes(), 1)], ids=["between", "8", "7", "writes"]
)
def test_what_does_not_belong_together_is_not_folded(net: Base, folded: int):
    net.eval()
    before = net(X.clone())
    assert fold(net, X) == folded
    assert torch.allclose(net(X.clone()), before, atol=1e-5)


def made_under_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return Base().eval()


@pytest.mark.parametrize(
    ("model", "x", "words"),
    [
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(5)), X, "lazy layers .*; call it once on some inputs first"),
        (made_under_inference_mode(), X, "made under torch.inference_mode, .*; make it outside"),
        (Base().to("meta"), X, "the model is on meta, the inputs are on cpu; move one of them"),
        (Base(), X.to("meta"), "inputs are on the meta device, which holds no values; load them on another one"),
    ],
    ids=["lazy", "inference", "meta", "meta inputs"],
)
def test_a_model_that_cannot_be_asked_is_refused_in_one_line(model: nn.Module, x: Tensor, words: str):
    with pytest.raises(ValueError, match=f"^.*{words}$"):
        ATTACK.run(model, x, torch.zeros(len(x), dtype=torch.int64))
