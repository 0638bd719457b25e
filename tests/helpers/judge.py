"""Whether what an attack claims is true, by code that shares nothing with it: plain torch and NumPy.

`python -m tests.helpers.judge` is a process that answers, for each case and its claims on stdin, with a list of
complaints on stdout (both as pickles, since it is our own process). It makes the model of a case itself.
"""

import pickle
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.helpers.cases import Case, fresh, make

Array = NDArray[Any]
Claims = dict[str, Array]
Shown = Array
Sites = Sequence[Sequence[int]]
ALREADY, FOUND, NOT_FOUND, NON_FINITE, BEYOND_BUDGET = 0, 1, 2, 3, 7
NAMES = (
    *("x_adv", "success", "l0", "l0_pixel", "forwards", "backwards", "outcome", "step_found"),
    *("margin", "prediction", "clean_prediction"),
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
    n, rows = len(x), np.arange(len(x))
    chosen = by_site = (x_adv != x).reshape(n, -1)
    if sites is not None:
        chosen = chosen & np.isin(np.arange(chosen.shape[1]), [k for site in sites for k in site])
        by_site = np.stack([chosen[:, list(site)].any(1) for site in sites], 1)
    images = chosen.reshape(x.shape)
    pixels = images.any(1).reshape(n, -1).sum(1) if x.ndim > 2 else chosen.sum(1)
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
    each = per_sample(
        *(x, x_adv, y, clean_logits, adv_logits),
        **{"targeted": targeted, "unit": unit, "budget": budget, "sites": sites, "costs": costs},  # type: ignore[arg-type]
    )
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


def logits_of(case: Case, x: NDArray[Any]) -> NDArray[Any]:
    """What a fresh model says."""
    if not len(x):
        return np.zeros((0, case.classes))
    with torch.no_grad():
        return fresh(case)(torch.from_numpy(x.copy())).double().numpy()


def judge(case: Case, claims: Claims, limit: str | None, shown: Shown | None = None) -> list[str]:
    """All that is not true; `limit` names what an attack for a budget may not exceed it in.

    `shown` are all points that the model was asked about, if there is a single row.
    """
    asked = make(case)
    x, y, x_adv = asked.x.contiguous().numpy(), asked.y.numpy(), claims["x_adv"]
    if x_adv.shape != x.shape or x_adv.dtype != x.dtype:
        return [f"x_adv is {x_adv.dtype} of shape {x_adv.shape}, the inputs are {x.dtype} of shape {x.shape}"]
    clean, found = logits_of(case, x), logits_of(case, x_adv)
    wrong = [*_of_points(case, asked, claims, x), *_of_logits(case, claims, y, clean, found)]
    good = claims["success"]
    if limit is not None and case.budget is not None and (claims[limit][good] > case.budget).any():
        wrong.append(f"more than {case.budget} changes: {claims[limit][good]}")
    return wrong + ([] if shown is None else list(_of_shown(case, asked, claims, shown, limit)))


def _of_shown(case: Case, asked: Any, claims: Claims, shown: Shown, limit: str | None) -> Iterator[str]:
    """Whether the sparsest of the points that fooled the model was kept."""
    x = asked.x.contiguous().numpy()
    logits, axes = logits_of(case, shown), tuple(range(1, x.ndim))
    top, target = logits.argmax(1), asked.y.numpy()[0]
    good = np.isfinite(logits).all(1) & ((top == target) if case.targeted else (top != target))
    lower, upper = (bound.contiguous().numpy() for bound in asked.box)
    good &= ((shown >= lower) & (shown <= upper) & np.isfinite(shown)).all(axes)
    changed = shown != x
    if asked.mask is not None:
        good &= ~(changed & ~asked.mask.expand(x.shape).numpy()).any(axes)
    pixel = limit == "l0_pixel" or (limit is None and case.unit == "pixel")
    sites = changed.any(1, keepdims=True) if pixel and x.ndim > 2 else changed
    counts = np.where(good, sites.sum(axes), np.inf)
    if limit is not None and case.budget is not None:
        counts[counts > case.budget] = np.inf
    claimed = claims["l0_pixel" if pixel else "l0"][0]
    if claimed > counts.min():
        yield f"{claimed} changes are claimed, the model was shown a point with {counts.min()} that fools it"


def _of_points(case: Case, asked: Any, claims: Claims, x: NDArray[Any]) -> Iterator[str]:
    """What can be said without the model."""
    x_adv, good = claims["x_adv"], claims["success"]
    if not np.isfinite(x_adv).all():
        yield "x_adv is not finite"
    lower, upper = (bound.contiguous().numpy() for bound in asked.box)
    if (x_adv < lower).any() or (x_adv > upper).any():
        yield "x_adv leaves the box"
    bits = np.frombuffer(x_adv.tobytes(), f"u{x.itemsize}") != np.frombuffer(x.tobytes(), f"u{x.itemsize}")
    bits, changed = bits.reshape(x.shape), x_adv != x
    if asked.mask is not None and (bits & ~asked.mask.expand(x.shape).numpy()).any():
        yield "x_adv changes what the mask forbids"
    if bits[~good].any():
        yield "a row without success is not its clean input"
    if (bits & ~changed)[good].any():
        yield "an unchanged feature has other bits than its own"
    flat = changed.sum(tuple(range(1, x.ndim)))
    pixels = changed.any(1).sum(tuple(range(1, x.ndim - 1))) if x.ndim > 2 else flat
    for name, counted in (("l0", flat), ("l0_pixel", pixels)):
        if not np.array_equal(claims[name], np.where(good, counted, np.inf)):
            yield f"{name} is {claims[name]}, counted {counted}, success {good}"
    if (claims["step_found"][~good] != -1).any() or (claims["step_found"][good] < -1).any():
        yield f"step_found is {claims['step_found']}, success {good}"


def _of_logits(case: Case, claims: Claims, y: NDArray[Any], clean: NDArray[Any], found: NDArray[Any]) -> Iterator[str]:
    """What the model must agree to."""
    good, outcome, finite = claims["success"], claims["outcome"], np.isfinite(clean).all(1)
    if not np.isfinite(found[good]).all():
        yield "a success is no finite answer of the model"
    top = found.argmax(1)
    fooled = top == y if case.targeted else top != y
    if not fooled[good].all():
        yield f"success is {good}, the model is fooled in {fooled}"
    already = finite & ((clean.argmax(1) == y) if case.targeted else (clean.argmax(1) != y))
    if not np.array_equal(outcome == ALREADY, already):
        yield f"outcome is {outcome}, already there are {already}"
    if not np.array_equal(good, np.isin(outcome, (ALREADY, FOUND))):
        yield f"outcome is {outcome}, success {good}"
    if (outcome[~finite] != NON_FINITE).any():
        yield f"outcome is {outcome}, the clean answer is finite for {finite}"
    if not np.array_equal(claims["clean_prediction"], np.where(finite, clean.argmax(1), -1)):
        yield f"clean_prediction is {claims['clean_prediction']}, the model says {clean.argmax(1)}"
    if not np.array_equal(claims["prediction"][good], top[good]):
        yield f"prediction is {claims['prediction']}, the model says {top}"
    once = already | ~finite
    if (claims["forwards"][once] != 1).any() or (claims["backwards"][once] != 0).any():
        yield "a row that ends with the clean check costs more than one forward"
    rows = np.arange(len(y))
    others = found.copy()
    others[rows, y] = -np.inf
    margin = (found[rows, y] - others.max(1, initial=-np.inf)) * (-1 if case.targeted else 1)
    if not np.allclose(claims["margin"][good], margin[good], rtol=1e-4, atol=1e-5):
        yield f"margin is {claims['margin']}, the model says {margin}"


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
