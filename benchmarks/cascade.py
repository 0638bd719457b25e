"""SparseAutoAttack against its own members: robust accuracy of the cascade and of each attack alone, per budget.

    python benchmarks/cascade.py --models M1 M2 --model-dir weights/ --limit 128 --eps 10 24 50

The cascade may leave no sample standing that one of its members fools; `holds` says whether that is so.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import torch

import sigmazero as sz
from sigmazero import data, models
from sigmazero.models import zoo

ROUNDING = 1e-6  # shares of samples, in single precision


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["demo"])
    parser.add_argument("--model-dir")
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int, default=16, help="the first rows of the model's data set")
    parser.add_argument("--eps", type=int, nargs="+", default=[10, 24, 50])
    parser.add_argument("--version", default="standard")
    parser.add_argument("--out", type=Path, help="append the lines to this JSON-lines file")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # what the cascade says about the models is not the question here
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for code in args.models:
        model = models.load(code, model_dir=args.model_dir, device=device)
        source = "mnist-5k-heldout" if code == "demo" else zoo.get(code).dataset
        rows = data.load(source, limit=args.limit, data_dir=args.data_dir)
        x, y = rows.images.to(device), rows.labels.to(device)
        for eps in args.eps:
            began = time.perf_counter()
            auto = sz.SparseAutoAttack(model, norm="L0", eps=eps, version=args.version, verbose=False)
            auto.run_standard_evaluation(x, y, bs=len(x))
            together = auto.report.robust_accuracy()
            seconds = time.perf_counter() - began
            alone = {
                name: float((model(points).argmax(1) == y).float().mean())
                for name, points in auto.run_standard_evaluation_individual(x, y, bs=len(x)).items()
            }
            line = {
                "model": code,
                "rows": len(rows),
                "eps": eps,
                "version": str(auto.version),
                "clean": round(auto.clean_accuracy(x, y, bs=len(x)), 4),
                "cascade": round(together, 4),
                **{name: round(share, 4) for name, share in alone.items()},
                "holds": all(together <= share + ROUNDING for share in alone.values()),
                "seconds": round(seconds, 1),
            }
            print(json.dumps(line), flush=True)
            if args.out:
                with args.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
