"""Every attack on the exact suite: the table of docs/truth-suite.md.

    python -m benchmarks.suite --queries 1000 --json benchmarks/results/suite-cpu.jsonl
    python -m benchmarks.suite --table benchmarks/results/suite-cpu.jsonl

An attack whose lines are in the file already is not run again. The table has for each network the mean gap to the
fewest changes in % and, after a slash, the share of images on which nothing was left to gain.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import torch

from sigmazero.truth import suite
from sigmazero.truth.digits import NAMES


def lines(path: Path) -> list[dict[str, float | str]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(found: list[dict[str, float | str]]) -> str:
    """One row per attack, the best first."""
    by_attack: dict[str, dict[str, dict[str, float]]] = {}
    for line in found:
        by_attack.setdefault(str(line["attack"]), {})[str(line["network"])] = line  # type: ignore[assignment]
    heads = ["attack", *NAMES, "all", "fooled %", "queries"]
    rows = [f"| {' | '.join(heads)} |", f"| --- |{' ---: |' * (len(heads) - 1)}"]
    for attack, scores in sorted(by_attack.items(), key=lambda pair: pair[1]["all"]["gap"]):
        cells = [f"{100 * scores[n]['gap']:.1f} / {100 * scores[n]['optimal']:.1f}" for n in (*NAMES, "all")]
        every = scores["all"]
        cells += [f"{100 * every['asr']:.1f}", f"{every['queries']:.0f}"]
        rows.append(f"| {' | '.join([attack, *cells])} |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--attacks", nargs="+", default=suite.entrants())
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = lines(options.table or options.json) if options.table or options.json else []
    for attack in [] if options.table else options.attacks:
        if any(line["attack"] == attack and line["allowed"] == options.queries for line in found):
            continue
        for score in suite.run(attack, queries=options.queries, limit=options.limit):
            line = {**asdict(score), "allowed": options.queries}
            found.append(line)
            print(json.dumps(line), flush=True)
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
