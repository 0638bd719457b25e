"""The record of a gate as plain numbers: what was asked, of what, with what code, what was found, and what follows.

`gate.schema.json` beside this file describes it. Whatever depends on the clock is under `times`, so that two runs of
one question can be compared byte by byte without it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from torch import nn

from sigmazero.auto.cascade import SparseAutoAttack
from sigmazero.auto.progress import fewest
from sigmazero.auto.report import CascadeReport
from sigmazero.auto.terms import EXIT, GateTerms
from sigmazero.auto.watch import standing
from sigmazero.bench import identity
from sigmazero.bench.plan import ModelSpec
from sigmazero.bench.provenance import package_hash, provenance
from sigmazero.core.findings import Finding
from sigmazero.core.oracle import Model
from sigmazero.core.source import code_hash
from sigmazero.data import Rows
from sigmazero.report.intervals import wilson
from sigmazero.run.precision import Numbers
from sigmazero.store.facts import Integers

FORMAT, VERSION, LEVEL = "sigmazero gate", 1, 0.95


@dataclass(frozen=True)
class GateModel:
    """How a record names a model: hashes of its weights and of its code, None where there is nothing to hash."""

    name: str
    weights: str | None
    code: str | None

    @staticmethod
    def of(model: Model, name: str, spec: ModelSpec | None = None) -> GateModel:
        """Of a model that was loaded as a spec says, or was handed in."""
        if not isinstance(model, nn.Module):
            return GateModel(name, None, code_hash(model if isinstance(model, FunctionType) else type(model)))
        weights = identity.hash_weights(model) if model.state_dict() else None
        return GateModel(name, weights, identity.digest(identity.describe_model(model, spec)))


def schema() -> dict[str, Any]:
    """The JSON schema of a record."""
    text = Path(__file__).with_name("gate.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def document(
    cascade: SparseAutoAttack,
    rows: Rows,
    model: GateModel,
    terms: GateTerms,
    findings: Sequence[Finding],
    began: str,
    least: Integers | None = None,
) -> dict[str, Any]:
    """The record of an evaluation that has ended; `least` are the changes that each row is proved to need."""
    report = cascade.report
    robust = None if report.eps is None else _robust(report, report.eps, least)
    outcome = terms.outcome(0 if robust is None else robust["count"], len(rows), findings)
    return {
        "format": FORMAT,
        "version": VERSION,
        "outcome": outcome,
        "exit_code": EXIT[outcome],
        "complete": robust is None or robust["at_least"] == robust["count"],
        "question": _question(cascade, rows, terms),
        "robust_accuracy": robust,
        "curve": [_share(report, k, least) for k in report.ks] if report.eps is None else [],
        "median_l0": _finite(report.result.median_l0) if report.eps is None else None,
        "clean_accuracy": report.clean_accuracy if bool(report.seen.all()) else None,
        "cascade": {"version": report.version, "left_out": list(report.left_out)},
        "members": _members(cascade, report),
        "findings": [{**asdict(found), "allowed": found.code in terms.allow} for found in findings],
        "model": asdict(model),
        "data": {
            "name": rows.name,
            "rows": len(rows),
            "content": rows.content_hash,
            "ids": identity.hash_integers(rows.ids),
        },
        "code": {"sigmazero": package_hash()},
        **_environment(report, began),
    }


def _question(cascade: SparseAutoAttack, rows: Rows, terms: GateTerms) -> dict[str, Any]:
    device = cascade.device or rows.images.device
    allowed = cascade.allowed
    space = allowed.identity(tuple(rows.images.shape[1:]))["space"]
    return {
        "eps": cascade.eps,
        "unit": cascade.unit,
        "seed": cascade.seed,
        "precision": cascade.precision or Numbers.current(device).name,
        "bounds": [identity.plain_bound(bound) for bound in allowed.bounds],
        "mask": None if allowed.mask is None else identity.hash_tensors({"mask": allowed.mask}),
        "space": None if space is None else identity.digest(space),
        "at_least": terms.at_least,
        "needed": None if terms.at_least is None else terms.needed(len(rows)),
        "allow": sorted(terms.allow),
    }


def _data(rows: Rows) -> dict[str, Any]:
    ids = identity.hash_integers(rows.ids)
    return {"name": rows.name, "rows": len(rows), "content": rows.content_hash, "ids": ids}


def _robust(report: CascadeReport, eps: int, least: Integers | None) -> dict[str, Any]:
    """The figure: an upper bound, as of every attack, what is certain where it ended early, and what is proved."""
    result, rows = report.result, len(report.result)
    low, high = standing(report.l0, report.attacked, result.clean_prediction, eps)
    interval = wilson(low, rows, LEVEL)[0], wilson(high, rows, LEVEL)[1]
    figures = {"value": high / rows, "count": high, "of": rows, "at_least": low, "interval": _interval(*interval)}
    return {**figures, "proved": _proved(least, eps)}


def _proved(least: Integers | None, k: float) -> int | None:
    """How many rows k changes are proved not to fool."""
    return None if least is None else int((least > k).sum())


def _share(report: CascadeReport, k: float, least: Integers | None) -> dict[str, Any]:
    """A point of the curve over numbers of changes."""
    rows = len(report.result)
    count = int((report.right & (fewest(report.l0) > k)).sum())
    figures = {"k": k, "value": count / rows, "count": count, "of": rows, "interval": _interval(*wilson(count, rows))}
    return {**figures, "proved": _proved(least, k)}


def _interval(low: float, high: float) -> dict[str, float]:
    return {"level": LEVEL, "low": low, "high": high}


def _members(cascade: SparseAutoAttack, report: CascadeReport) -> list[dict[str, Any]]:
    by_name = {member.name: member for member in cascade.members}
    found = []
    for place, name in enumerate(report.members):
        asked, before = report.attacked[place], fewest(report.l0[:place])
        gained = asked & report.right & (report.l0[place] < before)
        left = None if report.eps is None else int((report.right & (fewest(report.l0[: place + 1]) > report.eps)).sum())
        found.append(
            {
                "name": name,
                "version": by_name[name].version,
                "parameters": json.loads(identity.canonical(identity.plain_parameters(by_name[name]))),
                "attacked": int(asked.sum()),
                "improved": int(gained.sum()),
                "robust_after": left,
                "queries": int(report.queries[place].sum()),
            }
        )
    return found


def _environment(report: CascadeReport, began: str) -> dict[str, Any]:
    """Versions and device; and apart from them what the clock says."""
    found = provenance(report.result.x_adv.device)
    ended = found.pop("began")
    seconds = dict(zip(report.members, report.seconds, strict=True))
    return {"environment": found, "times": {"began": began, "ended": ended, "seconds": seconds}}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
