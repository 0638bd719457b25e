"""What the facts of a store say against its own figures: findings that no look at a model alone can have."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby, pairwise

import numpy as np
from numpy.typing import NDArray

from sigmazero.core.findings import CODES, Finding, coded, gating
from sigmazero.core.model import NEEDS
from sigmazero.report.measure import Measured, changes
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

LUCK, SHARE = 2, 0.1  # samples, and the share of them, that may fall to one attack and not to another by luck
CellFindings = dict[str, list[dict[str, str]]]
FIX = "look for rounding, saturation or randomness in the model, and attack a differentiable stand-in for it"


def findings(store: Store, cells: Sequence[Measured]) -> CellFindings:
    """What the doctor said when the store was filled, and what the facts say, by the keys of the cells."""
    keys = {info.key for info, _ in cells}
    found = {key: list(told) for key, told in store.findings().items() if key in keys}
    for info, finding in doubts(cells):
        found.setdefault(info.key, []).append({**asdict(finding), "about": CODES[finding.code]})
    return found


def errors(told: CellFindings, allow: Collection[str] = ()) -> list[Finding]:
    """The errors among findings of a store, each once, less those that are allowed."""
    each = [_read(one) for found in told.values() for one in found]
    return gating({(one.code, one.detail): one for one in each}.values(), allow)


def _read(told: Mapping[str, str]) -> Finding:
    """A finding as a store has it; older ones say less."""
    code, title, detail, fix = (told.get(name, "") for name in ("code", "title", "detail", "fix"))
    return Finding(code, title, detail, fix, "error" if told.get("severity") == "error" else "warning")


def doubts(cells: Sequence[Measured]) -> Iterator[tuple[CellInfo, Finding]]:
    """Attacks that do worse with more steps, and gradients that are beaten by blind search."""
    whole = [(info, facts) for info, facts in cells if len(facts) == info.rows]
    for _, some in groupby(sorted(whole, key=_question), key=_question):
        alike = list(some)
        for budget in dict.fromkeys(info.budget for info, _ in alike):
            same = [cell for cell in alike if cell[0].budget == budget]
            yield from _falling(same)
            yield from _beaten(same, alike)


def _question(cell: Measured) -> tuple[str, ...]:
    """What cells have in common that differ in their attacks and budgets alone."""
    info = cell[0]
    same = (info.model_sha256, info.model, info.data_hash, info.unit, info.goal, info.precision)
    return tuple(map(str, (*same, info.origin.get("target"), info.identity.get("space"), info.margin)))


def _fooled(cell: Measured) -> NDArray[np.bool_]:
    return cell[1].success


def _falling(cells: Sequence[Measured]) -> Iterator[tuple[CellInfo, Finding]]:
    def method(cell: Measured) -> tuple[str, ...]:
        info = cell[0]
        others = {name: value for name, value in info.parameters.items() if name not in ("steps", "queries")}
        return info.attack, str(info.version), str(info.seed), repr(sorted(others.items()))

    for _, some in groupby(sorted(cells, key=method), key=method):
        longer = sorted(some, key=lambda cell: cell[0].steps)
        for short, long in pairwise(longer):
            before, after = int(_fooled(short).sum()), int(_fooled(long).sum())
            if before - after > max(LUCK, SHARE * short[0].rows):
                steps = f"{before} in {short[0].steps:,} steps, {after} in {long[0].steps:,}"
                yield long[0], coded("SZ031", f"{long[0].attack} fooled {steps}, of {long[0].rows} samples.", FIX)


def _beaten(cells: Sequence[Measured], alike: Sequence[Measured]) -> Iterator[tuple[CellInfo, Finding]]:
    """Compare cells with one budget; `alike` are those with other budgets too, which may have fooled within it."""
    needs = {info.key: NEEDS.get(info.attack) for info, _ in alike}
    blind = [cell for cell in cells if needs[cell[0].key] in ("scores", "labels")]
    if not blind or "gradients" not in {needs[info.key] for info, _ in cells}:
        return
    budget = cells[0][0].budget
    most = math.inf if budget is None else budget
    led = [changes(facts, info.unit) for info, facts in alike if needs[info.key] == "gradients"]
    missed = ~np.any([np.isfinite(each) & (each <= most) for each in led], axis=0)
    for cell in blind:
        info, beaten = cell[0], int((missed & _fooled(cell)).sum())
        if beaten > max(LUCK, SHARE * info.rows):
            what = f"{beaten} of {info.rows} samples ({beaten / info.rows:.1%})"
            yield info, coded("SZ014", f"{what} fell to {info.attack} and to no attack that uses gradients.", FIX)
