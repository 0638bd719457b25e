"""Judge a model by one evaluation, yes or no, for pipelines and tests: `sz.gate`.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 2.]))
>>> x, y = torch.tensor([[0.5] * 4, [1.0] * 4]), torch.tensor([0, 0])
>>> verdict = sz.gate(model, (x, y), eps=2, at_least=0.5, version="quick")
>>> verdict.passed, verdict.robust_accuracy, verdict.exit_code
(True, 0.5, 0)
"""

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from fractions import Fraction
from os import PathLike
from pathlib import Path
from types import FunctionType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.auto.cascade import BATCH_SIZE, SparseAutoAttack
from sigmazero.auto.result import CascadeResult
from sigmazero.auto.verdict import DataId, Figure, Member, ModelId, Question, RecordedFinding, Times, Verdict
from sigmazero.bench import identity
from sigmazero.bench.constraints import DEFAULT_BOUNDS, Allowed
from sigmazero.bench.loader import Loader, find_device
from sigmazero.bench.plan import ModelSpec
from sigmazero.bench.proofs import proof_key, recall_proofs
from sigmazero.bench.provenance import package_hash, provenance
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.findings import gating
from sigmazero.core.hardware import Precision
from sigmazero.core.inputs import Bounds
from sigmazero.core.oracle import Model
from sigmazero.core.source import code_hash
from sigmazero.data import Rows, rows_of
from sigmazero.models.wrapping import by_names
from sigmazero.models.wrapping.limits import refuse_small_limit
from sigmazero.report.intervals import wilson
from sigmazero.run.precision import Numbers
from sigmazero.spaces.space import Space
from sigmazero.store.facts import Integers
from sigmazero.store.store import Store

EXIT: dict[str, Literal[0, 1, 3]] = {"passed": 0, "measured": 0, "below": 1, "findings": 3}  # 2 is misuse


def needed(rows: int, at_least: float | None, lower_end: bool = False) -> int:
    """Return how many of the rows must stay right; one more than there are where even all of them are too few.

    >>> needed(10, 0.6), needed(10, 0.605), needed(100, 0.07), needed(100, 0.6, lower_end=True), needed(10, None)
    (6, 7, 7, 70, 0)
    """
    if at_least is None:
        if lower_end:
            raise ValueError("lower_end needs at_least, the share that the lower end must reach")
        return 0
    if not 0 <= at_least <= 1:
        raise ValueError(f"at_least={at_least!r} must be a share from 0 to 1, such as 0.6")
    if lower_end:
        return next((count for count in range(rows + 1) if wilson(count, rows)[0] >= at_least), rows + 1)
    return math.ceil(Fraction(str(at_least)) * rows)  # as the number is written: 0.07 * 100 is a little more than 7


def gate(
    model: object,
    data: Any,
    eps: int | None,
    at_least: float | None = None,
    *,
    lower_end: bool = False,
    allow: Sequence[str] = (),
    complete: bool = False,
    version: str = "standard",
    attacks_to_run: Sequence[str | Attack] = (),
    seed: int = 0,
    unit: Unit = "feature",
    bounds: Bounds = DEFAULT_BOUNDS,
    mask: Tensor | None = None,
    space: Space | None = None,
    precision: Precision | None = None,
    device: str | torch.device | None = None,
    batch_size: int = BATCH_SIZE,
    store: str | PathLike[str] | None = None,
    doctor: bool = True,
    claimed: float | None = None,
    name: str | None = None,
    proofs: str | PathLike[str] | None = None,
    progress: bool = False,
) -> Verdict:
    """Measure robust accuracy at eps changes with `SparseAutoAttack`, and say whether that is enough.

    model      a module, anything that `sz.wrap` knows, a name or file as `models.load` takes it, or a `ModelSpec`
    data       whatever `data.rows_of` takes: rows, a pair (inputs, labels), a data set, a loader, a name
    at_least   the share of the rows that must stay right; None only measures
    lower_end  compare the lower end of the 95 % interval, so that luck in the choice of rows does not pass
    allow      codes of findings that are known and accepted; any other error makes the verdict inconclusive
    complete   go on to the end, although it may be certain before that too few rows stay right
    store      a file that keeps the evaluation; the same call goes on where it stopped
    doctor     examine the model first; `claimed` is the accuracy, in percent, that it is known to have
    name       what records call the model
    proofs     a store with proved lower bounds (`sigmazero certify --store`), so that the figure is an interval
    progress   say on stderr how far it is

    All else is as for `SparseAutoAttack`.
    """
    rows = rows_of(data)
    spec = ModelSpec(model, model) if isinstance(model, str) else model if isinstance(model, ModelSpec) else None
    enough = needed(len(rows), at_least, lower_end)
    gating([], allow)  # refuses a code that does not exist
    device = None if device is None else find_device(device)
    if at_least is not None and eps is None:
        raise ValueError(f"at_least={at_least} needs a number of changes; give eps, such as eps=24")
    # A model that the caller names is trusted.
    loaded = model if spec is None else Loader(device or "cpu", trust=[spec.spec]).model(spec)
    rows = by_names(rows, loaded)
    allowed = Allowed(bounds, mask, space).on(rows)
    if device is None and isinstance(data, tuple) and isinstance(data[0], Tensor) and not isinstance(model, nn.Module):
        device = data[0].device  # the device of a function is unknown
    how: dict[str, Any] = {"unit": unit, "precision": precision, "device": device, "attacks_to_run": attacks_to_run}
    how |= {"bounds": allowed.bounds, "mask": allowed.mask, "space": allowed.space}
    auto = SparseAutoAttack(loaded, "L0", eps, seed, version=version, verbose=False, **how)
    known = identify(auto.model, name or _name(model), spec)
    refuse_small_limit(auto.model, min(len(rows), batch_size))
    least = None if proofs is None else recall_bounds(Path(proofs), auto, rows, spec)
    say = (lambda line: sys.stderr.write(f"{known.name} on {rows.name}: {line}\n")) if progress else None
    findings = auto.examine(rows.images, rows.labels, claimed, say) if doctor else []
    began = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    found = auto.run(
        rows.images,
        rows.labels,
        ids=rows.ids,
        batch_size=batch_size,
        store=store,
        stop=None if eps is None or complete else lambda so_far: so_far.not_fooled(eps)[1] < enough,
        progress=progress,
        names=(known.name, rows.name),
        findings=findings,
    )
    if least is not None:
        refuse_contradiction(found, rows, least)
    figure = None if eps is None else _figure(found, eps, least)
    outcome: Literal["passed", "below", "findings", "measured"] = "measured" if at_least is None else "passed"
    if figure is not None and figure.count < enough:
        outcome = "below"  # points that fool the model are facts, whatever else is wrong: this goes before findings
    elif gating(found.findings, allow):
        outcome = "findings"
    device, median = torch.device(auto.device or rows.images.device), found.best.median_l0
    environment, limits = provenance(device), auto.allowed.identity(tuple(rows.images.shape[1:]))
    verdict = Verdict(
        outcome=outcome,
        exit_code=EXIT[outcome],
        complete=figure is None or figure.tried == figure.count,
        question=Question(
            eps=auto.eps,
            unit=unit,
            seed=auto.seed,
            precision=precision or Numbers.current(device).name,
            bounds=(limits["bounds"][0], limits["bounds"][1]),
            mask=limits["mask"],
            space=identity.digest(limits["space"]) if "space" in limits else None,
            at_least=at_least,
            lower_end=lower_end,
            needed=None if at_least is None else enough,
            allow=tuple(sorted(allow)),
        ),
        figure=figure,
        curve=() if eps is not None else tuple(_figure(found, k, least) for k in found.ks),
        median_l0=median if eps is None and math.isfinite(median) else None,
        clean_accuracy=found.clean_accuracy if bool(found.seen.all()) else None,
        cascade=str(found.cascade),
        left_out=found.left_out,
        members=tuple(_member(found, place) for place in range(len(found.runs))),
        findings=tuple(RecordedFinding(**asdict(each), allowed=each.code in allow) for each in found.findings),
        model=known,
        data=DataId(name=rows.name, rows=len(rows), content=rows.content_hash, ids=identity.hash_integers(rows.ids)),
        times=Times(
            began=began,
            ended=environment.pop("began"),
            seconds={run.attack.name: run.seconds for run in found.runs},
        ),
        environment={**environment, "package": package_hash()},
    )
    verdict._result = found
    return verdict


def _figure(found: CascadeResult, k: float, least: Integers | None) -> Figure:
    low, high = found.not_fooled(k)
    low = low if found.eps is not None else high  # without a budget only what may get sparser is left to attack
    return Figure(
        k=k,
        value=high / len(found),
        count=high,
        of=len(found),
        tried=low,
        low=wilson(low, len(found))[0],
        high=wilson(high, len(found))[1],
        proved=None if least is None else int((least > k).sum()),
    )


def _member(found: CascadeResult, place: int) -> Member:
    run = found.runs[place]
    left = None if found.eps is None else round(found.robust_accuracy(after=place + 1) * len(found))
    return Member(
        name=run.attack.name,
        version=run.attack.version,
        parameters=json.loads(identity.canonical(identity.plain_parameters(run.attack))),
        attacked=int(run.attacked.sum()),
        improved=int(found.gained(place).sum()),
        robust_after=left,
        queries=int(run.queries.sum()),
    )


def identify(model: Model, name: str, spec: ModelSpec | None = None) -> ModelId:
    """Return how a record identifies a model that was loaded as a spec says, or was handed in."""
    if not isinstance(model, nn.Module):
        code = code_hash(model if isinstance(model, FunctionType) else type(model))
        return ModelId(name=name, weights=None, code=code)
    weights = identity.hash_weights(model) if model.state_dict() else None
    return ModelId(name=name, weights=weights, code=identity.digest(identity.describe_model(model, spec)))


def _name(model: object) -> str:
    """Return what a record calls a model without a name."""
    if isinstance(model, str | ModelSpec):
        return model if isinstance(model, str) else model.name
    kind = type(model).__name__
    return kind if isinstance(model, nn.Module) else str(getattr(model, "__name__", kind))


def recall_bounds(path: Path, auto: SparseAutoAttack, rows: Rows, spec: ModelSpec | None) -> Integers:
    """Return the changes that each row is proved to need, 0 where nothing is proved.

    `spec` says how the model was loaded. A store without proofs about this model, unit and box is refused.
    """
    if not isinstance(auto.model, nn.Module):
        raise ValueError(f"the model is a {type(auto.model).__name__}; only a torch network has proofs")
    if not path.is_file():
        raise FileNotFoundError(f"there is no store {path}; certify rows into it first")
    key = proof_key(auto.model, auto.unit, auto.allowed, rows, spec)
    with Store(path) as store:
        if key not in store.proof_keys():
            raise ValueError(f"{path} has no proofs about this model with this unit and box; certify the rows into it")
    return recall_proofs(path, key, rows, auto.model)


def refuse_contradiction(found: CascadeResult, rows: Rows, least: Integers) -> None:
    """Raise an error if a point of the cascade has fewer changes than a proof says are needed."""
    fewest = np.where((found.seen & ~found.right).numpy(), 0.0, found.best.changes.double().numpy())
    for place in np.flatnonzero(fewest < least):
        by = found.found_by[int(place)]
        how = "is already wrong" if by is None else f"is fooled by {by} with {fewest[place]:g} changes"
        raise ValueError(
            f"row {int(rows.ids[place])} {how}, but a proof says that {least[place]} are needed, so one of "
            "them is wrong: attack the row alone and check the point, and prove it again"
        )
