"""How far attacks stay above the true minimum in small finite spaces, where every point can be tried.

    python -m benchmarks.space_gaps [spaces]

Random spaces of integers, sets, grids, categories and directions, each with three inputs and a network of three
classes; once without rules, once with rules and derived features, each with equal costs and with others. Prints, for
each attack, how many of the inputs that can be fooled it misses, and by how much its changes, or their cost, are above
the least on average over the others. The figures are in docs/spaces.md.
"""

import sys
from random import Random
from typing import Any

import numpy as np
import torch
from tests.helpers.spaces import Plain, bind, draw, fewest, inputs, network

import sigmazero as sz

ATTACKS: list[tuple[str, dict[str, Any]]] = [
    ("sigma-swap", {"queries": 500}),
    ("corner", {}),
    ("sigma-zero", {"steps": 200}),
    ("sparse-rs-min", {"steps": 500}),
]


def cases(spaces: int, ruled: bool, priced: bool) -> list[tuple[Plain, Any, torch.Tensor, torch.Tensor, list[float]]]:
    """Spaces, networks, inputs, labels, and the least that an example takes."""
    found = []
    for seed in range(spaces):
        random = Random(seed)
        plain = draw(random, finite=True, priced=priced)
        x = inputs(plain, random)
        if ruled:
            # Of equal inputs a rule can say that a sum stays as it is.
            x = x[:1].repeat(3, 1) if len(plain.direction) == 1 and seed % 2 else x
            x = bind(plain, x, random)
        net = network(len(plain), seed)
        y = net(x).argmax(1)
        found.append((plain, net, x, y, [row[1 if priced else 0] for row in fewest(plain, net, x, y)]))
    return found


def main(spaces: int = 40) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    print(f"{'attack':14} {'rules':5} {'costs':5} {'possible':>8} {'missed':>6} {'above the least':>15} {'queries':>8}")
    for ruled, priced in ((False, False), (False, True), (True, False), (True, True)):
        every = cases(spaces, ruled, priced)
        for name, options in ATTACKS:
            got, least, queries = [], [], []
            for plain, net, x, y, best in every:
                result = sz.get(name, **options).run(net, x, y, space=plain.space())
                assert not plain.complaints(x.numpy(), result.x_adv.numpy(), 1e-9)
                got += (result.cost if priced else result.l0).tolist()
                least += best
                queries += (result.forwards + result.backwards).tolist()
            possible, found = np.isfinite(least), np.isfinite(got)
            above = np.array(got)[found].sum() / np.array(least)[found].sum() - 1
            words = f"{name:14} {ruled!s:5} {priced!s:5} {possible.sum():8} {(possible & ~found).sum():6}"
            print(f"{words} {above:15.1%} {np.mean(queries):8.0f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
