"""Solve the exact suite: for each network and digit the fewest changes, proved, and a point that needs no more.

    python -m scripts.solve_suite --up-to 5 --seconds 60

sigma-swap with three seeds looks for points, then `sz.certify` for proofs. What is not solved in time stays an
interval. Run again, it goes on with what is open; a network whose answers are not in the file is begun anew.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

import sigmazero as sz
from sigmazero.certifier.suite import FEATURES, FOLDER, NAMES, Answers, digits, network
from sigmazero.core.files import replacing

SEEDS = 3


def attacked(name: str) -> Answers:
    """Return what an attack finds for each digit; FEATURES + 1 changes for nothing."""
    ours, model = digits(), network(name)
    best, counts = ours.images.clone(), torch.full((len(ours),), FEATURES + 1)
    for seed in range(SEEDS):
        found = sz.get("sigma-swap", steps=1000).run(model, ours.images, ours.labels, seed=seed)
        fewer = found.success & (found.l0 < counts)
        best[fewer], counts[fewer] = found.x_adv[fewer], found.l0[fewer].long()
    return Answers(counts.clamp_max(1), counts, best)


def solve(name: str, known: Answers, up_to: int, seconds: float) -> None:
    """Raise the lower bounds of the open digits, and lower the upper ones."""
    rows, ours = (~known.exact).nonzero()[:, 0], digits()
    if not len(rows):
        return
    images, labels = ours.images[rows], ours.labels[rows]
    found = sz.certify(network(name), images, labels, up_to=up_to, attack=None, time_limit=seconds)
    proved = torch.where(found.over_reals, 0, found.lower)
    known.lower[rows] = torch.maximum(known.lower[rows], torch.minimum(proved, known.upper[rows]))
    fewer = found.upper < known.upper[rows]
    known.upper[rows[fewer]], known.witness[rows[fewer]] = found.upper[fewer].long(), found.x_adv[fewer]


def main() -> None:
    """Solve, and write after each network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(NAMES))
    parser.add_argument("--up-to", type=int, default=5, help="the most changes to prove anything about")
    parser.add_argument("--seconds", type=float, default=60, help="for one digit")
    parser.add_argument("--out", type=Path, default=FOLDER / "answers.npz")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.networks:
        saved = dict(np.load(options.out, allow_pickle=False)) if options.out.exists() else {}
        known = attacked(name) if f"{name}/lower" not in saved else Answers.of(saved, name)
        solve(name, known, options.up_to, options.seconds)
        saved |= {f"{name}/{kind}": getattr(known, kind).numpy().astype(np.uint8) for kind in ("lower", "upper")}
        saved[f"{name}/witness"] = known.witness.flatten(1).numpy()
        with replacing(options.out) as part, part.open("wb") as file:
            np.savez_compressed(file, **saved)
        sys.stdout.write(f"{name}: {int(known.exact.sum())} of {len(known.lower)} solved\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
