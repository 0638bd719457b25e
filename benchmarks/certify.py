"""Count the images that are proved against t changed pixels and those that are fooled, and measure the time.

    python -m benchmarks.certify --data FOLDER --models convsmallpgd convsmall --up-to 3 --images 100 --device cuda

The folder holds mnist_test.npz and cifar10_test2000.npz (`images`, `labels`), the weights of M1, M2 and the
PreActResNet-18, and in calzone/ the networks of Calzone and CoVerD. The first images that a network gets right are
asked about, in pixels. Each number of changes is a row of its own, with all that is below it; `--row-seconds` ends
a row, and images that are not decided by then are open.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.models.architectures import build
from sigmazero.models.normalize import KNOWN, Normalize
from sigmazero.models.onnx import load_onnx

MODELS = {
    "convsmallpgd": ("mnist", "calzone/MNIST_ConvSmallPGD.onnx"),
    "convsmall": ("mnist", "calzone/MNIST_ConvSmall.onnx"),
    "6x200": ("mnist", "calzone/MNIST_6x200_PGD.onnx"),
    "cifar-convsmallpgd": ("cifar10", "calzone/CIFAR_ConvSmallPGD.onnx"),
    "m1": ("mnist", "m1_smallcnn_ddn.pth"),
    "m2": ("mnist", "m2_smallcnn_trades.pth"),
    "prn18": ("cifar10", "cifar10_prn18_linf_fp16.pt"),
    "demo": ("mnist", ""),
}


def network(name: str, folder: Path) -> nn.Module:
    """One of the networks; inputs are in [0, 1]."""
    data, file = MODELS[name]
    if name == "demo":
        return sz.models.load("demo")
    if file.endswith(".onnx"):
        found = load_onnx(folder / file)
        normal = data == "mnist"  # the network for CIFAR-10 has it inside
    else:
        found = build("smallcnn" if data == "mnist" else "preact-resnet18")
        held = torch.load(folder / file, map_location="cpu", weights_only=True)
        found.load_state_dict(
            {key: value.float() if value.is_floating_point() else value for key, value in held.items()}
        )
        normal = data == "cifar10"
    return nn.Sequential(Normalize(*KNOWN[data]), found).eval() if normal else found.eval()


def rows(name: str, folder: Path) -> tuple[Tensor, Tensor]:
    """Test images in [0, 1] and their classes."""
    file = {"mnist": "mnist_test.npz", "cifar10": "cifar10_test2000.npz"}[MODELS[name][0]]
    held = np.load(folder / file)
    images = torch.from_numpy(held["images"][:2000]).float() / 255
    images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2).contiguous()
    return images, torch.from_numpy(held["labels"][:2000]).long()


def measured(name: str, t: int, options: argparse.Namespace) -> dict[str, object]:
    """One row of the table."""
    model = network(name, options.data).requires_grad_(False).to(options.device)
    images, labels = (each.to(options.device) for each in rows(name, options.data))
    with torch.no_grad():
        right = torch.cat([model(part).argmax(1) for part in images.split(500)]) == labels
    chosen = right.nonzero()[options.skip : options.skip + options.images, 0]
    if options.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    begin = time.perf_counter()
    found = sz.certify(
        model,
        images[chosen],
        labels[chosen],
        up_to=t,
        unit="pixel",
        time_limit=options.time_limit,
        total_limit=options.row_seconds,
        attack=sz.get("sigma-swap", queries=options.queries) if options.queries else None,
    )
    wall = time.perf_counter() - begin
    proved, attacked, left = found.counts(t)
    decided = (found.lower > t) | (found.upper <= t)
    spent = found.seconds[decided].cpu() if bool(decided.any()) else torch.zeros(1)
    figures = {"median": spent.median(), "mean": spent.mean(), "most": spent.max()}
    row: dict[str, object] = {"model": name, "t": t, "images": len(chosen), "proved": proved, "attacked": attacked}
    row |= {"open": left, "not reached": int((~found.done).sum()), "exact": int(found.exact.sum())}
    row |= {f"{key} s": round(float(value), 3) for key, value in figures.items()}
    row |= {"boxes": int(found.boxes[decided].mean()) if bool(decided.any()) else 0, "wall s": round(wall, 1)}
    if options.device == "cuda":
        row["GB"] = round(torch.cuda.max_memory_allocated() / 2**30, 1)
    return row


def main() -> None:
    """Print a line for every network and number of changes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of images, weights and networks")
    parser.add_argument("--models", nargs="+", default=list(MODELS)[:4], choices=list(MODELS))
    parser.add_argument("--up-to", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="the smallest number of changes to ask about")
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--skip", type=int, default=0, help="images that are left out at the beginning")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--time-limit", type=float, help="seconds for one image")
    parser.add_argument("--row-seconds", type=float, help="seconds for one row of the table")
    parser.add_argument("--queries", type=int, default=300, help="of the attack that goes first; 0 for none")
    parser.add_argument("--json", type=Path, help="a file for the rows")
    options = parser.parse_args()
    table = []
    for name in options.models:
        for t in range(options.first, options.up_to + 1):
            table.append(measured(name, t, options))
            print("  ".join(f"{key} {value}" for key, value in table[-1].items()), flush=True)
            if options.json is not None:
                options.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
