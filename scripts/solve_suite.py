"""Solve the exact suite: for each network and digit the fewest changes, proved, and a point that needs no more.

    python scripts/solve_suite.py --up-to 5 --seconds 60

Attacks come first (sigma-swap, several seeds), then `sz.certify`. What is not solved in time stays an interval. Run
again, it goes on with what is open; --again NAME begins a network anew.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sigmazero as sz
from sigmazero.certifier.suite import FEATURES, FOLDER, NAMES, digits, network
from sigmazero.core.files import replacing

Answers = dict[str, Any]


def attacked(name: str, seeds: int) -> Answers:
    """Return what several runs of an attack find for each digit; FEATURES + 1 changes for nothing."""
    ours, model = digits(), network(name)
    best, counts = ours.images.clone(), torch.full((len(ours.labels),), FEATURES + 1)
    for seed in range(seeds):
        found = sz.get("sigma-swap", steps=1000).run(model, ours.images, ours.labels, seed=seed)
        fewer = found.success & (found.l0 < counts)
        best[fewer], counts[fewer] = found.x_adv[fewer], found.l0[fewer].long()
    return {"lower": counts.clamp_max(1).numpy(), "upper": counts.numpy(), "witness": best.flatten(1).numpy()}


def solve(name: str, row: int, known: Answers, up_to: int, seconds: float) -> None:
    """Raise the lower bound of one digit, and lower the upper one."""
    ours, most = digits(), min(up_to, int(known["upper"][row]) - 1)
    some = slice(row, row + 1)
    found = sz.certify(network(name), ours.images[some], ours.labels[some], up_to=most, attack=None, time_limit=seconds)
    if not bool(found.over_reals[0]):
        known["lower"][row] = max(int(found.lower[0]), known["lower"][row])
    if float(found.upper[0]) < known["upper"][row]:
        known["upper"][row], known["witness"][row] = int(found.upper[0]), found.x_adv[0].flatten().numpy()
    sys.stdout.write(f"{name} {row}: {known['lower'][row]} to {known['upper'][row]}, {float(found.seconds[0]):.1f} s\n")
    sys.stdout.flush()


def save(path: Path, name: str, known: Answers) -> None:
    """Write the answers for a network beside those for the others."""
    saved: Answers = dict(np.load(path, allow_pickle=False)) if path.exists() else {}
    for kind, values in known.items():
        saved[f"{name}/{kind}"] = values.astype(np.float32 if kind == "witness" else np.uint8)
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **saved)


def main() -> None:
    """Solve, and write after each digit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(NAMES))
    parser.add_argument("--up-to", type=int, default=5, help="the most changes to prove anything about")
    parser.add_argument("--seconds", type=float, default=60, help="for one digit")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--again", nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=FOLDER / "answers.npz")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.networks:
        saved: Answers = dict(np.load(options.out, allow_pickle=False)) if options.out.exists() else {}
        if f"{name}/lower" in saved and name not in options.again:
            known = {kind: saved[f"{name}/{kind}"].copy() for kind in ("lower", "upper", "witness")}
            known |= {kind: known[kind].astype(np.int64) for kind in ("lower", "upper")}
        else:
            known = attacked(name, options.seeds)
        for row in np.flatnonzero(known["lower"] < known["upper"]):
            solve(name, int(row), known, options.up_to, options.seconds)
            save(options.out, name, known)
        solved = int((known["lower"] == known["upper"]).sum())
        sys.stdout.write(f"{name}: {solved} of {len(known['lower'])} solved\n")


if __name__ == "__main__":
    main()
