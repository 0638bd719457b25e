"""Channels last: a model that takes them so is asked with channels first; inputs that look so are doubted."""

import pytest
import torch
from torch import nn

import sigmazero as sz

NET = nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 5, 4)).requires_grad_(False)
X = torch.rand(5, 3, 6, 5, generator=torch.Generator().manual_seed(0))
Y = NET(X).argmax(1)


def channels_last(x):
    return NET(x.movedim(-1, 1))


@pytest.mark.parametrize("unit", ["feature", "pixel"])
def test_a_wrapped_model_is_attacked_as_the_model_itself(unit):
    attack, wrapped = sz.get("sigma-zero", steps=20), sz.wrap(channels_last, channels="last")
    assert torch.equal(wrapped(X), NET(X))
    one, other = (attack.run(net, X, Y, unit=unit) for net in (NET, wrapped))
    assert torch.equal(one.x_adv, other.x_adv)
    assert torch.equal(one.l0_pixel, other.l0_pixel)
    with pytest.raises(ValueError, match="channels='NHWC'"):
        sz.wrap(channels_last, channels="NHWC")


def test_inputs_that_look_like_channels_last_are_doubted():
    attack = sz.get("sigma-zero", steps=5)
    with pytest.warns(UserWarning, match=r"shape \(5, 6, 5, 3\).*channels='last'"):
        attack.run(channels_last, X.movedim(1, -1), Y, unit="pixel")
    attack.run(NET, X, Y, unit="pixel")
    attack.run(channels_last, X.movedim(1, -1), Y)
    with pytest.raises(ValueError, match=r"unit='pixel' is for images; inputs of shape \(5, 90\)"):
        attack.run(NET, X.flatten(1), Y, unit="pixel")
