"""What a coarse search costs in l0 and gains in time: the same rows in fp32, TF32 and bf16, every success verified.

    python -m benchmarks.precision --model M1 --model-dir weights/ --data mnist --limit 1000 --steps 1000

The difference to fp32 is paired by sample, with a bootstrap interval. σ-zero is chaotic: rounding alone moves the mean
by a percent or more, so an interval that covers 0 means that no loss was seen.
"""

import argparse

import torch

import sigmazero as sz
from benchmarks.differences import paired_bootstrap
from sigmazero import data, models
from sigmazero.core.hardware import Precision

FORMATS: tuple[Precision, ...] = ("fp32", "tf32", "bf16")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attack", default="sigma-zero")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--model-dir")
    parser.add_argument("--data", default="mnist-5k-heldout")
    parser.add_argument("--data-dir")
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = models.load(args.model, model_dir=args.model_dir, device=device)
    rows = data.load(args.data, limit=args.limit, seed=0, data_dir=args.data_dir)
    x, y = rows.images.to(device), rows.labels.to(device)
    attack = sz.get(args.attack, steps=args.steps)
    runs = {name: attack.run(model, x, y, ids=rows.ids, hardware=sz.Hardware(precision=name)) for name in FORMATS}
    exact = runs["fp32"].changes.double().cpu().numpy()
    print(f"{'format':<8}{'ASR':>8}{'mean l0':>10}{'loss':>9}{'difference, 95 %':>22}{'seconds':>10}")
    for name, result in runs.items():
        coarse = result.changes.double().cpu().numpy()
        low, high = paired_bootstrap(coarse, exact, cap=x[0].numel())  # a failure counts as all of them
        loss = result.mean_l0 / runs["fp32"].mean_l0 - 1
        span = f"[{low:+.2f}, {high:+.2f}]"
        print(f"{name:<8}{result.asr():>8.1%}{result.mean_l0:>10.2f}{loss:>9.1%}{span:>22}{result.seconds:>10.2f}")


if __name__ == "__main__":
    main()
