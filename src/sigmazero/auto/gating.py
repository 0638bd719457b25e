"""`sz.gate`: one evaluation that says yes or no, for pipelines and tests.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 2.]))
>>> x, y = torch.tensor([[0.5] * 4, [1.0] * 4]), torch.tensor([0, 0])
>>> verdict = sz.gate(model, (x, y), eps=2, at_least=0.5, version="quick")
>>> verdict.passed, verdict.robust_accuracy, verdict.exit_code
(True, 0.5, 0)
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero import models
from sigmazero.auto.bounds import GateProofs
from sigmazero.auto.cascade import SparseAutoAttack
from sigmazero.auto.document import GateModel, document
from sigmazero.auto.terms import GateTerms
from sigmazero.auto.verdict import GateVerdict
from sigmazero.auto.watch import GateWatch, Watch
from sigmazero.bench.constraints import USUAL, Allowed
from sigmazero.bench.plan import ModelSpec
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.findings import Finding, gating
from sigmazero.core.hardware import Precision
from sigmazero.core.inputs import Bounds, check_inputs, check_labels
from sigmazero.data import Rows, load
from sigmazero.models.doctor import examine
from sigmazero.run.progress import bar
from sigmazero.spaces.space import Space

NO_PROOFS = GateProofs()


def gate(
    model: object,
    data: Rows | tuple[Tensor, Tensor] | str,
    eps: int | None,
    at_least: float | None = None,
    *,
    allow: Sequence[str] = (),
    complete: bool = False,
    version: str = "standard",
    attacks_to_run: Sequence[str | Attack] = (),
    seed: int = 0,
    unit: Unit = "feature",
    bounds: Bounds = USUAL,
    mask: Tensor | None = None,
    space: Space | None = None,
    precision: Precision | None = None,
    device: str | torch.device | None = None,
    batch_size: int = 250,
    state_path: str | PathLike[str] | None = None,
    doctor: bool = True,
    claimed: float | None = None,
    name: str | None = None,
    proofs: str | PathLike[str] | None = None,
    certify: float | None = None,
    progress: bool = False,
) -> GateVerdict:
    """Measure robust accuracy under eps changes with `SparseAutoAttack`, and say whether that is enough.

    model       a module, anything that `sz.wrap` knows, or a name or file as `models.load` takes it
    data        rows from `data.load`, tensors (inputs, labels), or the name of a data set
    at_least    the share of the rows that must stay right; None only measures
    allow       codes of findings that are known and accepted; any other of severity error is a verdict of its own
    complete    go on to the end, although it may be certain before that too few rows stay right
    doctor      examine the model first; `claimed` is the accuracy, in percent, that it is known to have
    name        what records call the model
    proofs      a store with proved lower bounds (`sigmazero certify --store`), so that the figure is an interval
    certify     seconds to prove of each row that stays right that eps changes cannot fool it; kept in `proofs`
    state_path  keep the evaluation in this file, and go on where it stopped

    All else is as for `SparseAutoAttack`.
    """
    terms = GateTerms(at_least, tuple(allow), complete)
    rows, spec = _rows(data), ModelSpec(model, model) if isinstance(model, str) else None
    found = models.load(model, device=device or "cpu") if isinstance(model, str) else model
    may = Allowed(bounds, mask, space).on(rows)
    how: dict[str, Any] = {"bounds": may.bounds, "mask": may.mask, "space": may.space}
    if device is None and isinstance(data, tuple) and not isinstance(model, nn.Module):
        device = data[0].device  # a function does not say where it computes
    how |= {"unit": unit, "precision": precision, "device": device, "attacks_to_run": attacks_to_run}
    cascade = SparseAutoAttack(found, "L0", eps, seed, version=version, verbose=False, **how)
    if at_least is not None and eps is None:
        raise ValueError(f"at_least={at_least} needs a number of changes; give eps, such as eps=24")
    known = GateModel.of(cascade.model, name or _called(model), spec)
    bounds_from = GateProofs(None if proofs is None else Path(proofs), certify, spec)
    bounds_from.check(cascade, rows)
    seen = examined(cascade, rows, claimed) if doctor else []
    more: Any = {"proofs": bounds_from, "progress": progress}
    return judge(cascade, rows, known, terms, seen, batch_size=batch_size, state_path=state_path, **more)


def judge(
    cascade: SparseAutoAttack,
    rows: Rows,
    model: GateModel,
    terms: GateTerms,
    findings: Sequence[Finding],
    *,
    batch_size: int = 250,
    state_path: str | PathLike[str] | None = None,
    progress: bool = False,
    proofs: GateProofs = NO_PROOFS,
) -> GateVerdict:
    """Run a cascade on some rows, and judge it by its figures and by what was found before and in it."""
    began, n = time.strftime("%Y-%m-%dT%H:%M:%S%z"), len(rows)
    lost = None if terms.complete else partial(terms.lost, rows=n)
    most = cascade.most(rows.images, rows.labels)
    with bar("SparseAutoAttack", n * sum(most.values()), show=progress, unit="queries") as advance:
        cascade.watch, cascade.doctor = GateWatch(advance, most, n, cascade.eps, lost), False
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="SZ")  # the verdict has them
                cascade.run_standard_evaluation(rows.images, rows.labels, bs=batch_size, state_path=state_path)
        finally:
            cascade.watch, cascade.doctor = Watch(), True
    every = [found for found in (*findings, *cascade.report.findings) if found.code not in cascade.copes]
    found = document(cascade, rows, model, terms, every, began, proofs.least(cascade, rows))
    result = replace(cascade.report.result, ids=rows.ids, findings=tuple(gating(every)))
    return GateVerdict(found, replace(cascade.report, result=result))


def examined(cascade: SparseAutoAttack, rows: Rows, claimed: float | None = None) -> list[Finding]:
    """What the doctor says of a cascade's model on these rows, less what the cascade copes with."""
    where, images = cascade.device or rows.images.device, rows.images
    bounds, space = cascade.allowed.bounds, cascade.allowed.space
    images, labels = images.to(where), rows.labels.to(where)
    found = examine(cascade.model, images, labels, bounds=bounds, space=space, claimed=claimed)
    return [each for each in found if each.code not in cascade.copes]


def _rows(data: Rows | tuple[Tensor, Tensor] | str) -> Rows:
    if isinstance(data, str):
        return load(data)
    if isinstance(data, Rows):
        return data
    x, y = data
    check_inputs(x)
    check_labels(x, y)
    return Rows(x.detach().cpu(), y.detach().cpu().long(), torch.arange(len(x), device="cpu"), "given")


def _called(model: object) -> str:
    """What a record calls a model that nobody named."""
    if isinstance(model, str):
        return model
    kind = type(model).__name__
    return kind if isinstance(model, nn.Module) else str(getattr(model, "__name__", kind))
