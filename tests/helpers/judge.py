"""Whether what an attack claims is true, by code that shares nothing with it: plain torch and NumPy.

`python -m tests.helpers.judge` is a process that answers, for each case and its claims on stdin, with a list of
complaints on stdout (both as pickles, since it is our own process). It makes the model of a case itself.
"""

import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tests.helpers.cases import Case, fresh, make
from tests.helpers.spaces import Plain, SpaceCase, make_space

Array = NDArray[Any]
Claims = dict[str, Array]
Sites = Sequence[Sequence[int]]
ALREADY, FOUND, NOT_FOUND, NON_FINITE, BEYOND_BUDGET = 0, 1, 2, 3, 7
NAMES = (
    *("x_adv", "success", "l0", "l0_pixel", "forwards", "backwards", "outcome", "step_found"),
    *("margin", "prediction", "clean_prediction", "cost"),
)


def per_sample(
    x: Array,
    x_adv: Array,
    y: Array,
    clean_logits: Array,
    adv_logits: Array,
    *,
    targeted: bool = False,
    unit: str = "feature",
    budget: int | None = None,
    sites: Sites | None = None,
    costs: Sequence[float] | None = None,
) -> Claims:
    """Recompute what each sample came to from the points and the logits alone.

    `sites` are the groups of flat features that count once in a space (a feature in none of them follows from others
    and is not counted), `costs` what a change of each costs. Counts are infinite where the point does not reach the
    goal. Of the outcomes only those that points can show are told: 2 stands for every way to find nothing.
    """
    x, x_adv, y = np.asarray(x), np.asarray(x_adv), np.asarray(y)
    clean, found = np.asarray(clean_logits, dtype=float), np.asarray(adv_logits, dtype=float)
    n, rows, size = len(x), np.arange(len(x)), int(np.prod(x.shape[1:]))
    chosen = by_site = (x_adv != x).reshape(n, size)
    if sites is not None:
        chosen = chosen & np.isin(np.arange(size), [k for site in sites for k in site])
        by_site = np.stack([chosen[:, list(site)].any(1) for site in sites], 1)
    images = chosen.reshape(x.shape)
    pixels = images.any(1).sum(tuple(range(1, x.ndim - 1))) if x.ndim > 2 else chosen.sum(1)
    features = chosen.sum(1) if unit == "pixel" else by_site.sum(1)

    def reached(logits: Array) -> Array:
        top = logits.argmax(1)
        return np.asarray(np.isfinite(logits).all(1) & ((top == y) if targeted else (top != y)))

    good = reached(found)
    l0, l0_pixel = (np.where(good, count, np.inf) for count in (features, pixels))
    changes = l0_pixel if unit == "pixel" else l0
    cost = changes if costs is None else np.where(good, (by_site * np.asarray(costs)).sum(1), np.inf)
    success = good if budget is None else good & (changes <= budget)
    outcome = np.where(success, FOUND, np.where(good, BEYOND_BUDGET, NOT_FOUND))
    outcome[reached(clean)] = ALREADY
    outcome[~np.isfinite(clean).all(1)] = NON_FINITE
    others = found.copy()
    others[rows, y] = -np.inf
    return {
        "l0": l0,
        "l0_pixel": l0_pixel,
        "changes": changes,
        "cost": cost,
        "success": success,
        "outcome": outcome,
        "prediction": found.argmax(1),
        "clean_prediction": np.where(np.isfinite(clean).all(1), clean.argmax(1), -1),
        "margin": (found[rows, y] - others.max(1, initial=-np.inf)) * (-1 if targeted else 1),
    }


def figures(
    x: Array,
    x_adv: Array,
    y: Array,
    clean_logits: Array,
    adv_logits: Array,
    *,
    targeted: bool = False,
    unit: str = "feature",
    budget: int | None = None,
    forwards: Array | None = None,
    backwards: Array | None = None,
    seconds: float | None = None,
    ks: Sequence[float] = (10, 24, 50),
    sites: Sites | None = None,
    costs: Sequence[float] | None = None,
    labels: Array | None = None,
) -> dict[str, float]:
    """Recompute every figure that is shown of a run; shares are of all samples, failures have infinitely many changes.

    `labels` are the true classes; without a target they are `y`. Counts of passes and seconds are means per sample.
    What is not given has no figure.
    """
    how: Any = {"targeted": targeted, "unit": unit, "budget": budget, "sites": sites, "costs": costs}
    each = per_sample(x, x_adv, y, clean_logits, adv_logits, **how)
    n, changes = len(each["changes"]), each["changes"]

    def mean(values: Array) -> float:
        return float(sum(map(float, values)) / len(values)) if len(values) else float("nan")

    ordered = sorted(changes.tolist())
    found = {
        "samples": float(n),
        "already_wrong": mean(each["outcome"] == ALREADY),
        **{f"asr@{k:g}": mean((changes <= k) & np.isfinite(changes)) for k in (*ks, np.inf)},
        "success": mean(each["success"]),
        "beyond_budget": mean(each["outcome"] == BEYOND_BUDGET),
        "median_l0": (ordered[(n - 1) // 2] + ordered[n // 2]) / 2 if n else float("nan"),
        "mean_l0": mean(changes),
        "mean_l0_found": mean(changes[np.isfinite(changes)]),
    }
    labels = y if labels is None and not targeted else labels
    if labels is not None:
        found["clean_accuracy"] = mean(each["clean_prediction"] == np.asarray(labels))
    if forwards is not None and backwards is not None:
        both = {"forwards": forwards, "backwards": backwards, "queries": np.asarray(forwards) + np.asarray(backwards)}
        found |= {name: mean(values) for name, values in both.items()}
    if seconds is not None and n:
        found["seconds_per_sample"] = seconds / n
    return found


AnyCase = Case | SpaceCase


@dataclass
class Facts:
    """What a case comes to: the inputs, the model, the legality of points and what counts, all made afresh."""

    x: Array
    y: Array
    logits: Callable[[Array], Array]
    legal: Callable[[Array, Array], list[str]]
    """Complaints about points of the given rows."""
    rows_of: Callable[[Array], Array]
    """Whose points those are that the model was shown; -1 where that cannot be told."""
    counts: dict[str, Any]

    def per_sample(self, rows: Array, points: Array, found: Array | None = None) -> Claims:
        """Recompute what points of some rows come to."""
        found = self.logits(points) if found is None else found
        return per_sample(self.x[rows], points, self.y[rows], self.clean[rows], found, **self.counts)

    @cached_property
    def clean(self) -> Array:
        """The logits of the clean inputs."""
        return self.logits(self.x)


def space_facts(plain: Plain, x: Tensor, y: Tensor, net: nn.Module, **asked: Any) -> Facts:
    """What a question in a space comes to; the last feature is the number of the row."""
    clean, sites = x.numpy(), plain.sites()
    return Facts(
        clean,
        y.numpy(),
        lambda points: net(torch.from_numpy(points.copy())).numpy(),
        lambda rows, points: plain.complaints(clean[rows], points, 1e-9, rows),
        lambda shown: shown[:, -1].astype(int),
        asked | {"sites": sites, "costs": [plain.cost[site[0]] for site in sites]},
    )


def facts_of(case: AnyCase) -> Facts:
    """What a case comes to."""
    if isinstance(case, SpaceCase):
        return space_facts(*make_space(case), **_how(case))
    asked = make(case)
    x = asked.x.contiguous().numpy()
    lower, upper = (bound.contiguous().numpy() for bound in asked.box)
    free = np.ones(x.shape, dtype=bool) if asked.mask is None else asked.mask.expand(x.shape).numpy()

    def logits(points: Array) -> Array:
        with torch.no_grad():
            return fresh(case)(torch.from_numpy(points.copy())).double().numpy() if len(points) else np.zeros((0, 2))

    def legal(rows: Array, points: Array) -> list[str]:
        words = [] if np.isfinite(points).all() else ["is not finite"]
        words += ["leaves the box"] if ((points < lower[rows]) | (points > upper[rows])).any() else []
        return words + (["changes what the mask forbids"] if (_bits(points, x[rows]) & ~free[rows]).any() else [])

    def rows_of(shown: Array) -> Array:
        if len(x) == 1:
            return np.zeros(len(shown), dtype=int)
        ours, theirs = x.reshape(len(x), -1)[:, 0], shown.reshape(len(shown), -1)[:, :1]
        known = not free.reshape(len(x), -1)[:, 0].any() and len(set(ours.tolist())) == len(x)
        return np.where((ours == theirs).any(1), (ours == theirs).argmax(1), -1) if known else np.full(len(shown), -1)

    return Facts(x, asked.y.numpy(), logits, legal, rows_of, _how(case))


def _how(case: AnyCase) -> dict[str, Any]:
    return {"targeted": case.targeted, "unit": case.unit, "budget": case.budget}


def _bits(points: Array, x: Array) -> Array:
    """Where the bytes of two arrays differ: 0 and -0 are equal, and not the same."""
    ours, theirs = (np.frombuffer(each.tobytes(), f"u{x.itemsize}") for each in (points, x))
    return np.asarray(ours != theirs).reshape(x.shape)


def judge(
    case: AnyCase,
    claims: Claims,
    limit: str | None = None,
    told: dict[str, float] | None = None,
    shown: Array | None = None,
) -> list[str]:
    """Return all that is not true, each complaint with the field that it is about in front.

    `limit` names the count in which an attack for a budget may never exceed it, `told` holds figures by their names
    in `figures`, `shown` all points that the model was asked about. In a box it is known whose they are if there is a
    single row, or if the first feature may not change and differs from row to row.
    """
    asked, x_adv = facts_of(case), claims["x_adv"]
    if x_adv.shape != asked.x.shape or x_adv.dtype != asked.x.dtype:
        return [f"x_adv: {x_adv.dtype}{x_adv.shape}, the inputs are {asked.x.dtype}{asked.x.shape}"]
    found = asked.logits(x_adv)
    wrong = [*_of_points(asked, claims), *_of_logits(asked, claims, found)]
    if limit is not None and (over := np.isfinite(claims[limit]) & (claims[limit] > asked.counts["budget"])).any():
        wrong.append(f"{limit}: {claims[limit][over]} by an attack for {asked.counts['budget']}")
    if told is not None:
        ks = [float(name[4:]) for name in told if name.startswith("asr@")]
        passes: Any = {name: claims[name] for name in ("forwards", "backwards")}
        true = figures(asked.x, x_adv, asked.y, asked.clean, found, **asked.counts, **passes, ks=ks)
        wrong += [f"{n}: {told[n]} is told, {true[n]} is true" for n in told if not _same(told[n], true[n])]
    return wrong + ([] if shown is None else list(lost(asked, claims, shown)))


def _same(claimed: Any, true: Any) -> bool:
    return bool(np.allclose(claimed, true, rtol=1e-6, atol=1e-9, equal_nan=True))


def lost(asked: Facts, claims: Claims, shown: Array) -> Iterator[str]:
    """Complain if the model was shown a better point of a sample than the one that was kept.

    One within the budget is better than one beyond it; then the cheaper one is, then the one with fewer changes.
    """
    rows, budget = asked.rows_of(shown), asked.counts["budget"]
    rows, shown = rows[rows >= 0], shown[rows >= 0]
    each = asked.per_sample(rows, shown)
    changes = "l0_pixel" if asked.counts["unit"] == "pixel" else "l0"

    def key(values: Claims, k: int) -> tuple[bool, float, float]:
        return budget is not None and values[changes][k] > budget, round(values["cost"][k], 4), values[changes][k]

    for k in np.flatnonzero(np.isfinite(each["cost"])).tolist():
        row = int(rows[k])
        better = key(each, k) < key(claims, row)
        if better and np.isfinite(shown[k]).all() and not asked.legal(rows[k : k + 1], shown[k : k + 1]):
            yield f"shown: row {row} fools with {key(each, k)} (over, cost, changes), claimed is {key(claims, row)}"
            return


def _of_points(asked: Facts, claims: Claims) -> Iterator[str]:
    """Complain about points, without the model."""
    x, x_adv = asked.x, claims["x_adv"]
    held = claims["success"] | (claims["outcome"] == BEYOND_BUDGET)
    yield from (f"x_adv: {words}" for words in asked.legal(np.arange(len(x)), x_adv))
    bits = _bits(x_adv, x)
    if bits[~held].any():
        yield "x_adv: a row without a point is not its clean input"
    if (bits & (x_adv == x)).any():
        yield "x_adv: an unchanged feature has other bits than its own"
    step = claims["step_found"]
    if (step[~held] != -1).any() or (step[held] < -1).any():
        yield f"step_found: {step}, points at {held}"


def _of_logits(asked: Facts, claims: Claims, found: Array) -> Iterator[str]:
    """Complain about what the model does not agree to."""
    true, outcome = asked.per_sample(np.arange(len(asked.x)), claims["x_adv"], found), claims["outcome"]
    finite, answered = np.isfinite(asked.clean).all(1), np.isfinite(found).all(1)
    # A failure may have many reasons, of which the points show one alone.
    failed = np.isin(outcome, (NOT_FOUND, NON_FINITE, 4, 5, 6)) & (true["outcome"] == NOT_FOUND)
    if not np.array_equal(np.where(failed, NOT_FOUND, outcome), true["outcome"]):
        yield f"outcome: {outcome}, true is {true['outcome']}"
    for name in ("success", "l0", "l0_pixel", "clean_prediction"):
        if not np.array_equal(claims[name], true[name]):
            yield f"{name}: {claims[name]}, true is {true[name]}"
    if not _same(claims["cost"], true["cost"]):
        yield f"cost: {claims['cost']}, true is {true['cost']}"
    if not np.array_equal(claims["prediction"][answered], true["prediction"][answered]):
        yield f"prediction: {claims['prediction']}, true is {true['prediction']}"
    if not np.allclose(claims["margin"][answered], true["margin"][answered], rtol=1e-4, atol=1e-5):
        yield f"margin: {claims['margin']}, true is {true['margin']}"
    once = (true["outcome"] == ALREADY) | ~finite
    for name, passes in (("forwards", 1), ("backwards", 0)):
        if (claims[name][once] != passes).any():
            yield f"{name}: {claims[name][once]} of rows that end with the clean check"


def main() -> None:
    """Answer until stdin ends."""
    torch.set_num_threads(1)
    while True:
        try:
            asked = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(judge(*asked), sys.stdout.buffer)
        sys.stdout.buffer.flush()
        assert not any(name.split(".")[0] == "sigmazero" for name in sys.modules), "the judge is not independent"


if __name__ == "__main__":
    main()
