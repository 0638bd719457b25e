"""Attacks on models without gradients at equal queries, paired by sample with sparse-rs-min.

    python -m benchmarks.blackbox --models M1 --model-dir data/ --data-dir data/ --limit 100 --queries 500 2000
    python -m benchmarks.blackbox --models M1 --surrogate M2 --queries 500 --attacks query-swap guided
    python -m benchmarks.blackbox --models digits-forest drebin-forest --tables data/tabular

A network is asked for its scores alone, label-swap sees its classes alone. The forests are scikit-learn's, of 100
trees, trained on the first 1,200 digits or 10,000 apps; of the others the first that it has right (of apps malware
alone) are attacked. A difference is that of the mean numbers of changes, relative to sparse-rs-min's (persistent: it
spends all its queries); a sample that was not fooled counts as all its features.
"""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sigmazero as sz
from benchmarks.networks import networks, options, say
from sigmazero import models
from sigmazero.core.ability import Ability
from sigmazero.report.intervals import paired_bootstrap


class Scores:
    """A model of which nothing but the scores can be had."""

    ability: Ability = "scores"

    def __init__(self, ask: Callable[[Tensor], Tensor]) -> None:
        self.ask = ask

    def __call__(self, x: Tensor) -> Tensor:
        """Scores without a way back."""
        with torch.no_grad():
            return self.ask(x)


def attacks(queries: int, surrogate: Any) -> dict[str, sz.Attack]:
    """Every attack, with so many queries; the one that others are compared with first."""
    found = {
        "sparse-rs-min": sz.get("sparse-rs-min", steps=queries, persistent=True),
        "query-swap": sz.get("query-swap", steps=queries),
        "label-swap": sz.get("label-swap", steps=queries),
        "corner": sz.get("corner", steps=max(1, queries // 32)),
    }
    return found | ({"guided": sz.get("query-swap", steps=queries, surrogate=surrogate)} if surrogate else {})


def forest(x: Any, y: Any, train: int, limit: int, only: int | None) -> tuple[Scores, Tensor, Tensor, Tensor]:
    """A forest, and the first rows after its training rows that it has right."""
    from sklearn.ensemble import RandomForestClassifier

    trees = RandomForestClassifier(100, random_state=0, n_jobs=1).fit(x[:train], y[:train])

    def ask(points: Tensor) -> Tensor:
        chances = trees.predict_proba(points.flatten(1).numpy())
        return torch.tensor(np.log(np.clip(chances, 1e-6, None)), dtype=points.dtype)

    model, points, labels = Scores(ask), torch.tensor(x[train:]).float(), torch.tensor(y[train:]).long()
    right = model(points).argmax(1) == labels
    rows = (right if only is None else right & (labels == only)).nonzero().squeeze(1)[:limit]
    return model, points[rows], labels[rows], rows + train


def tables(name: str, folder: Path | None, limit: int) -> tuple[Scores, Tensor, Tensor, Tensor]:
    """A forest on digits, or on the apps of a file drebin181.npz in a folder."""
    if name == "digits-forest":
        from sklearn.datasets import load_digits

        digits = load_digits()
        return forest(digits.data / 16, digits.target, 1200, limit, None)
    if folder is None:
        raise SystemExit(f"{name} needs --tables FOLDER with drebin181.npz in it")
    with np.load(folder / "drebin181.npz", allow_pickle=False) as apps:
        bits = np.unpackbits(apps["features"], axis=1)[:, : len(apps["names"])]
        return forest(bits.astype("float32"), apps["labels"].astype(int), 10_000, limit, 1)


def subjects(args: Any) -> Iterator[tuple[str, Any, Tensor, Tensor, Tensor]]:
    """Every model asked for, with its rows."""
    codes = args.models
    for code in (code for code in codes if code.endswith("-forest")):
        yield code, *tables(code, args.tables, args.limit)
    args.models = [code for code in codes if not code.endswith("-forest")]
    for code, model, x, y, ids in networks(args):
        yield code, Scores(model.requires_grad_(False)), x, y, ids


def main() -> None:
    parser = options(__doc__, limit=100)
    parser.add_argument("--queries", type=int, nargs="+", default=[2000])
    parser.add_argument("--attacks", nargs="+", help="these alone, after sparse-rs-min")
    parser.add_argument("--surrogate", help="a network of the zoo for the guided search")
    parser.add_argument("--tables", type=Path)
    args = parser.parse_args()
    guide = models.load(args.surrogate, model_dir=args.model_dir).requires_grad_(False) if args.surrogate else None
    for code, model, x, y, ids in subjects(args):
        for queries in args.queries:
            chosen = attacks(queries, guide)
            base, features = torch.zeros(0), x[0].numel()
            for name in dict.fromkeys(["sparse-rs-min", *(args.attacks or chosen)]):
                try:
                    result = chosen[name].run(model, x, y, ids=ids)
                except ValueError as refused:  # corner, where its queries do not suffice for all single changes
                    say({"model": code, "queries": queries, "attack": name, "refused": str(refused)}, args.out)
                    continue
                found = result.changes.double().clamp(max=features)
                base = found if name == "sparse-rs-min" else base
                mean = float(base.mean())
                low, high = paired_bootstrap(found.numpy(), base.numpy(), cap=features)
                line = {
                    "model": code,
                    "rows": len(x),
                    "queries": queries,
                    "attack": name,
                    "surrogate": args.surrogate if name == "guided" else None,
                    "mean_l0": round(result.mean_l0, 3) if math.isfinite(result.mean_l0) else None,
                    "median_l0": result.median_l0,
                    "asr": result.asr(),
                    "difference": round(float(found.mean()) / mean - 1, 4),
                    "interval": [round(low / mean, 4), round(high / mean, 4)],
                    "most_forwards": int(result.forwards.max()),
                    "seconds": round(result.seconds, 1),
                    "changes": [int(n) for n in found],
                }
                say(line, args.out)


if __name__ == "__main__":
    main()
