"""SparseAutoAttack against its own members: robust accuracy of the cascade and of each attack alone, per budget.

    python -m benchmarks.cascade --models M1 M2 --model-dir weights/ --limit 128 --eps 10 24 50
    python -m benchmarks.cascade --models M1 M2 --limit 16 --eps 10 24 --together   # what each member costs

The cascade may leave no sample standing that one of its members fools; `holds` says whether that is so.
"""

import time
import warnings

import sigmazero as sz
from benchmarks.defences import line_of
from benchmarks.networks import networks, options, say
from sigmazero.core.metrics import DEFAULT_KS

ROUNDING = 1e-6  # shares of samples, in single precision


def main() -> None:
    parser = options(__doc__, limit=16)
    parser.add_argument("--eps", type=int, nargs="+", default=list(DEFAULT_KS))
    parser.add_argument("--version", default="standard")
    parser.add_argument("--unit", default="feature", choices=("feature", "pixel"))
    parser.add_argument("--together", action="store_true", help="the cascade alone, and what its members cost")
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # what the cascade says about the models is not the question here
    for code, model, x, y, _ in networks(args):
        for eps in args.eps:
            began = time.perf_counter()
            auto = sz.SparseAutoAttack(model, norm="L0", eps=eps, version=args.version, unit=args.unit, verbose=False)
            auto.run_standard_evaluation(x, y, bs=len(x))
            clean = auto.result.clean_accuracy
            together = auto.result.robust_accuracy()
            seconds = time.perf_counter() - began
            if args.together:
                line = {"model": code, "rows": len(x), "eps": eps, "unit": args.unit, **line_of(auto.result)}
                say(line | {"seconds": round(seconds, 1)}, args.out)
                continue
            alone = {
                name: float((model(points).argmax(1) == y).float().mean())
                for name, points in auto.run_standard_evaluation_individual(x, y, bs=len(x)).items()
            }
            line = {
                "model": code,
                "rows": len(x),
                "eps": eps,
                "version": str(auto.result.cascade),
                "clean": round(clean, 4),
                "cascade": round(together, 4),
                **{name: round(share, 4) for name, share in alone.items()},
                "holds": all(together <= share + ROUNDING for share in alone.values()),
                "seconds": round(seconds, 1),
            }
            say(line, args.out)


if __name__ == "__main__":
    main()
