"""A model of your own: inputs in [-1, 1], pixels counted once for all channels, and a region that may not change."""

import torch
from torch import Tensor

import sigmazero as sz

torch.manual_seed(0)
weights = torch.randn(4, 3 * 8 * 8) / 8


def model(x: Tensor) -> Tensor:
    """Any callable from inputs to logits will do."""
    return x.flatten(1).tanh() @ weights.T


images = torch.rand(12, 3, 8, 8) * 2 - 1
labels = model(images).argmax(1)
mask = torch.ones(3, 8, 8, dtype=torch.bool)
mask[:, :4] = False  # the upper half stays as it is

result = sz.get("sigma-zero", steps=100).run(
    model, images, labels, bounds=(-1, 1), unit="pixel", mask=mask, batch_size=4
)

print(result)
print(f"fooled with at most 5 pixels: {result.asr(5):.1%}")
assert torch.equal(result.x_adv[:, :, :4], images[:, :, :4])
assert result.x_adv.abs().max() <= 1
