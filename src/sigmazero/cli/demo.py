"""`sigmazero demo`: the bundled model on real digits, nothing to download."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import torch
import typer

import sigmazero as sz
from sigmazero import data, models
from sigmazero.cli import options
from sigmazero.cli.show import show_figures, write_picture


def demo(
    limit: Annotated[int, typer.Option(metavar="N", help="How many digits, at most 1000.")] = 100,
    steps: Annotated[int, typer.Option(metavar="N", help="Steps of the attack.")] = 300,
    attack_name: options.Attack = "sigma-zero",
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the picture.")] = Path("demo"),
    device: options.Device = "auto",
    seed: Annotated[int, typer.Option(metavar="N", help="For the choice of digits and for random attacks.")] = 0,
) -> None:
    """Attack the bundled network on handwritten digits that it was not trained on, and draw what changed.

    \b
    Example:
      sigmazero demo --limit 20 --out demo/
    """
    method = sz.get(attack_name, steps=steps)
    place = options.device(device)
    network = models.load("demo", device=place)
    digits = data.load("mnist-5k-heldout", limit=limit, seed=seed)
    budget = 24 if method.kind == "budget" else None
    images, labels = digits.images.to(place), digits.labels.to(place)
    with _one_thread():
        result = method.run(network, images, labels, budget=budget, seed=seed, ids=digits.ids, progress=True)
    title = f"{method.name} against the bundled network, {len(digits)} digits, {steps} steps"
    show_figures(result, digits, method.name, title)
    write_picture(out / "demo.png", result, digits, title)


@contextmanager
def _one_thread() -> Iterator[None]:
    """So small a network gains little from threads, and on a busy machine they wait for each other at each layer."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
