"""Inputs that look like images with channels last are doubted where pixels are counted."""

import pytest
import torch
from torch import nn

import sigmazero as sz

NET = nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 5, 4)).requires_grad_(False)
X = torch.rand(5, 3, 6, 5, generator=torch.Generator().manual_seed(0))
Y = NET(X).argmax(1)


def channels_last(x):
    return NET(x.movedim(-1, 1))


def test_inputs_that_look_like_channels_last_are_doubted():
    attack = sz.get("sigma-zero", steps=5)
    with pytest.warns(UserWarning, match=r"shape \(5, 6, 5, 3\).*channels='last'"):
        attack.run(channels_last, X.movedim(1, -1), Y, unit="pixel")
    attack.run(NET, X, Y, unit="pixel")
    attack.run(channels_last, X.movedim(1, -1), Y)
    with pytest.raises(ValueError, match=r"unit='pixel' is for images; inputs of shape \(5, 90\)"):
        attack.run(NET, X.flatten(1), Y, unit="pixel")
