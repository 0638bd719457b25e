"""A reliable evaluation: several attacks in turn, under AutoAttack's names."""

import torch

import sigmazero as sz

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
x = torch.rand(16, 20)
y = model(x).argmax(1)

adversary = sz.SparseAutoAttack(model, norm="L0", eps=2, version="quick")
x_adv = adversary.run_standard_evaluation(x, y, bs=8)  # prints a line per member
assert ((x_adv != x).sum(1) <= 2).all()
print(f"robust accuracy at 2 changes: {adversary.result.robust_accuracy():.1%}")

fewest = sz.SparseAutoAttack(model, eps=None, version="quick", verbose=False)
fewest.run_standard_evaluation(x, y)
for k in (1, 2, 4):
    print(f"robust accuracy at {k} changes: {fewest.result.robust_accuracy(k):.1%}")
print("found by:", ", ".join(sorted({name for name in fewest.result.found_by if name})))
