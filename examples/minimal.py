"""The shortest use: how many values of each input must change before a classifier is wrong?"""

import torch

import sigmazero as sz

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(20, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
x = torch.rand(16, 20)
y = model(x).argmax(1)  # the classes it should keep

result = sz.get("sigma-zero", steps=100).run(model, x, y)

print(result)
for sample in range(3):
    print(f"sample {sample}: {result.l0[sample]:g} of 20 values, found at step {result.step_found[sample]}")
assert (model(result.x_adv[result.success]).argmax(1) != y[result.success]).all()
