"""Draw the three pictures of docs/concepts.md from the bundled network and digits.

python -m scripts.concepts
"""

from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

import sigmazero as sz
from sigmazero import data, models

FOLDER = Path(__file__).parents[1] / "docs" / "concepts"
ATTACKS: dict[str, dict[str, Any]] = {"sigma-swap": {"queries": 600}, "fmn": {"steps": 300}, "vfga": {"steps": 27}}
BEST = "sigma-swap"


def shortest(model: Any, x: Tensor, y: Tensor, direction: Tensor) -> Tensor:
    """Return the first point along a direction, within [0, 1], that the model gets wrong."""
    lengths = torch.linspace(0, 5, 2001)[:, None, None, None]
    points = (x + lengths * direction).clamp(0, 1)
    wrong = (model(points).argmax(1) != y).nonzero().flatten()
    if not len(wrong):
        raise ValueError("no point along this direction fools the model")
    return points[wrong[:1]]


def small(model: Any, x: Tensor, y: Tensor, norm: str) -> Tensor:
    """Return an example with a small l2 or l∞ norm: along the gradient of the margin, refined ten times."""
    point = x.clone()
    for _ in range(10):
        point = point.detach().requires_grad_(True)
        logits = model(point)[0]
        others = torch.cat([logits[: int(y)], logits[int(y) + 1 :]])
        (slope,) = torch.autograd.grad(others.max() - logits[y].squeeze(), point)
        step = slope.sign() if norm == "linf" else slope / slope.abs().max()
        point = shortest(model, x, y, step)
    return point.detach()


def norms(model: Any, x: Tensor, y: Tensor) -> Figure:
    """Draw one digit, and three examples that fool the model: few changes, small ones, and many tiny ones."""
    few = sz.sigma_swap(model, x, y, queries=600)
    points = {"the digit": x, "l0: few values": few, "l2: a short way": small(model, x, y, "l2")}
    points["l∞: each value a little"] = small(model, x, y, "linf")
    figure = Figure(figsize=(9, 4.4), layout="constrained")
    axes = figure.subplots(2, len(points))
    for (name, point), above, below in zip(points.items(), axes[0], axes[1], strict=True):
        change = (point - x)[0, 0]
        count, most = int((change != 0).sum()), float(change.abs().max())
        above.imshow(point[0, 0], cmap="gray", vmin=0, vmax=1)
        below.imshow(change, cmap="PuOr", vmin=-1, vmax=1)
        told = f"taken for {int(model(point).argmax(1))}"
        above.set_title(name, fontsize=10)
        above.set_xlabel(told, fontsize=9)
        below.set_xlabel(f"{count} of 784 values\nby {most:.2f} at most" if count else "", fontsize=9)
        for axis in (above, below):
            axis.set(xticks=[], yticks=[])
    return figure


def curves(results: dict[str, sz.Result]) -> Figure:
    """Draw the share of samples fooled over the number of changes, with the median of the strongest attack."""
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axis = figure.subplots()
    ks = list(range(41))
    for name, result in results.items():
        axis.step(ks, [100 * result.asr(k) for k in ks], where="post", label=name)
    median = results[BEST].median_l0
    axis.axhline(50, color="#999999", linewidth=0.8, linestyle=":")
    axis.annotate(f"median: {median:g} changes", (median, 50), (median + 8, 35), arrowprops={"arrowstyle": "->"})
    axis.set(xlim=(0, 40), ylim=(0, 101), xlabel="k, values changed at most", ylabel="samples fooled, %")
    axis.legend(frameon=False)
    return figure


def spread(result: sz.Result) -> Figure:
    """Draw how many changes each sample needs: the number of a model hides a spread."""
    figure = Figure(figsize=(6.4, 3.0), layout="constrained")
    axis = figure.subplots()
    changes = result.l0[result.success]
    axis.hist(changes.numpy(), bins=range(0, int(changes.max()) + 2), color="#4c72b0")
    axis.axvline(float(result.median_l0), color="#c44e52")
    axis.set(xlabel="fewest changes found for a sample", ylabel="samples")
    return figure


def main() -> None:
    """Draw all three."""
    model, rows = models.load("demo"), data.load("mnist-5k-heldout", limit=100)
    results = {name: sz.get(name, **how).run(model, rows.images, rows.labels) for name, how in ATTACKS.items()}
    right = (model(rows.images).argmax(1) == rows.labels).nonzero().flatten()
    row = next(int(k) for k in right if 6 <= results[BEST].l0[k] <= 10)
    x, y = rows.images[row : row + 1], rows.labels[row : row + 1]
    made = {"norms": norms(model, x, y), "curves": curves(results), "spread": spread(results[BEST])}
    for name, figure in made.items():
        figure.savefig(FOLDER / f"{name}.png", dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
