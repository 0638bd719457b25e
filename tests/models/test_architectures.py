import math

import pytest
import torch
from torch import nn

from sigmazero.models import zoo
from sigmazero.models.architectures import build
from sigmazero.models.architectures.blocks import Names, Padding, PreActBlock
from sigmazero.models.architectures.resnet import ChenEnsemble
from sigmazero.models.architectures.wide_resnet import WideResNet
from tests.models.conftest import LAYOUT_OF, index, layout

OURS = [code for code, entry in zoo.entries().items() if entry.architecture not in ("timm", "robustbench")]
LISTED = [code for code in OURS if code in LAYOUT_OF]


def entries_of(network: nn.Module):
    return {key: (tuple(value.shape), value.dtype) for key, value in network.state_dict().items()}


@pytest.mark.parametrize("code", LISTED)
def test_state_dict_has_exactly_the_published_entries(code):
    wanted = layout(LAYOUT_OF[code])
    assert len(wanted) == int(index()[LAYOUT_OF[code]]["state_entries"])
    if code in ("C2", "C7"):
        wanted |= dict.fromkeys(("mu", "sigma"), ((1, 3, 1, 1), torch.float32))
    if code == "C8":
        wanted = {f"branch{i}.{key}": value for i in (1, 2, 3) for key, value in wanted.items()}
    with torch.device("meta"):
        assert entries_of(zoo.get(code).build()) == wanted


def test_unused_block_group_takes_no_part():
    network = WideResNet(10, 1, sub_block1=True).eval()
    x = torch.rand(1, 3, 32, 32)
    before = network(x)
    assert before.isfinite().all()
    for parameter in network.sub_block1.parameters():
        nn.init.constant_(parameter, math.nan)
    assert torch.equal(network(x), before)


def test_softplus_is_used_in_blocks_and_relu_before_pooling():
    smooth, plain = build("preact-resnet18", act="softplus").eval(), build("preact-resnet18").eval()
    plain.load_state_dict(smooth.state_dict())
    x = torch.rand(1, 3, 32, 32)
    assert not torch.allclose(smooth(x), plain(x))
    # A strongly negative input to the last activation is cut by ReLU: only the bias of the head remains.
    nn.init.constant_(smooth.get_parameter("bn.bias"), -1e6)
    assert torch.equal(smooth(x)[0], smooth.get_parameter("linear.bias"))


def test_strided_ported_blocks_pad_right_and_bottom_only():
    names = Names("n1", "c1", "n2", "c2", "skip", wrapped=False)
    block = PreActBlock(1, 1, 2, nn.Identity(), names, lopsided=True).eval()
    for parameter in block.parameters():
        nn.init.ones_(parameter) if parameter.ndim == 1 else nn.init.zeros_(parameter)
    for norm in ("n1", "n2"):
        nn.init.zeros_(block.get_parameter(f"{norm}.bias"))
    centre = block.get_parameter("c2.weight")
    with torch.no_grad():
        centre[0, 0, 1, 1] = 1
        block.get_parameter("c1.weight").fill_(1)
    out = block(torch.ones(1, 1, 4, 4))[0, 0]
    # Windows start at 0 and 2: the second reaches one step over the edge, the first does not.
    assert torch.allclose(out, torch.tensor([[9.0, 6.0], [6.0, 4.0]]), atol=1e-3)


def test_padding_shortcut_subsamples_and_pads_both_sides():
    x = torch.arange(2.0 * 16).view(1, 2, 4, 4)
    y = Padding(2, 4, 2)(x)
    assert y.shape == (1, 4, 2, 2)
    assert torch.equal(y[:, 1:3], x[:, :, ::2, ::2])
    assert not y[:, 0].any()
    assert not y[:, 3].any()


def test_ensemble_returns_the_logarithm_of_the_mean_probability():
    with torch.device("meta"):
        ensemble = ChenEnsemble()
    branches, x = [nn.Linear(4, 3) for _ in range(3)], torch.rand(5, 4)
    for i, branch in enumerate(branches):
        ensemble.add_module(f"branch{i + 1}", branch)
    mean = torch.stack([branch(x).softmax(1) for branch in branches]).mean(0)
    assert torch.allclose(ensemble(x), mean.log(), atol=1e-6)


def test_wrong_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown architecture 'vgg'; known: smallcnn"):
        build("vgg")
