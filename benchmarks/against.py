"""Today's speed on plain images against that of older sources, in turn, in one run.

    python -m benchmarks.against --old old/src --models M1 --model-dir weights/ --data-dir data/ --limit 64

Each turn starts a process with either sources and attacks the same rows; the ratio of a turn is the older seconds by
today's, so that above 1 is faster than before. Printed are the median of the ratios and all of them.
"""

import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.networks import options, say

ATTACKS = {"sigma-zero": "steps=100", "sigma-swap": "queries=200"}
CODE = """
import sys, sigmazero as sz
from sigmazero import data, models
code, weights, rows, limit, name, how = sys.argv[1:]
key, _, value = how.partition("=")
model, rows = models.load(code, model_dir=weights), data.load("mnist", limit=int(limit), data_dir=rows)
attack = sz.get(name, **{key: int(value)})
attack.run(model, rows.images[:4], rows.labels[:4])
print(attack.run(model, rows.images, rows.labels, ids=rows.ids).seconds)
"""


def main() -> None:
    parser = options(__doc__, limit=64)
    parser.add_argument("--old", type=Path, required=True, help="the folder of the older sources")
    parser.add_argument("--turns", type=int, default=7)
    args = parser.parse_args()
    new = Path(__file__).resolve().parents[1] / "src"

    def seconds(sources: Path, code: str, name: str) -> float:
        given = [code, args.model_dir, args.data_dir, str(args.limit), name, ATTACKS[name]]
        environment = os.environ | {"PYTHONPATH": str(sources.resolve())}
        done = subprocess.run(
            [sys.executable, "-c", CODE, *given], env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        return float(done.stdout.split()[-1])

    for code in args.models:
        for name in ATTACKS:
            ratios = [seconds(args.old, code, name) / seconds(new, code, name) for _ in range(args.turns)]
            line = {"model": code, "rows": args.limit, "attack": name, "median": round(statistics.median(ratios), 3)}
            say(line | {"ratios": [round(ratio, 3) for ratio in ratios]}, args.out)


if __name__ == "__main__":
    main()
