"""Run every attack on the exact suite, and make the table of docs/evidence/proofs.md.

    python -m benchmarks.suite --queries 1000 --json benchmarks/results/suite-1000-cpu.jsonl
    python -m benchmarks.suite --attacks --json benchmarks/results/suite-cpu.jsonl

A line holds the changes that an attack needs for each image of a network (−1: not fooled); the table is made from these
and from what is proved now. An attack whose lines are in the file already is not run again, so the second command runs
none. The table has for each network the mean gap to the fewest changes in % and, after a slash, the share of images
with nothing left to gain.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from sigmazero.attacks import ATTACKS
from sigmazero.certifier import suite
from sigmazero.certifier.suite import NAMES
from sigmazero.report.formats import markdown

Line = dict[str, Any]


def measure(attack: str, name: str, queries: int) -> Line:
    """Run an attack on a network."""
    result = suite.results(attack, [name], queries=queries)[name]
    return {
        "attack": attack,
        "network": name,
        "allowed": queries,
        "queries": float((result.forwards + result.backwards).double().mean()),
        "seconds": round(result.seconds, 2),
        "l0": [int(value) if value < torch.inf else -1 for value in result.l0.tolist()],
    }


def changes(line: Line) -> Tensor:
    l0 = torch.tensor(line["l0"]).double()
    return torch.where(l0 < 0, torch.inf, l0)


def row(attack: str, lines: list[Line]) -> tuple[float, dict[str, str]]:
    """Return an attack's mean gap, and its row of the table."""
    by_name = {line["network"]: line for line in lines if line["attack"] == attack}
    l0 = {name: changes(by_name[name]) for name in NAMES}
    every = torch.cat(list(l0.values()))
    figures = {name: suite.gaps(suite.answers(name), l0[name], attack) for name in NAMES}
    figures["all"] = suite.gaps(suite.known(NAMES), every, attack)
    found = {name: f"{100 * gap:.1f} / {100 * optimal:.1f}" for name, (gap, _, optimal) in figures.items()}
    found |= {"fooled %": f"{100 * float(every.isfinite().double().mean()):.1f}"}
    queries = sum(by_name[name]["queries"] for name in NAMES) / len(NAMES)
    return figures["all"][0], {"attack": attack, **found, "queries": f"{queries:.0f}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attacks", nargs="*", default=suite.entrants())
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--json", type=Path, required=True, help="the file of lines")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in options.json.read_text().splitlines()] if options.json.exists() else []
    done = {(line["attack"], line["network"], line["allowed"]) for line in lines}
    for attack in options.attacks:
        for name in NAMES:
            if (attack, name, options.queries) not in done:
                lines.append(measure(attack, name, options.queries))
                with options.json.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
    whole = [name for name in ATTACKS if sum(line["attack"] == name for line in lines) == len(NAMES)]
    rows = sorted((row(name, lines) for name in whole), key=lambda pair: pair[0])
    print(markdown([shown for _, shown in rows]))


if __name__ == "__main__":
    main()
