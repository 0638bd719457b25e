"""Whether what an attack claims is true, by code that shares nothing with it: plain torch and NumPy.

`python -m tests.helpers.judge` is a process that answers, for each case and its claims on stdin, with a list of
complaints on stdout (both as pickles, since it is our own process). It makes the model of a case itself.
"""

import pickle
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.helpers.cases import Case, fresh, make

Claims = dict[str, NDArray[Any]]
Shown = NDArray[Any]
ALREADY, FOUND, NON_FINITE = 0, 1, 3
NAMES = (
    *("x_adv", "success", "l0", "l0_pixel", "forwards", "backwards", "outcome", "step_found"),
    *("margin", "prediction", "clean_prediction"),
)


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
