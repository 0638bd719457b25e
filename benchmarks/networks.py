"""What the benchmarks on real networks share: their options, the networks with their rows, and lines on disk."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero import data, models
from sigmazero.models import zoo


def options(about: str | None, limit: int) -> argparse.ArgumentParser:
    """A parser that knows which networks, how many rows, and where to write."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["demo"])
    parser.add_argument("--model-dir")
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int, default=limit, help="the first rows of the model's data set")
    parser.add_argument("--out", type=Path, help="append the lines to this JSON-lines file")
    return parser


def networks(args: argparse.Namespace) -> Iterator[tuple[str, nn.Module, Tensor, Tensor, Tensor]]:
    """Code, network, inputs, labels and row numbers of every model asked for, on the device."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for code in args.models:
        model = models.load(code, model_dir=args.model_dir, device=device)
        source = "mnist-5k-heldout" if code == "demo" else zoo.get(code).dataset
        rows = data.load(source, limit=args.limit, data_dir=args.data_dir)
        yield code, model, rows.images.to(device), rows.labels.to(device), rows.ids


def say(line: dict[str, Any], out: Path | None) -> None:
    """Print a line, and append it to the file."""
    print(json.dumps(line), flush=True)
    if out:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
