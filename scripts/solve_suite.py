"""Solve the exact suite: for each network and digit the fewest changes, proved, and a point that needs no more.

    python scripts/solve_suite.py --nodes 200000

Attacks come first (sigma-swap, several seeds), so that mostly only the proof is left. What is not solved within the
nodes stays an interval. Run again, it goes on with what is open; --again NAME begins a network anew.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sigmazero as sz
from sigmazero.certifier.digits import FOLDER, NAMES, digits, network
from sigmazero.certifier.exact import solve
from sigmazero.core.files import replacing

FEATURES = 64
Answers = dict[str, Any]


def attacked(name: str, seeds: int) -> tuple[Tensor, Tensor]:
    """The sparsest point that several runs found for each digit, and its number of changes, FEATURES + 1 for none."""
    ours, model = digits(), network(name)
    best, counts = ours.images.clone(), torch.full((len(ours.labels),), FEATURES + 1)
    for seed in range(seeds):
        found = sz.get("sigma-swap", steps=1000).run(model, ours.images, ours.labels, seed=seed)
        fewer = found.success & (found.l0 < counts)
        best[fewer], counts[fewer] = found.x_adv[fewer], found.l0[fewer].long()
    return best, counts


def start(name: str, seeds: int) -> Answers:
    """What attacks know of a network."""
    points, counts = attacked(name, seeds)
    lower = torch.where(counts == 0, 0, 1)
    return {"lower": lower.numpy(), "upper": counts.numpy(), "witness": points.flatten(1).numpy()}


def work(name: str, known: Answers, nodes: int, save: Callable[[], None]) -> None:
    """Solve what is open, one digit after the other."""
    ours, model = digits(), network(name)
    saved = time.perf_counter()
    for k in np.flatnonzero(known["lower"] < known["upper"]):
        x, began = ours.images[k], time.perf_counter()
        point = torch.from_numpy(known["witness"][k]).view_as(x) if known["upper"][k] <= FEATURES else None
        found = solve(model, x, int(ours.labels[k]), point, nodes)
        before = known["upper"][k]
        known["lower"][k], known["upper"][k] = max(found.lower, known["lower"][k]), found.upper
        if found.witness is not None:
            known["witness"][k] = found.witness.flatten().numpy()
        told = f"{name} {k}: {found.lower} to {found.upper}, attack {before}, {found.nodes} nodes"
        sys.stdout.write(f"{told}, {time.perf_counter() - began:.1f} s\n")
        sys.stdout.flush()
        if time.perf_counter() - saved > 30:
            save()
            saved = time.perf_counter()
    save()


def keep(path: Path, name: str, known: Answers) -> None:
    """Write what is known of a network beside what is known of the others."""
    saved: Answers = dict(np.load(path, allow_pickle=False)) if path.exists() else {}
    for kind, values in known.items():
        saved[f"{name}/{kind}"] = values.astype(np.float32 if kind == "witness" else np.uint8)
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **saved)


def main() -> None:
    """Solve, and write after each network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(NAMES))
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--again", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=FOLDER / "answers.npz")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.networks:
        saved: Answers = dict(np.load(options.out, allow_pickle=False)) if options.out.exists() else {}
        kinds = ("lower", "upper", "witness")
        if f"{name}/lower" in saved and name not in options.again:
            known = {kind: saved[f"{name}/{kind}"].copy() for kind in kinds}
            known |= {kind: known[kind].astype(np.int64) for kind in ("lower", "upper")}
        else:
            known = start(name, options.seeds)
        work(name, known, options.nodes, partial(keep, options.out, name, known))
        solved = int((known["lower"] == known["upper"]).sum())
        sys.stdout.write(f"{name}: {solved} of {len(known['lower'])} solved, {options.out.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
