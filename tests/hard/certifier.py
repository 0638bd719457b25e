"""Bounds of many random networks against brute force: `python -m tests.hard.certifier --count 2000`."""

import argparse
import sys

import torch

from tests.certifier.soundness import examined


def main() -> int:
    """Examine networks and say what was found; exit code 1 if any bound was wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="networks to examine")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bounds = wrong = 0
    nearest = torch.inf
    for seed in range(options.first, options.first + options.count):
        found = examined(seed)
        bounds, wrong, nearest = bounds + found.bounds, wrong + found.wrong, min(nearest, found.nearest)
        if found.wrong:
            print(f"seed {seed}: {found.wrong} bounds are wrong")
    print(
        f"{options.count} networks, {bounds} bounds, {wrong} wrong; the nearest point was {nearest:.2g} above its bound"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
