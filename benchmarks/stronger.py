"""sigma-swap against sigma-zero at equal queries: curves over queries and an ablation, paired by sample.

    python -m benchmarks.stronger --models M1 M2 --model-dir weights/ --limit 1000 --queries 200 2000 --seeds 2
    python -m benchmarks.stronger --models M1 --model-dir weights/ --queries 2000 --ablation
    python -m benchmarks.stronger --models M1 --model-dir weights/ --queries 2000 --ablation "no annealing"
    python -m benchmarks.stronger --models M1 --model-dir weights/ --targeted --queries 600

A difference is that of the mean numbers of changes, relative to sigma-zero's, with a bootstrap interval over samples;
a sample that was not fooled counts as all its features.
"""

import math
import statistics
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import sigmazero as sz
from benchmarks.differences import paired_bootstrap
from benchmarks.networks import networks, options, say

VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no search: the opening alone": {"share": 1.0},
    "half of the queries for the opening": {"share": 0.5},
    "a tenth for the opening": {"share": 0.1},
    "opening with sigma-zero's own schedule": {"first": sz.get("sigma-zero")},
    "no whole new choices": {"choices": 0.0},
    "no annealing": {"heat": 0.0},
    "places with fixed chances": {"trust": 1e9},
    "no neighbourhood": {"radius": 0},
    "gain instead of its square": {"sharpness": 1},
    "gradient without memory": {"momentum": 0.0},
    "three proposals per gradient": {"proposals": 3},
    "twelve proposals per gradient": {"proposals": 12},
}


def attacks(queries: int, seeds: int, ablation: list[str] | None) -> Iterator[tuple[str, int, sz.Attack]]:
    """Name, seed and attack of every run; sigma-zero first."""
    yield "sigma-zero", 0, sz.get("sigma-zero", steps=queries // 2)
    variants = {"sigma-swap": {}} if ablation is None else {name: VARIANTS[name] for name in ablation or VARIANTS}
    for name, changed in variants.items():
        for seed in range(seeds):
            yield name, seed, sz.get("sigma-swap", queries=queries, **changed)


def changes(result: sz.Result) -> Tensor:
    return result.changes.double().cpu()


def main() -> None:
    parser = options(__doc__, limit=100)
    parser.add_argument("--queries", type=int, nargs="+", default=[2000])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--precision", choices=["fp32", "tf32", "bf16"], default="fp32")
    parser.add_argument(
        "--repeat", type=int, default=1, help="run everything so often, in turn; seconds are the median"
    )
    parser.add_argument("--ablation", nargs="*", choices=VARIANTS, metavar="VARIANT", help="these variants, or all")
    parser.add_argument("--targeted", action="store_true", help="the goal is the class after the true one")
    args = parser.parse_args()
    for code, model, x, y, ids in networks(args):
        goal = (y + 1) % model(x[:1]).shape[1] if args.targeted else y
        how = {"ids": ids, "targeted": args.targeted, "precision": args.precision}
        for queries in args.queries:
            base = torch.zeros(0)
            runs = [
                [
                    (name, seed, attack.run(model, x, goal, seed=seed, **how))
                    for name, seed, attack in attacks(queries, args.seeds, args.ablation)
                ]
                for _ in range(args.repeat)
            ]
            for times in zip(*runs, strict=True):
                name, seed, result = times[-1]
                if name == "sigma-zero":
                    base = changes(result)
                low, high = paired_bootstrap(changes(result).numpy(), base.numpy(), cap=x[0].numel())
                mean = float(base.clamp(max=x[0].numel()).mean())
                line = {
                    "model": code,
                    "rows": len(x),
                    "queries": queries,
                    "targeted": args.targeted,
                    "attack": name,
                    "seed": seed,
                    "mean_l0": round(result.mean_l0, 3) if math.isfinite(result.mean_l0) else None,
                    "median_l0": result.median_l0,
                    "asr": result.asr(),
                    "asr_10": round(result.asr(10), 4),
                    "asr_24": round(result.asr(24), 4),
                    "difference": round(float(changes(result).clamp(max=x[0].numel()).mean()) / mean - 1, 4),
                    "interval": [round(low / mean, 4), round(high / mean, 4)],
                    "most_queries": int((result.forwards + result.backwards).max()),
                    "seconds": round(statistics.median(timed.seconds for _, _, timed in times), 3),
                }
                say(line, args.out)


if __name__ == "__main__":
    main()
