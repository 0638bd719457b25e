"""Attacks on models without gradients at equal queries, paired by sample with sparse-rs-min.

    python -m benchmarks.blackbox --models M1 --model-dir data/ --data-dir data/ --limit 100 --queries 500 2000
    python -m benchmarks.blackbox --models M1 --surrogate M2 --queries 60 200 500 2000 --attacks query-swap guided
    python -m benchmarks.blackbox --models prn18-linf --limit 32 --attacks query-swap --batch 16 --parts parts.jsonl
    python -m benchmarks.blackbox --models digits-forest drebin-forest --tables data/tabular
    python -m benchmarks.blackbox --models digits-boosting digits-svc digits-mlp drebin-mlp --tables data/tabular

A network is asked for its scores alone, label-swap sees its classes alone. The other models are scikit-learn's (a
forest of 100 trees, gradient boosting of 30 trees a class, an SVC with its decision values, an MLP with one hidden
layer of 64), trained on the first 1,200 digits or 10,000 apps (SVC: 3,000); of the rows after these the first that it
has right (of apps malware alone) are attacked. A difference is that of the mean numbers of changes, relative to
sparse-rs-min's (persistent: it spends all its queries), and a second one to query-swap's; a sample that was not fooled
counts as all its features. Lines that the file given with --out has are read, not measured again; so are the batches
of rows in the file given with --parts, so that a run that was cut short goes on where it was.
"""

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import sigmazero as sz
from benchmarks.differences import paired_bootstrap
from benchmarks.networks import networks, options, say
from sigmazero import models
from sigmazero.core.model import Ability


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


def trained(kind: str, x: Any, y: Any) -> Scores:
    """A model of scikit-learn, asked for what it has in the place of logits."""
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.svm import SVC

    model = {
        "forest": lambda: RandomForestClassifier(100, random_state=0, n_jobs=1),
        "boosting": lambda: GradientBoostingClassifier(n_estimators=30, random_state=0),
        "svc": lambda: SVC(random_state=0),
        "mlp": lambda: MLPClassifier((64,), max_iter=200, early_stopping=True, random_state=0),
    }[kind]()
    model.fit(x, y)

    def ask(points: Tensor) -> Tensor:
        rows = points.flatten(1).numpy()
        if kind in ("boosting", "svc"):
            found = model.decision_function(rows)
            found = np.stack([-found, found], 1) if found.ndim == 1 else found
        else:
            found = np.log(np.clip(model.predict_proba(rows), 1e-6 if kind == "forest" else 1e-30, None))
        return torch.tensor(found, dtype=points.dtype)

    return Scores(ask)


def tables(name: str, folder: Path | None, limit: int) -> tuple[Scores, Tensor, Tensor, Tensor]:
    """A model of digits, or of the apps in a file drebin181.npz in a folder, and the first rows that it has right."""
    source, kind = name.split("-")
    if source == "digits":
        from sklearn.datasets import load_digits

        digits = load_digits()
        x, y, after = digits.data / 16, digits.target, 1200
    else:
        if folder is None:
            raise SystemExit(f"{name} needs --tables FOLDER with drebin181.npz in it")
        with np.load(folder / "drebin181.npz", allow_pickle=False) as apps:
            x = np.unpackbits(apps["features"], axis=1)[:, : len(apps["names"])].astype("float32")
            y, after = apps["labels"].astype(int), 10_000
    train = min(after, 3000) if kind == "svc" else after
    model, points, labels = (
        trained(kind, x[:train], y[:train]),
        torch.tensor(x[after:]).float(),
        torch.tensor(y[after:]),
    )
    right = model(points).argmax(1) == labels
    rows = (right if source == "digits" else right & (labels == 1)).nonzero().squeeze(1)[:limit]
    return model, points[rows], labels[rows].long(), rows + after


def subjects(args: Any) -> Iterator[tuple[str, Any, Tensor, Tensor, Tensor]]:
    """Every model asked for, with its rows."""
    codes = args.models
    mine = [code for code in codes if code.partition("-")[0] in ("digits", "drebin")]
    for code in mine:
        yield code, *tables(code, args.tables, args.limit)
    args.models = [code for code in codes if code not in mine]
    for code, model, x, y, ids in networks(args):
        yield code, Scores(model.requires_grad_(False)), x, y, ids


def main() -> None:
    parser = options(__doc__, limit=100)
    parser.add_argument("--queries", type=int, nargs="+", default=[2000])
    parser.add_argument("--attacks", nargs="+", help="these alone, after sparse-rs-min")
    parser.add_argument("--surrogate", help="a network of the zoo for the guided search")
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--batch", type=int, help="rows that are attacked together, and said as soon as they are done")
    parser.add_argument("--parts", type=Path, help="append what each batch of rows found to this JSON-lines file")
    args = parser.parse_args()
    place = "cuda" if torch.cuda.is_available() else "cpu"
    guide = models.load(args.surrogate, model_dir=args.model_dir, device=place) if args.surrogate else None
    guide = guide if guide is None else guide.requires_grad_(False)
    for code, model, x, y, ids in subjects(args):
        for queries in args.queries:
            chosen = attacks(queries, guide)
            changes: dict[str, Tensor] = {}
            for name in dict.fromkeys(["sparse-rs-min", "query-swap", *(args.attacks or chosen)]):
                line = {"model": code, "rows": len(x), "queries": queries, "attack": name}
                line["surrogate"] = args.surrogate if name == "guided" else None
                known = measured(args.out, line)
                if known is None:
                    known = line | measure(batches(chosen[name], model, (x, y, ids), line, args), x[0].numel(), changes)
                    say(known, args.out)
                if "changes" in known:
                    changes[name] = torch.tensor(known["changes"]).double()


def measured(out: Path | None, line: dict[str, Any]) -> dict[str, Any] | None:
    """The line of the file that answers the same question."""
    lines = out.read_text(encoding="utf-8").splitlines() if out and out.exists() else []
    found: list[dict[str, Any]] = [json.loads(text) for text in lines]
    return next((one for one in found if one | line == one), None)


def batches(
    attack: sz.Attack, model: Any, rows: tuple[Tensor, ...], line: dict[str, Any], args: Any
) -> list[dict[str, Any]]:
    """What an attack found in each batch of rows, said and saved at once; null where a sample was not fooled."""
    found: list[dict[str, Any]] = []
    size = args.batch or len(rows[0])
    for at in range(0, len(rows[0]), size):
        part = line | {"first": at, "batch": size}
        known = measured(args.parts, part)
        if known is None:
            x, y, ids = (values[at : at + size] for values in rows)
            try:
                result = attack.run(model, x, y, ids=ids)
            except ValueError as refused:  # corner, where its queries do not suffice for all single changes
                return [{"refused": str(refused)}]
            least = [int(n) if math.isfinite(n) else None for n in result.changes.tolist()]
            known = part | {"l0": least, "most_forwards": int(result.forwards.max()), "seconds": result.seconds}
            if args.batch or args.parts:
                say(known, args.parts)
        found.append(known)
    return found


def measure(parts: list[dict[str, Any]], features: int, others: dict[str, Tensor]) -> dict[str, Any]:
    """What an attack found in all batches, and how that differs from the others."""
    if "refused" in parts[0]:
        return parts[0]
    least = np.array([math.inf if n is None else n for part in parts for n in part["l0"]])
    found = least.clip(max=features)
    line: dict[str, Any] = {
        "mean_l0": round(float(least.mean()), 3) if np.isfinite(least).all() else None,
        "median_l0": float(np.median(least)),
        "asr": float(np.isfinite(least).mean()),
    }
    for name, suffix in (("sparse-rs-min", ""), ("query-swap", "_to_query_swap")):
        base = others[name].numpy() if name in others else found
        low, high = paired_bootstrap(found, base, cap=features)
        mean = float(base.mean())
        line[f"difference{suffix}"] = round(float(found.mean()) / mean - 1, 4)
        line[f"interval{suffix}"] = [round(low / mean, 4), round(high / mean, 4)]
    return line | {
        "most_forwards": max(part["most_forwards"] for part in parts),
        "seconds": round(sum(part["seconds"] for part in parts), 1),
        "changes": [int(n) for n in found],
    }


if __name__ == "__main__":
    main()
