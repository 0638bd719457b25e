"""Attacks on tables against simple searches: who finds cheap legal changes of rows, on which kinds of models.

    python -m benchmarks.spaces DATA --out rows.csv --tables adult --models mlp xgboost
    python -m benchmarks.spaces --out docs/evidence/rows.csv --page docs/evidence/rows.md

The second command writes the tables of a page anew from the file, and leaves its text. DATA is a folder with
drebin181.npz, adult.csv.gz and phishing.arff.gz; the table `bands` is made here. Needs scikit-learn, and XGBoost and
LightGBM for their models. Every cell is appended to the file as soon as it is done, and cells that are there already
are left out. Greedy selection and the judge of changed rows share nothing with `sz.Space`: they see the rows as a
`Table` decodes them, and what DECLARED says of their columns.
"""

import argparse
import gzip
import io
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from experiments.evidence import filled
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.svm import SVC
from torch import Tensor, nn
from torch.nn import functional as F

import sigmazero as sz
from sigmazero.data import Table
from sigmazero.report.formats import markdown

TRAINED, ROWS, POOL = 2500, 40, 512
TRIED, SHARE, LARGEST = 3, 15, 3  # a hardened training tries so many changes of one in 15 columns, at most of 3
FEW_VALUES, QUANTILES = 12, 10  # values of a number that greedy selection tries: all of few, else quantiles and ends
IDLE = 20  # beginnings in a row that find no change below the cheapest example end a greedy selection
DECLARED: dict[str, dict[str, dict[str, Any]]] = {
    "drebin": {},
    "adult": {
        **{name: {"direction": "none"} for name in ("marital-status", "relationship", "race", "sex", "native-country")},
        "age": {"direction": "up", "around": 5},
        "education": {"cost": 2},
        "capital-gain": {"cost": 3},
        "capital-loss": {"cost": 3},
    },
    "phishing": {
        **{name: {"cost": 3} for name in ("HostnameLength", "SubdomainLevel", "NumDashInHostname", "IpAddress")},
        "HttpsInHostname": {"direction": "none"},
    },
    "bands": {"c": {"cost": 2}, "e": {"direction": "up"}},
}
# Pairs of columns of which the first is never larger than the second.
BELOW: dict[str, list[tuple[str, str]]] = {
    "phishing": [
        ("NumDashInHostname", "NumDash"),
        ("SubdomainLevel", "NumDots"),
        ("NumQueryComponents", "QueryLength"),
        ("NumAmpersand", "NumQueryComponents"),
        ("PathLevel", "PathLength"),
    ]
}
NETWORKS = ("linear", "mlp", "hardened")
OTHERS = ("forest", "xgboost", "lightgbm", "missing", "pipeline")
SCORES = ("query-swap", "corner", "label-swap", "sparse-rs-min", "genetic")
GRADIENTS = ("sigma-swap", "sigma-zero", "saliency", "fmn", "vfga", "pgd-l0-min", "spgd-projected-min")
KINDS = (*NETWORKS, *OTHERS)
SLOW = ("missing", "pipeline")  # models that are asked about frames
SIMPLE = ("greedy", "restarts")
BEST = ("query-swap", "corner", "greedy", "restarts")  # compared with each other
SHOWN = (*BEST, "label-swap", "sparse-rs-min", "genetic", "sigma-swap", "sigma-zero")  # in the tables of costs
EVERY = (*BEST, *SCORES[2:], *GRADIENTS)
COLUMNS = (
    *("table", "model", "attack", "queries", "seed", "rows", "found", "changes", "cost", "distance", "asked"),
    *("illegal", "false", "most", "costs"),
)
CELL = ("table", "model", "attack", "queries", "seed")
Ask = Callable[[Tensor], Tensor]


# Tables


def frame_of(name: str, data: Path) -> tuple[Any, str]:
    """Return a table and its label."""
    if name == "bands":
        return bands(), "y"
    if name == "drebin":
        with np.load(data / "drebin181.npz") as file:
            bits = np.unpackbits(file["features"], axis=1)[:, : int(file["columns"])]
            frame = pd.DataFrame(bits.astype(np.int64), columns=[str(word) for word in file["names"]])
            return frame.assign(malware=file["labels"]).drop_duplicates(), "malware"
    if name == "adult":
        drop = ["fnlwgt", "split", "education-num"]
        return pd.read_csv(data / "adult.csv.gz", na_values="?").drop(columns=drop), "income"
    with gzip.open(data / "phishing.arff.gz", "rt") as file:
        text = file.read()
    names = [line.split()[1] for line in text.splitlines() if line.startswith("@attribute")]
    frame = pd.read_csv(io.StringIO(text.split("@data")[1]), names=names)
    whole = [name for name in names if not name.startswith("Pct") or name.endswith("RT")]
    frame[whole] = frame[whole].astype(np.int64)
    lawful = np.all([frame[low] <= frame[high] for low, high in BELOW["phishing"]], axis=0)
    return frame[lawful], names[-1]


def bands() -> Any:
    """Make a table whose second class lies inside ranges of its numbers."""
    rng, n = np.random.default_rng(0), 4000
    frame = pd.DataFrame({
        "a": rng.random(n).round(3), "b": rng.gamma(2, 100, n).round(1), "c": rng.integers(0, 1000, n),
        "d": rng.normal(50, 15, n).round(2), "e": rng.integers(0, 8, n), "f": rng.choice(list("uvwxyz"), n),
        "g": rng.choice(["yes", "no"], n), "h": rng.exponential(3, n).round(2),
    })  # fmt: skip
    score = 1.5 * frame.a.between(0.35, 0.5) + 1.2 * frame.c.between(300, 420) + 0.8 * frame.b.between(150, 260)
    score = score + 0.6 * frame.f.isin(["w", "y"]) + 0.4 * (frame.g == "yes") + 0.7 * frame.d.between(45, 55)
    return frame.assign(y=(score + rng.normal(0, 0.15, n) > 1.9).astype(int))


def with_gaps(name: str, frame: Any, label: str) -> Any:
    """Take every tenth value of every second wide column away, but for columns with rules."""
    frame, rng = frame.copy(), np.random.default_rng(1)
    bound = {label, *(column for both in BELOW.get(name, []) for column in both)}
    wide = [key for key in frame if key not in bound and frame[key].dtype.kind in "if" and frame[key].nunique() > 2]
    for key in wide[::2]:
        frame[key] = frame[key].astype(float).mask(rng.random(len(frame)) < 0.1)
    return frame


@dataclass(frozen=True)
class Task:
    """A table, its space, rows to train on and rows to attack."""

    name: str
    table: Table
    space: sz.Space
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor

    @property
    def declared(self) -> dict[str, dict[str, Any]]:
        return DECLARED[self.name]

    @property
    def most(self) -> float:
        """Return the cost of changing every column: that of a row that was not fooled."""
        options = [self.declared.get(str(name), {}) for name in self.table.frame.columns]
        return sum(option.get("cost", 1) for option in options if option.get("direction") != "none")


def task(name: str, data: Path, gaps: bool) -> Task:
    """Make a task; the rows are in an order drawn once."""
    frame, label = frame_of(name, data)
    frame = frame.sample(min(len(frame), 6000), random_state=0).reset_index(drop=True)
    if gaps:
        frame = with_gaps(name, frame, label) if name != "adult" else frame  # which has gaps of its own
    else:
        frame = frame.dropna().reset_index(drop=True)
    change = DECLARED[name] if name != "drebin" else {key: {"direction": "up"} for key in frame.columns if key != label}
    if name == "drebin":
        DECLARED[name] = change
    table = Table.from_frame(frame, label, change=change, name=name)
    rows = table.rows()
    rules = [sz.Rule({low: 1, high: -1}, "<=", 0) for low, high in BELOW.get(name, [])]
    space = table.space if not rules else replace(table.space, rules=[*table.space.rules, *rules])
    x, y = rows.images, rows.labels
    return Task(name, table, space, x[:TRAINED], y[:TRAINED], x[TRAINED:], y[TRAINED:])


# Models


def model_of(kind: str, task: Task) -> nn.Module:
    """Train a small model; all are asked about encoded rows."""
    x, y = task.train.numpy(), task.train_labels.numpy()
    torch.manual_seed(0)
    if kind in NETWORKS:
        return network(kind, task)
    if kind == "forest":
        return sz.wrap(RandomForestClassifier(25, min_samples_leaf=2, random_state=0).fit(x, y))
    if kind == "xgboost":
        from xgboost import XGBClassifier

        return sz.wrap(XGBClassifier(n_estimators=50, max_depth=4, n_jobs=1, random_state=0).fit(x, y))
    if kind == "lightgbm":
        from lightgbm import LGBMClassifier

        made = LGBMClassifier(n_estimators=50, num_leaves=15, n_jobs=1, verbose=-1, random_state=0)
        return sz.wrap(made.fit(x, y))
    frame, words = task.table.frame.iloc[:TRAINED], make_column_selector(dtype_include=object)
    if kind == "missing":
        code = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
        trees = HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=15, random_state=0)
        made = make_pipeline(ColumnTransformer([("words", code, words)], remainder="passthrough"), trees)
    else:
        code = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        both = ColumnTransformer([("words", code, words)], remainder=StandardScaler())
        made = make_pipeline(both, SVC(C=3.0))
    return sz.wrap(made.fit(frame, y), table=task.table)


def network(kind: str, task: Task, epochs: int = 25) -> nn.Module:
    """Train a linear model or an MLP; a hardened one on random legal changes of a few columns too."""
    x, y, rng = task.train, task.train_labels, np.random.default_rng(0)
    changes = [moves_of(task, row) for row in x] if kind == "hardened" else []
    mean, scale = x.mean(0), x.std(0).clamp(min=1e-3)
    if kind == "linear":
        fitted = LogisticRegression(max_iter=500).fit(((x - mean) / scale).numpy(), y.numpy())
        layer = nn.Linear(x.shape[1], 2, dtype=torch.float64).requires_grad_(False)
        weight = torch.from_numpy(fitted.coef_[0]) / scale
        layer.weight.copy_(torch.stack([-weight, weight]) / 2)
        bias = float(fitted.intercept_[0] - (weight * mean).sum())
        layer.bias.copy_(torch.tensor([-bias, bias]) / 2)
        return layer
    first, last = nn.Linear(x.shape[1], 48), nn.Linear(48, 2)
    net = nn.Sequential(first, nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), last).double()
    descent = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(epochs):
        for some in torch.randperm(len(x)).split(100):
            rows, labels = x[some], y[some]
            if kind == "hardened":
                moves = [changes[k] for k in some.tolist()]
                tried = [disturbed(rows, moves, len(columns_of(task)), rng) for _ in range(TRIED)]
                with torch.no_grad():
                    loss = [F.cross_entropy(net((z - mean) / scale), labels, reduction="none") for z in tried]
                worst = torch.stack(tried)[torch.stack(loss).argmax(0), torch.arange(len(rows))]
                rows, labels = torch.cat([rows, worst]), torch.cat([labels, labels])
            descent.zero_grad()
            F.cross_entropy(net((rows - mean) / scale), labels).backward()
            descent.step()
    first.weight.data /= scale
    first.bias.data -= first.weight.data @ mean
    return net.eval().requires_grad_(False)


# Greedy selection, the exact optimum of a linear model, and the least that bits may cost


@dataclass(frozen=True)
class Move:
    """A single change of a row: the column, its features and the values they get, and what the column costs."""

    column: str
    features: list[int]
    values: list[float]
    cost: float


def columns_of(task: Task) -> dict[str, list[int]]:
    """Return the features of each column that may change, without those that mark a missing value."""
    names = [str(name) for name in task.table.frame.columns]
    found: dict[str, list[int]] = {name: [] for name in names if task.declared.get(name, {}).get("direction") != "none"}
    for k, feature in enumerate(task.table.features):
        name = feature if feature in names else feature.rsplit("=", 1)[0]
        if name in found and not feature.endswith("=<missing>"):
            found[name].append(k)
    return found


def values_of(task: Task, name: str) -> list[float]:
    """Return the values of a number that are tried: all of few whole ones, else quantiles and ends."""
    shown = np.unique(task.table.frame[name].dropna().to_numpy(float))
    whole = np.arange(shown[0], shown[-1] + 1)
    if (shown == np.round(shown)).all() and len(whole) <= FEW_VALUES:
        return [float(value) for value in whole]
    return [float(value) for value in np.unique(np.quantile(shown, np.linspace(0, 1, QUANTILES), method="nearest"))]


def moves_of(task: Task, row: Tensor) -> list[Move]:
    """List the single changes of a row; a missing value stays so."""
    found, features = [], task.table.features
    gaps = {features[k].removesuffix("=<missing>") for k in row.nonzero()[:, 0].tolist() if "=<missing>" in features[k]}
    for name, at in columns_of(task).items():
        options = task.declared.get(name, {})
        cost, now = float(options.get("cost", 1)), row[at].tolist()
        if name in gaps:
            continue
        if len(at) > 1 or features[at[0]] != name:
            tried = [[float(k == chosen) for k in at] for chosen in at]
        elif "around" in options:
            steps = range(-int(options["around"]), int(options["around"]) + 1)
            low, high = task.table.frame[name].min(), task.table.frame[name].max()
            tried = [[now[0] + step] for step in steps if low <= now[0] + step <= high]
        else:
            tried = [[value] for value in values_of(task, name)]
        if options.get("direction") == "up":
            tried = [values for values in tried if values[0] > now[0]]
        found += [Move(name, at, values, cost) for values in tried if values != now]
    return found


def ordered(task: Task, points: Tensor) -> Tensor:
    """Return which rows have no column above one that it must stay below."""
    place, good = {name: k for k, name in enumerate(task.table.features)}, torch.ones(len(points), dtype=torch.bool)
    for low, high in BELOW.get(task.name, []):
        good &= points[:, place[low]] <= points[:, place[high]]
    return good


def greedy(ask: Ask, task: Task, row: Tensor, label: int, queries: int, rng: Any = None) -> tuple[Tensor, float, int]:
    """Add the change that lowers the margin most for its cost, until the row is fooled; each asks about every change.

    With random numbers, begin again and again with half of the columns, below the cheapest example, until the queries
    are spent. Return the example, its cost (infinite without one) and the queries.
    """
    every, best, cheapest, asked = moves_of(task, row), row, math.inf, 0
    names, idle = sorted({move.column for move in every}), 0
    while asked < queries and idle < IDLE:
        idle += 1
        some = set(names) if rng is None else set(rng.permutation(names)[: -(-len(names) // 2)].tolist())
        point, used, cost, margin = row, set[str](), 0.0, None
        while asked < queries:
            left = [m for m in every if m.column in some - used and cost + m.cost < cheapest]
            points = point.repeat(len(left), 1)
            for k, move in enumerate(left):
                points[k, move.features] = torch.tensor(move.values, dtype=points.dtype)
            kept = ordered(task, points).nonzero()[:, 0].tolist()[: queries - asked]
            if not kept:
                break
            asked, idle = asked + len(kept), 0
            scores = ask(points[kept])
            m = scores[:, label] - scores[:, 1 - label]
            costs = torch.tensor([cost + left[k].cost for k in kept])
            fooled = m < 0
            if fooled.any():
                at = int(costs.masked_fill(~fooled, torch.inf).argmin())
                best, cheapest = points[kept[at]], float(costs[at])
                break
            start = float(m.max()) if margin is None else margin
            at = int(((start - m) / (costs - cost)).argmax())
            point, margin, cost = points[kept[at]], float(m[at]), float(costs[at])
            used.add(left[kept[at]].column)
        if rng is None:
            break
    return best, cheapest, asked


def optimum(model: nn.Linear, task: Task, row: Tensor, label: int) -> float:
    """Return the least cost that fools a linear model, where columns change by themselves: the best gain by cost."""
    weight = model.weight[label] - model.weight[1 - label]
    scores, gains = model(row[None])[0], dict[tuple[str, float], float]()
    for name, at in columns_of(task).items():
        options, shown = task.declared.get(name, {}), task.table.frame[name]
        if len(at) > 1:
            falls = [float((weight[at] * row[at]).sum() - weight[k]) for k in at]
        else:
            now, around = float(row[at[0]]), float(options.get("around", math.inf))
            low = now if options.get("direction") == "up" else max(float(shown.min()), now - around)
            high = min(float(shown.max()), now + around)
            falls = [float(weight[at[0]]) * (now - end) for end in (low, high)]
        gains[name, float(options.get("cost", 1))] = max(falls)
    most = [0.0] * (int(task.most) + 1)  # the largest fall of the margin for so much
    for (_, cost), gain in gains.items():
        for total in range(len(most) - 1, int(cost) - 1, -1):
            most[total] = max(most[total], most[total - int(cost)] + gain)
    margin = float(scores[label] - scores[1 - label])
    return next((float(cost) for cost, gain in enumerate(most) if gain > margin), math.inf)


def least(model: Ask, x: Tensor, label: int) -> float:
    """Return 1 or 2 where so many added bits fool a model, else 3, by trying all."""
    free = (x == 0).nonzero()[:, 0]
    for count in (1, 2):
        for some in torch.combinations(free, count).split(8192):
            points = x.repeat(len(some), 1).scatter(1, some, 1.0)
            if bool((model(points).argmax(1) != label).any()):
                return float(count)
    return 3.0


def disturbed(rows: Tensor, moves: list[list[Move]], columns: int, rng: Any) -> Tensor:
    """Return rows with random changes."""
    found, number = rows.clone(), max(1, min(LARGEST, columns // SHARE))
    for k, some in enumerate(moves):
        for at in rng.integers(len(some), size=number):
            found[k, some[at].features] = torch.tensor(some[at].values, dtype=found.dtype)
    return found


# The judge


@dataclass(frozen=True)
class Judged:
    """A changed row by its decoded cells: what is wrong, what changed, what that costs, and how far numbers moved."""

    wrong: list[str]
    changes: int
    cost: float
    moved: list[float]


def judge(task: Task, before: dict[str, Any], after: dict[str, Any]) -> Judged:
    """Judge a row of the table."""
    wrong, changes, cost, moved = [], 0, 0.0, []
    for name, old in before.items():
        new, options, shown = after[name], task.declared.get(name, {}), task.table.frame[name]
        if old == new or (pd.isna(old) and pd.isna(new)):
            continue
        changes, cost = changes + 1, cost + float(options.get("cost", 1))
        if pd.isna(old) or pd.isna(new):
            wrong.append(f"{name} from {old} to {new}")
        elif isinstance(old, str):
            wrong += [] if new in set(shown) else [f"{name}={new}"]
        else:
            moved.append(abs(new - old) / (shown.max() - shown.min()))
            whole = bool((shown.dropna() == shown.dropna().round()).all())
            good = shown.min() <= new <= shown.max() and abs(new - old) <= options.get("around", math.inf)
            good = good and (not whole or new == round(new)) and (options.get("direction") != "up" or new > old)
            wrong += [] if good else [f"{name} from {old} to {new}"]
        wrong += [f"{name} changed"] if options.get("direction") == "none" else []
    wrong += [f"{low} > {high}" for low, high in BELOW.get(task.name, []) if after[low] > after[high]]
    return Judged(wrong, changes, cost, moved)


# Measuring


def made(attack: str, queries: int) -> sz.Attack:
    """Return an attack that asks at most so many queries; corner as many as all single changes take."""
    if attack == "corner":
        return sz.get(attack, steps=queries // 32)
    if attack == "sigma-swap":
        return sz.get(attack, queries=queries)
    each = {"genetic": 50, "sigma-zero": 2, "saliency": 11, "fmn": 2, "vfga": 22, "pgd-l0-min": 2}
    return sz.get(attack, steps=queries // each.get(attack, 2 if attack in GRADIENTS else 1))


def points_of(
    attack: str, model: nn.Module, task: Task, x: Tensor, y: Tensor, queries: int, seed: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return examples, their claimed changes and costs, and the queries of each row."""
    if attack in SIMPLE:
        rng = np.random.default_rng(seed)
        found = [greedy(model, task, x[k], int(y[k]), queries, rng if attack == "restarts" else None)
                 for k in range(len(x))]  # fmt: skip
        points, costs, asked = zip(*found, strict=True)
        return torch.stack(points), torch.full((len(x),), -1.0), torch.tensor(costs), torch.tensor(asked)
    try:
        pool = {"pool": task.train[:POOL]} if attack == "label-swap" else {}
        result = made(attack, queries).run(model, x, y, space=task.space, seed=seed, **pool)
    except ValueError:
        if attack != "corner":
            raise
        result = sz.get("corner").run(model, x, y, space=task.space, seed=seed)  # it needs more steps
    l0 = torch.where(result.success, result.l0, torch.inf)
    return result.x_adv, l0, torch.where(result.success, result.cost, torch.inf), result.forwards + result.backwards


def cell(attack: str, model: nn.Module, task: Task, x: Tensor, y: Tensor, queries: int, seed: int) -> dict[str, Any]:
    """Run one attack and judge all that it reports."""
    points, l0, cost, asked = points_of(attack, model, task, x, y, queries, seed)
    found = cost.isfinite().nonzero()[:, 0]
    before, after = (task.table.decode(some[found]) for some in (x, points))
    again = model(task.table.encode(after)).argmax(1) if len(found) else y[found]
    illegal = false = 0
    changes, moved = [], list[float]()
    for k, old, new in zip(range(len(found)), before.to_dict("records"), after.to_dict("records"), strict=True):
        one = judge(task, old, new)
        row = int(found[k])
        illegal += bool(one.wrong)
        miscounted = abs(one.cost - float(cost[row])) > 1e-3 or (l0[row] >= 0 and one.changes != int(l0[row]))
        false += bool(miscounted or again[k] == y[row])
        changes.append(one.changes)
        moved += one.moved
        if one.wrong:
            print(f"illegal: {task.name} {attack}: {one.wrong}", file=sys.stderr)
    return {
        "attack": attack, "queries": queries, "seed": seed, "rows": len(x), "found": len(found),
        "changes": f"{np.mean(changes):.3f}" if changes else "", "cost": f"{cost.clamp(max=task.most).mean():.3f}",
        "distance": f"{np.mean(moved):.3f}" if moved else "", "asked": f"{asked.double().mean():.0f}",
        "illegal": illegal, "false": false, "most": f"{task.most:g}",
        "costs": " ".join(f"{value:g}" for value in cost.tolist()),
    }  # fmt: skip


def cells(kind: str, seeds: int) -> Iterator[tuple[str, int, int]]:
    """List attacks, queries and seeds of a kind of model."""
    for attack in BEST:
        for seed in range(seeds if attack in ("query-swap", "restarts") else 1):
            yield attack, 500, seed
    for attack in (*SCORES, *(GRADIENTS if kind in NETWORKS else ())):
        if attack not in BEST:
            yield attack, 500, 0
    for queries in (100, 2000):
        for attack in best_three(kind):
            yield attack, queries, 0


def best_three(kind: str) -> tuple[str, ...]:
    """Return the attacks that are measured with fewer and more queries."""
    return "query-swap", "greedy", "sigma-swap" if kind in NETWORKS else "label-swap"


def measure(name: str, kind: str, args: argparse.Namespace) -> None:
    """Measure all cells of a table and a kind of model that are not in the file yet."""
    done = {tuple(line[key] for key in CELL) for line in lines_of(args.out).to_dict("records")}
    wanted = [one for one in cells(kind, args.seeds) if (name, kind, *one) not in done]
    if not wanted:
        return
    work = task(name, args.data, gaps=kind == "missing")
    model = model_of(kind, work)
    with torch.no_grad():
        right = model(work.test[:1500]).argmax(1) == work.test_labels[:1500]
    if name in ("drebin", "phishing"):  # those that pretend to be harmless
        right &= work.test_labels[: len(right)] == 1
    chosen = right.nonzero()[: args.rows, 0]
    x, y = work.test[chosen], work.test_labels[chosen]
    exact = kind == "linear"
    bound, value = ("optimum", partial(optimum, model, work)) if exact else ("at least", partial(least, model))
    possible = name != "phishing" if exact else name == "drebin" and kind not in SLOW
    if possible and (name, kind, bound, 0, 0) not in done:
        values = [float(value(row, int(label))) for row, label in zip(x, y, strict=True)]
        mean, costs = np.minimum(values, work.most).mean(), " ".join(f"{cost:g}" for cost in values)
        line = {"attack": bound, "queries": 0, "seed": 0, "rows": len(x), "found": int(np.isfinite(values).sum())}
        write({"table": name, "model": kind, **line, "cost": f"{mean:.3f}", "costs": costs}, args.out)
    for attack, queries, seed in wanted:
        write({"table": name, "model": kind, **cell(attack, model, work, x, y, queries, seed)}, args.out)


def lines_of(path: Path) -> pd.DataFrame:
    """Read the file as far as it is, with the costs of each row as an array; infinite where it was not fooled."""
    found = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=COLUMNS)
    found["costs"] = [np.array(str(costs).split(), float) for costs in found["costs"]]
    return found


def write(line: dict[str, Any], path: Path) -> None:
    """Append a line."""
    pd.DataFrame([line], columns=COLUMNS).to_csv(path, mode="a", header=not path.is_file(), index=False)


# The page


def costs_of(lines: pd.DataFrame, rows: int | None = None) -> Any:
    """Return the mean costs of the first rows; one that was not fooled counts as all columns."""
    every = [np.minimum(costs[:rows], most) for costs, most in zip(lines.costs, lines.most.fillna(np.inf), strict=True)]
    return np.mean(every, axis=0)


def interval(ours: Any, theirs: Any) -> tuple[float, float, float]:
    """Return how much more ours cost, and the ends of the 95 % interval over rows, as parts of theirs."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(ours), size=(4000, len(ours)))
    ratios = ours[drawn].mean(1) / theirs[drawn].mean(1) - 1
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(ours.mean() / theirs.mean() - 1), float(low), float(high)


def table_of(heading: str, names: Sequence[str], text: Callable[[str, str], str]) -> str:
    """Return a table with a row for each name that has any text, and a column for each kind of model."""
    rows = [{heading: name, **{kind: text(name, kind) for kind in KINDS}} for name in names]
    return markdown([row for row in rows if any(row[kind] for kind in KINDS)])


def costs_table(lines: pd.DataFrame, table: str) -> str:
    """Return mean costs of a table by attack and kind of model, and how many rows were not found.

    A column is about the same rows: those that each of its attacks was asked about.
    """
    mine = lines[(lines.table == table) & lines.queries.isin([0, 500])]

    def text(attack: str, kind: str) -> str:
        column = mine[mine.model == kind]
        some, rows = column[column.attack == attack], column.rows.min()
        if some.empty:
            return ""
        missed = np.mean([np.isinf(costs[:rows]).sum() for costs in some.costs])
        return f"{costs_of(some, rows).mean():.2f}" + (f" ({missed:.0f})" if missed else "")

    return table_of(table, ("optimum", "at least", *(attack for attack in EVERY if attack in SHOWN)), text)


def against(lines: pd.DataFrame) -> str:
    """Return how much more query-swap costs than the simple search that comes nearest, and the upper end."""

    def text(table: str, kind: str) -> str:
        mine = lines[(lines.table == table) & (lines.model == kind) & (lines.queries == 500)]
        each = {attack: costs_of(some) for attack, some in mine.groupby("attack") if attack in BEST}
        ours = each.pop("query-swap", None)
        if ours is None or not each:
            return ""
        sizes = {other: min(len(ours), len(theirs)) for other, theirs in each.items()}
        found = [interval(ours[: sizes[o]], each[o][: sizes[o]]) for o in BEST if o in each]
        mean, _, high = max(found, key=lambda ends: ends[2])
        return f"{100 * mean:+.1f} ({100 * high:+.1f})"

    return table_of("", tuple(DECLARED), text)


def kinds_table(lines: pd.DataFrame) -> str:
    """Return changes, cost, distance and the share found by attack and kind of model, averaged over all four tables."""

    def text(attack: str, kind: str) -> str:
        some = lines[(lines.attack == attack) & (lines.model == kind) & (lines.queries == 500)]
        if set(some.table) != set(DECLARED):
            return ""
        means = some.groupby("table", sort=False)[["changes", "cost", "distance"]].mean().mean()
        share = 100 * some.found.sum() / some.rows.sum()
        less = f" ({share:.0f})" if share < 100 else ""
        return f"{means.changes:.1f}/{means.cost:.1f}/{means.distance:.2f}{less}"

    return table_of("", EVERY, text)


def other_queries(lines: pd.DataFrame, queries: int) -> str:
    """Return the mean costs of the three best attacks with fewer or more queries."""

    def text(table: str, kind: str) -> str:
        mine = lines[(lines.table == table) & (lines.model == kind) & (lines.queries == queries)]
        some = [mine[mine.attack == attack] for attack in best_three(kind)]
        return "/".join("–" if each.empty else f"{costs_of(each).mean():.2f}" for each in some) if len(mine) else ""

    return table_of("", tuple(DECLARED), text)


def page(lines: pd.DataFrame, path: Path) -> None:
    """Write the tables of a page anew, each between two marks."""
    judged = lines[lines.illegal.notna()]
    counts = f"{judged.illegal.sum():.0f} are illegal and {judged.false.sum():.0f} false"
    parts: dict[str, Callable[[], str]] = {
        "judged": lambda: f"Of {judged.found.sum():,} examples {counts}.",
        "against": lambda: against(lines),
        "kinds": lambda: kinds_table(lines),
        **{name: partial(costs_table, lines, name) for name in DECLARED},
        **{str(queries): partial(other_queries, lines, queries) for queries in (100, 2000)},
    }
    path.write_text(filled(path.read_text(encoding="utf-8"), parts), encoding="utf-8")


def main() -> None:
    """Measure, or write the tables of the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--out", type=Path, default=Path("rows.csv"))
    parser.add_argument("--page", type=Path)
    parser.add_argument("--tables", nargs="*", default=list(DECLARED))
    parser.add_argument("--models", nargs="*", default=list(KINDS))
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.page is not None:
        page(lines_of(args.out), args.page)
        return
    if args.data is None:
        parser.error("give the folder with the tables")
    for name in args.tables:
        for kind in args.models:
            measure(name, kind, args)


if __name__ == "__main__":
    main()
