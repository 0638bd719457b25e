"""A targeted attack: make every input the next class, and print how many changes that took."""

import torch

import sigmazero as sz

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3))
images = torch.rand(24, 1, 6, 6)
labels = model(images).argmax(1)
targets = (labels + 1) % 3

for name in ("sigma-zero", "sigma-zero-star"):
    result = sz.get(name, steps=200).run(model, images, targets, targeted=True, seed=0)
    reached = model(result.x_adv[result.success]).argmax(1)
    assert torch.equal(reached, targets[result.success])
    print(f"{name}: {result.asr(5):.0%} within 5 changes, {result.asr(10):.0%} within 10")
    print(result)
