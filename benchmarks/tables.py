"""How few legal changes fool networks on tables: Adult and phishing pages, with rules; every success judged by hand.

    python -m benchmarks.tables --pages phishing.arff.gz --limit 500 --queries 2000 --out tables.jsonl

Adult's rows and networks come with the package. Those of the phishing pages are trained by scripts/train_table.py on
`phishing.arff.gz` (Tan 2018) and lie beside its notes. Rows are held out, classified correctly and legal; of the pages
only those that pretend to be others. A row that was not fooled counts as all things that could change.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tests.benchmarks.legal import ADDRESS, FOLLOWS, JUDGES, TERNARY, page
from torch import Tensor, nn

import sigmazero as sz
from benchmarks.differences import paired_bootstrap
from benchmarks.networks import say
from sigmazero.core.inputs import make_problem
from sigmazero.data import Rows, Table, choose
from sigmazero.models.architectures.small import TableMLP

HERE = Path(__file__).with_name("notes")
KS = (1, 2, 5, 10)
USUAL = ["sigma-swap", "sigma-zero", "corner", "sparse-rs-min"]


class Follows:
    """How features of a page follow from others; columns by name."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.at = {name: place for place, name in enumerate(names)}

    def length(self, x: Tensor) -> Tensor:
        """Of the address: its parts, the scheme, and a question mark."""
        parts = sum(x[..., self.at[name]] for name in ("HostnameLength", "PathLength", "QueryLength"))
        return parts + 8 - x[..., self.at["NoHttps"]] + (x[..., self.at["QueryLength"]] > 0)

    def length_code(self, x: Tensor) -> Tensor:
        """Short, middling or long."""
        length = self.length(x)
        return 1 - (length >= 54).to(x) - (length > 75).to(x)

    def share_code(self, x: Tensor) -> Tensor:
        """How much of the links leads elsewhere or nowhere."""
        share = x[..., self.at["PctExtHyperlinks"]] + x[..., self.at["PctNullSelfRedirectHyperlinks"]]
        return 1 - (share >= 0.31).to(x) - (share > 0.67).to(x)


def page_space(table: Table) -> sz.Space:
    """What a page may change into: counters that depend on each other, lengths that follow, a domain that costs."""
    follows = Follows(table.features)
    below = [
        ("NumDashInHostname", "NumDash"),
        ("SubdomainLevel", "NumDots"),
        ("NumQueryComponents", "QueryLength"),
        ("NumAmpersand", "NumQueryComponents"),
        ("PathLevel", "PathLength"),
        ("DoubleSlashInPath", "PathLength"),
    ]
    signs = ("NumDots", "NumDash", "NumUnderscore", "NumPercent", "NumNumericChars", "NumAmpersand")
    rules = [sz.Rule({low: 1, high: -1}, "<=", 0) for low, high in below]
    rules += [sz.Rule({**dict.fromkeys(signs, 1), "UrlLength": -1}, "<=", 0)]
    rules += [sz.Rule({"SubdomainLevel": 2, "HostnameLength": -1}, "<=", 0)]
    change: dict[str, dict[str, Any]] = {name: {"cost": 3} for name in ADDRESS}
    return table.space_with(
        {**change, "HttpsInHostname": {"direction": "none"}},
        values={name: [-1, 0, 1] for name in TERNARY if name not in FOLLOWS},
        rules=rules,
        derived={
            "UrlLength": follows.length,
            "UrlLengthRT": follows.length_code,
            "PctExtNullSelfRedirectHyperlinksRT": follows.share_code,
        },
    )


def adult() -> Iterator[tuple[str, nn.Module, Rows, sz.Space]]:
    """The bundled networks and rows."""
    rows = sz.data.load("adult-sample")
    assert rows.space is not None
    for name in ("adult-mlp", "adult-mlp-robust"):
        yield name, sz.models.load(name), rows, rows.space


def phishing(path: Path) -> Iterator[tuple[str, nn.Module, Rows, sz.Space]]:
    """Held-out pages that pretend to be others and are legal by hand, and the networks beside the notes."""
    table = Table.read(path, HERE / "phishing.toml")
    rows = table.rows(dtype=torch.float32)
    held = rows.select(sorted(choose(len(rows), len(rows) // 5, seed=0)))
    names = table.features
    legal = [not page(dict(zip(names, row, strict=True))) for row in held.images.double().tolist()]
    chosen = (torch.tensor(legal) & (held.labels == 1)).nonzero().squeeze(1)
    for name in ("phishing-mlp", "phishing-mlp-robust"):
        model = TableMLP(len(names))
        model.load_state_dict(load_file(HERE / f"{name}.safetensors"))
        yield name, model.requires_grad_(False).eval(), held.select(chosen), page_space(table)


def runs(queries: int) -> Iterator[tuple[str, sz.Attack, tuple[int | None, ...]]]:
    """The attacks at equal queries, and the budgets of those that need one."""
    yield "sigma-swap", sz.get("sigma-swap", queries=queries), (None,)
    yield "sigma-zero", sz.get("sigma-zero", steps=queries // 2), (None,)
    yield "corner", sz.get("corner", steps=queries), (None,)
    yield "sparse-rs-min", sz.get("sparse-rs-min", steps=queries), (None,)
    yield "saliency", sz.get("saliency"), (None,)
    yield "genetic", sz.get("genetic"), (None,)  # 5,000 queries, as it is used for malware
    yield "sparse-rs", sz.get("sparse-rs", steps=queries), KS


def judged(kind: str, rows: Rows, result: sz.Result) -> dict[str, int]:
    """How many successes are illegal, and how many say a wrong number of changes or cost, by the judge by hand."""
    illegal = miscounted = 0
    assert rows.names is not None
    for place in result.success.nonzero().squeeze(1).tolist():
        before, after = rows.images[place].double().tolist(), result.x_adv[place].double().tolist()
        wrong, changes, cost = JUDGES[kind](rows.names, before, after)
        illegal += bool(wrong)
        miscounted += changes != int(result.l0[place]) or abs(cost - float(result.cost[place])) > 1e-6
    return {"successes": int(result.success.sum()), "illegal": illegal, "miscounted": miscounted}


def measure(kind: str, name: str, model: nn.Module, rows: Rows, space: sz.Space, args: argparse.Namespace) -> None:
    """Run every attack on the rows that a network has right."""
    with torch.no_grad():
        right = (model(rows.images).argmax(1) == rows.labels).nonzero().squeeze(1)
    chosen = rows.select(right[: args.limit])
    problem = make_problem(chosen.images, chosen.labels, space=space)
    base = None
    for attack, method, budgets in runs(args.queries):
        for budget in budgets if attack in args.attacks else ():
            result = method.run(model, chosen.images, chosen.labels, space=space, budget=budget, ids=chosen.ids)
            changes = result.changes.double().clamp(max=problem.sites)
            base = changes if base is None else base
            low, high = paired_bootstrap(changes.numpy(), base.numpy(), cap=problem.sites)
            line: dict[str, Any] = {
                "model": name,
                "rows": len(chosen),
                "attack": attack,
                "budget": budget,
                "queries": args.queries,
                "mean_changes": round(float(changes.mean()), 3),
                "median_changes": float(changes.median()),
                "more_than_first": [round(low, 3), round(high, 3)],
                "asr": round(result.asr(), 4),
                **{f"asr_{k}": round(result.asr(k), 4) for k in KS},
                "median_cost": _finite(float(result.cost.double().median())),
                **{f"asr_cost_{k}": round(result.asr_at_cost(k), 4) for k in KS},
                "mean_queries": round(float((result.forwards + result.backwards).double().mean()), 1),
                "seconds": round(result.seconds, 1),
                **judged(kind, chosen, result),
            }
            say(line, args.out)


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=Path, help="phishing.arff.gz; without it, Adult alone")
    parser.add_argument("--limit", type=int, default=500)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--attacks", nargs="+", default=USUAL, help="sparse-rs too, which is run once for each budget")
    parser.add_argument("--models", nargs="+", help="these networks alone")
    parser.add_argument("--out", type=Path, help="append the lines to this JSON-lines file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for kind, found in (("adult", adult()), ("phishing", phishing(args.pages) if args.pages else ())):
        for name, model, rows, space in found:
            if args.models is None or name in args.models:
                measure(kind, name, model, rows, space, args)


if __name__ == "__main__":
    main()
