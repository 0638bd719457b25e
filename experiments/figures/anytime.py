"""Draw how far attacks come with few queries: mean l0 over queries, a panel per network.

    python -m experiments.figures.anytime docs/evidence/few-queries.csv -o docs/evidence/few-queries.png

The lines are those of benchmarks/few_queries.py. Attacks that have no figure at a number of queries begin later.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

from sigmazero.report.figures import style

MEAN = "mean "


def draw(rows: list[dict[str, str]]) -> Any:
    """Draw a panel per network, on logarithmic axes."""
    networks = list(dict.fromkeys(row["network"] for row in rows))
    made = style.figure(3.8 * len(networks), 3.2)
    for place, network in enumerate(networks):
        axis = made.add_subplot(1, len(networks), place + 1)
        for row in (row for row in rows if row["network"] == network):
            points = [(int(k.removeprefix(MEAN)), float(v)) for k, v in row.items() if k.startswith(MEAN) and v]
            axis.plot(
                *zip(*points, strict=True), "o-", label=row["attack"], color=style.colour(row["attack"]), markersize=3
            )
        axis.set(xscale="log", yscale="log", xlabel="queries", ylabel="mean l0" if place == 0 else "")
        asked = [int(name.removeprefix(MEAN)) for name in rows[0] if name.startswith(MEAN)]
        axis.set_xticks(asked, [str(queries) for queries in asked])
        axis.minorticks_off()
        axis.set_title(style.plain(network), fontsize=9)
        style.tidy(axis)
    made.axes[0].legend(fontsize=7, frameon=False)
    return made


def main() -> None:
    """Draw the figure of a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    with asked.file.open(encoding="utf-8", newline="") as file:
        style.save(draw(list(csv.DictReader(file))), asked.out)
    sys.stdout.write(f"wrote {asked.out}\n")


if __name__ == "__main__":
    main()
