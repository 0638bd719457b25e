"""Collect reasons to doubt the figures of a store: findings of the doctor, and what the stored results show."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import ArrayLike

from sigmazero.core.findings import Finding, coded, gating
from sigmazero.core.metrics import Floats
from sigmazero.core.model import NEEDS
from sigmazero.report.runs import Run, question
from sigmazero.store.store import Store

LUCK, NOTED, MASKED = 2, 0.01, 0.1  # samples that may differ by luck; the shares from which it is a warning, an error
GRADIENTS = ("SZ004", "SZ012", "SZ013", "SZ032")  # findings that concern only attacks that use gradients
EXHAUSTIVE = ("corner", "corner-at")  # attacks without gradients that may find more than gradients do
FIX = "look for rounding, saturation or randomness in the model, and attack a differentiable stand-in for it"

CellFindings = dict[str, list[Finding]]


def findings(store: Store, runs: Sequence[Run]) -> CellFindings:
    """Return the findings about each of these runs, by the key of its cell.

    A run that the doctor did not examine and that shows nothing itself has no entry.
    """
    doctor = store.findings()
    found = {
        run.info.key: relevant([_read(each) for each in doctor[run.info.key]], run.info.attack)
        for run in runs
        if run.info.key in doctor
    }
    for run, finding in derived(runs):
        found.setdefault(run.info.key, []).append(finding)
    return found


def errors(found: CellFindings, allow: Collection[str] = ()) -> list[Finding]:
    """Return the errors among findings, each once, without the codes in `allow`."""
    return gating(dict.fromkeys(finding for each in found.values() for finding in each), allow)


def relevant(found: Iterable[Finding], attack: str) -> list[Finding]:
    """Return findings about a model for one attack: without gradients, findings about gradients are warnings."""
    blind = NEEDS.get(attack, "gradients") != "gradients"
    return [replace(each, severity="warning") if blind and each.code in GRADIENTS else each for each in found]


def _read(stored: Mapping[str, str]) -> Finding:
    code, title, detail, fix = (stored.get(name, "") for name in ("code", "title", "detail", "fix"))
    return Finding(code, title, detail, fix, "error" if stored.get("severity") == "error" else "warning")


def masked(blind: ArrayLike, led: ArrayLike, by: str) -> Finding | None:
    """Return SZ014 if attacks without gradients, named `by`, fooled samples that no attack with gradients fooled.

    Both arrays have the fewest changes found for each sample, infinite where it was not fooled within the budget.
    """
    beaten = int((np.isfinite(blind) & ~np.isfinite(led)).sum())
    n = len(np.asarray(blind))
    if beaten <= max(LUCK, NOTED * n):
        return None
    detail = f"{beaten} of {n} samples ({beaten / n:.1%}) fell to {by} and to no attack that uses gradients."
    return coded("SZ014", detail, FIX, "error" if beaten > MASKED * n else "warning")


def derived(runs: Sequence[Run]) -> Iterator[tuple[Run, Finding]]:
    """Yield attacks that do worse with more steps, and those without gradients that beat the ones with gradients."""

    def alike(run: Run) -> tuple[str, ...]:
        return (*question(run), run.info.precision, str(run.info.margin))

    whole = [run for run in runs if len(run) == run.info.rows]
    for _, some in groupby(sorted(whole, key=alike), key=alike):
        same = list(some)
        for budget in dict.fromkeys(run.budget for run in same):
            limited = [run for run in same if run.budget == budget]
            yield from _worse_with_steps(limited)
            yield from _beaten(limited, same)


def _worse_with_steps(runs: Sequence[Run]) -> Iterator[tuple[Run, Finding]]:
    def method(run: Run) -> tuple[str, ...]:
        info = run.info
        others = {name: value for name, value in info.parameters.items() if name not in ("steps", "queries")}
        return info.attack, str(info.version), str(info.seed), repr(sorted(others.items()))

    for _, some in groupby(sorted(runs, key=method), key=method):
        for short, long in pairwise(sorted(some, key=lambda run: run.info.steps)):
            before, after = int(short.facts.success.sum()), int(long.facts.success.sum())
            if before - after > max(LUCK, MASKED * len(short)):
                steps = f"{before} in {short.info.steps:,} steps, {after} in {long.info.steps:,}"
                yield long, coded("SZ031", f"{long.info.attack} fooled {steps}, of {len(long)} samples.", FIX)


def _beaten(limited: Sequence[Run], same: Sequence[Run]) -> Iterator[tuple[Run, Finding]]:
    """Compare runs with one budget; `same` has those with other budgets too, which may have fooled within it."""
    if not any(_led(run) for run in limited):
        return
    most = limited[0].budget or math.inf
    led = np.min([_within(run, most) for run in same if _led(run)], axis=0)
    for run in limited:
        blind = NEEDS.get(run.info.attack) in ("scores", "labels") and run.info.attack not in EXHAUSTIVE
        if blind and (finding := masked(_within(run, most), led, run.info.attack)):
            yield run, finding


def _led(run: Run) -> bool:
    return NEEDS.get(run.info.attack) == "gradients"


def _within(run: Run, most: float) -> Floats:
    """Return the changes of each sample in the order of the rows, infinite where there are more than `most`."""
    changes = run.changes[np.argsort(run.facts.row, kind="stable")]
    return np.where(changes <= most, changes, np.inf)
