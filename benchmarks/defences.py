"""Attack small networks with defences of which most only look robust, by SparseAutoAttack.

Images are those of mnist-5k, averaged to 14 x 14; `benchmarks.models` trains the networks.

    python -m benchmarks.models --out build/sparse.pt
    python -m benchmarks.defences --weights build/sparse.pt --limit 32 --eps 1 4 10 24
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import torch

import sigmazero as sz
from benchmarks.models import SPARSE, defences, grey, images
from sigmazero.auto import CascadeResult

FIRST = 4  # members that the standard cascade begins with; its figure after them is given too


def line_of(found: CascadeResult) -> dict[str, object]:
    """Return the figures of an evaluation."""
    after = {member: round(found.robust_accuracy(after=k + 1), 4) for k, member in enumerate(found.members)}
    queries = torch.stack([run.queries for run in found.runs]).double().mean(1)
    return {
        "version": str(found.cascade),
        "clean": round(found.clean_accuracy, 4),
        "left after": after,
        "queries": queries.round().long().tolist(),
        "cost beside the first": round(float(queries.sum() / queries[:FIRST].sum()), 3),
        "findings": [f"{each.code} {each.severity}" for each in found.findings],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, help="of the network that benchmarks.models trains")
    parser.add_argument("--only", nargs="+", help="these defences alone")
    parser.add_argument("--limit", type=int, default=32)
    parser.add_argument("--eps", type=int, nargs="+", default=[1, 4, 10, 24])
    parser.add_argument("--version", default="standard")
    parser.add_argument("--out", type=Path, help="append the lines to this JSON-lines file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    train_x, train_y, x, y = images()
    x, y = x[: args.limit], y[: args.limit]
    for name, net in defences(train_x, train_y, args.weights).items():
        for eps in args.eps if args.only is None or name in args.only else ():
            torch.manual_seed(0)
            began = time.perf_counter()
            auto = sz.SparseAutoAttack(net, eps=eps, version=args.version, verbose=False)
            auto.run_standard_evaluation(grey(x) if name == SPARSE else x, y)
            line = {"defence": name, "rows": len(x), "eps": eps, **line_of(auto.result)}
            text = json.dumps(line | {"seconds": round(time.perf_counter() - began, 1)})
            print(text, flush=True)
            if args.out:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(f"{text}\n")


if __name__ == "__main__":
    main()
