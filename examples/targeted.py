"""A targeted attack: make every input the next class, and print the table one reports."""

import torch
from rich.console import Console

import sigmazero as sz
from sigmazero.report.tables.overview import run_row
from sigmazero.report.tables.text import markdown, rich_table

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 24), torch.nn.ReLU(), torch.nn.Linear(24, 3))
images = torch.rand(24, 1, 6, 6)
labels = model(images).argmax(1)
targets = (labels + 1) % 3

rows = []
for name in ("sigma-zero", "sigma-zero-star"):
    result = sz.get(name, steps=200).run(model, images, targets, targeted=True, seed=0)
    reached = model(result.x_adv[result.success]).argmax(1)
    assert torch.equal(reached, targets[result.success])
    rows.append({"attack": name, **run_row(result, labels, ks=(5, 10))})

Console().print(rich_table(rows, down=True))
print(markdown(rows))
