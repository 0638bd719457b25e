"""Run every attack on the exact suite, and make the table of docs/evidence/proofs.md.

    python -m benchmarks.suite --queries 1000 --json benchmarks/results/suite-cpu.jsonl
    python -m benchmarks.suite --table benchmarks/results/suite-cpu.jsonl
    python -m benchmarks.suite --table benchmarks/results/suite-cpu.jsonl --known src/sigmazero/report/gaps.json

A line holds the changes that an attack needs for each image of a network (−1: not fooled); the table is made from these
and from what is proved now. An attack whose lines are in the file already is not run again. The table has for each
network the mean gap to the fewest changes in % and, after a slash, the share of images with nothing left to gain.
`--known` writes the figures over all networks, with the version of each attack, for the pages that reports make.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch

from sigmazero.attacks import ATTACKS
from sigmazero.certifier import suite
from sigmazero.certifier.suite import NAMES


def lines(path: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def cells(found: dict[str, dict[str, Any]]) -> tuple[float, list[str]]:
    """The mean gap of an attack, and its row of the table."""
    l0 = {name: torch.tensor(found[name]["l0"]).double() for name in NAMES}
    l0 = {name: torch.where(values < 0, torch.inf, values) for name, values in l0.items()}
    known = {name: suite.answers(name) for name in NAMES}
    every = torch.cat(list(l0.values()))
    figures = [suite.gaps(known[name], l0[name], name) for name in NAMES]
    figures.append(suite.gaps(suite.Answers.join(list(known.values())), every))
    queries = sum(found[name]["queries"] for name in NAMES) / len(NAMES)
    row = [f"{100 * gap:.1f} / {100 * optimal:.1f}" for gap, _, optimal in figures]
    return figures[-1][0], [*row, f"{100 * float(every.isfinite().double().mean()):.1f}", f"{queries:.0f}"]


def whole(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The lines of each attack that has one for every network."""
    by_attack: dict[str, dict[str, dict[str, Any]]] = {}
    for line in found:
        by_attack.setdefault(line["attack"], {})[line["network"]] = line
    return {attack: scores for attack, scores in by_attack.items() if len(scores) == len(NAMES)}


def known(found: list[dict[str, Any]]) -> str:
    """Return the figures of each attack that pages show, the smallest gap first."""
    lines: list[dict[str, Any]] = []
    for attack, scores in whole(found).items():
        gap, row = cells(scores)
        optimal = float(row[-3].split(" / ")[1])
        line = {"attack": attack, "version": ATTACKS[attack].version, "gap": round(100 * gap, 1), "optimal": optimal}
        lines.append(line | {"fooled": float(row[-2]), "queries": int(row[-1])})
    return "[\n" + ",\n".join(json.dumps(line) for line in sorted(lines, key=lambda each: each["gap"])) + "\n]\n"


def table(found: list[dict[str, Any]]) -> str:
    """Return a row for each attack, the smallest gap first."""
    rows = sorted((*cells(scores), attack) for attack, scores in whole(found).items())
    heads = ["attack", *NAMES, "all", "fooled %", "queries"]
    text = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    return "\n".join([*text, *(f"| {' | '.join([attack, *row])} |" for _, row, attack in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attacks", nargs="+", default=suite.entrants())
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--known", type=Path, help="a file for what pages say of each attack")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = lines(options.table or options.json)
    for attack in [] if options.table else options.attacks:
        for name in NAMES:
            if any(
                (line["attack"], line["network"], line["allowed"]) == (attack, name, options.queries) for line in found
            ):
                continue
            result = suite.results(attack, [name], queries=options.queries)[name]
            line = {
                "attack": attack,
                "network": name,
                "allowed": options.queries,
                "queries": float((result.forwards + result.backwards).double().mean()),
                "seconds": round(result.seconds, 2),
                "l0": [int(value) if value < torch.inf else -1 for value in result.l0.tolist()],
            }
            found.append(line)
            print(attack, name, line["seconds"], flush=True)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print(table(found))
    if options.known:
        options.known.write_text(known(found))


if __name__ == "__main__":
    main()
