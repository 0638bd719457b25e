"""Measure the smoothed classifier's curve of a network that was trained on digits of which few pixels are shown.

    python -m benchmarks.smoothing --keep 45 --json benchmarks/results/smooth-cpu.jsonl

Trained on the first 400 of each class of the 5,000 embedded digits, measured on the 1,000 held out (--images of them,
every so many, so that all classes are among them). A network that never saw blanks is measured beside it: the demo.
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from scripts.training import one_cycle
from torch import Tensor, nn

import sigmazero as sz
from sigmazero import data, models
from sigmazero.certifier.smoothing import Blank, blanked
from sigmazero.core import noise


class SparseReader(nn.Sequential):
    """Takes x and 1 − x, both 0 where an image is blank."""

    def __init__(self) -> None:
        layers: list[nn.Module] = []
        for before, after in ((2, 32), (32, 64), (64, 64)):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        super().__init__(*layers, nn.Flatten(), nn.Linear(64 * 16, 128), nn.ReLU(), nn.Linear(128, 10))


def trained_reader(keep: int, epochs: int, seed: int) -> nn.Module:
    """Train a reader; every image shows `keep` other pixels each time."""
    rows = data.load("mnist-5k")
    chosen = torch.arange(len(rows)) % 500 < 400
    images, labels = rows.images[chosen], rows.labels[chosen]
    torch.manual_seed(seed)
    model = SparseReader()

    def loss_of(batch: Tensor, number: int) -> Tensor:
        epoch = number // -(-len(labels) // 100)
        scores = noise.bits(seed, batch, epoch, (784,), stream=1)
        kept = torch.zeros(scores.shape, dtype=torch.bool).scatter_(1, scores.topk(keep, 1).indices, True)
        shown = blanked(images[batch], kept.view(-1, 1, 28, 28), "doubled")
        return F.cross_entropy(model(shown), labels[batch])

    order = torch.Generator().manual_seed(seed)
    one_cycle(model, len(labels), loss_of, order, epochs=epochs, batch=100, rate=3e-3, decay=1e-3)
    return model


def held_out(images: int) -> tuple[Tensor, Tensor]:
    rows = data.load("mnist-5k-heldout")
    some = torch.arange(0, len(rows), len(rows) // images)[:images]
    return rows.images[some], rows.labels[some]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--keep", type=int, nargs="+", default=[45])
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, y = held_out(options.images)
    for keep in options.keep:
        began = time.perf_counter()
        model = trained_reader(keep, options.epochs, options.seed)
        training = time.perf_counter() - began
        for name, network in (("trained on blanks", model), ("demo", models.load("demo"))):
            middle = time.perf_counter()
            blank: Blank = "doubled" if network is model else "value"
            found = sz.smooth(network, x, y, keep=keep, draws=options.draws, blank=blank)
            line = {
                "network": name,
                "keep": keep,
                "draws": options.draws,
                "images": len(x),
                "abstained": int(found.abstained.sum()),
                "median_radius": found.median_radius,
                "curve": [round(share, 4) for _, share in found.curve()],
                "train_seconds": round(training, 1),
                "smooth_seconds": round(time.perf_counter() - middle, 1),
            }
            print(json.dumps(line), flush=True)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
