"""Check a store: compare checksums, rebuild every adversarial example, ask the model again, and count again.

Counts that no attack can have made are noticed too. Whether a search asked as often as is stored, or really found
nothing, only another search can tell (`bench.rerun`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.bench import identity
from sigmazero.bench.cells import Subject
from sigmazero.bench.constraints import judge_missing
from sigmazero.bench.loader import ABSENT, Loader, origin
from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem, whole
from sigmazero.core.result import Outcome
from sigmazero.run.precision import Numbers, strictly
from sigmazero.store.facts import CellInfo, Facts, rounding_of, same_answers
from sigmazero.store.store import Flaw, Store, StoreError
from sigmazero.store.trace import Trace

BATCH_SIZE = 101  # not one that plans use: a fact must not depend on it
COARSE = 300  # times ROUNDING: by how much two number formats, such as fp32 and bf16, may differ
UNLOADABLE = (*ABSENT, ValueError, LookupError, TypeError)


@dataclass(frozen=True)
class Disagreement:
    """A stored value that is not true; `row` is None where it concerns the whole cell, `cell` where the whole store."""

    cell: CellInfo | None
    row: int | None
    what: str

    def __str__(self) -> str:
        """Return one line."""
        if self.cell is None:
            return self.what
        place = f"{self.cell.attack} against {self.cell.model} on {self.cell.dataset} [{self.cell.key[:12]}]"
        return f"{place}{'' if self.row is None else f', row {self.row}'}: {self.what}"


@dataclass
class Verification:
    """The outcome of a check of a store.

    rows           samples that were checked
    skipped        cells that could not be checked, with the reason
    notes          limits of the check, and differences of searches that were run again
    survive_8bit   how many of the `found` adversarial examples still fool once rounded
    """

    rows: int = 0
    found: int = 0
    survive_8bit: int | None = None
    disagreements: list[Disagreement] = field(default_factory=list)
    skipped: list[Disagreement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def verify(
    store: Store,
    loader: Loader,
    *,
    batch_size: int = BATCH_SIZE,
    export_8bit: bool = False,
    keys: Collection[str] | None = None,
) -> Verification:
    """Check what is stored, of all cells or of those with these keys.

    First everything is compared with its checksum. Then every row is checked with a fresh forward pass in strict fp32
    (double for cells in double precision), and every success with another one in the numbers of this process.
    Superseded cells are about models that are no longer here, and a model with random outputs contradicts itself: of
    these only the checksums are compared.
    """
    if not (whole(batch_size) and batch_size >= 1):
        raise ValueError(f"batch_size={batch_size!r} must be a whole number, 1 or more")
    done = Verification(survive_8bit=0 if export_8bit else None)
    infos, damaged = _damage(store, done, keys)
    if keys is None and None not in damaged and (proofs := sum(len(store.proofs(key)) for key in store.proof_keys())):
        done.notes.append(f"{proofs} proved lower bounds are compared with the points, and not proved again here")
    old, findings = ({}, {}) if None in damaged else (store.superseded(), store.findings())
    for key, info in infos.items():
        if key in old:
            done.notes.append(str(Disagreement(info, None, f"superseded by [{old[key][:12]}] and not asked again")))
            continue
        if identity.is_random(findings.get(key, ())):
            what = f"cannot be checked: its model has random outputs ({identity.RANDOM})"
            done.skipped.append(Disagreement(info, None, what))
            continue
        try:
            _check_cell(store, info, loader, done, batch_size)
            store.proved(key)  # raises where a point is below what is proved
        except StoreError as error:
            if not damaged & {key, None}:  # else it is among the flaws
                done.disagreements.append(Disagreement(info, None, str(error)))
    return done


def _damage(
    store: Store, done: Verification, keys: Collection[str] | None
) -> tuple[dict[str, CellInfo], set[str | None]]:
    """Note what is damaged; return the cells that can be read, and the keys of those with flaws (None: the file)."""
    flaws = [flaw for flaw in store.damage() if keys is None or flaw.key is None or flaw.key in keys]
    damaged = {flaw.key for flaw in flaws}
    infos: dict[str, CellInfo] = {}
    for key in store.cell_keys() if keys is None else keys:
        try:
            infos[key] = store.cell(key)
        except StoreError as error:
            flaws += [] if key in damaged else [Flaw(str(error))]
    for flaw in flaws:
        place = f"cell {flaw.key[:12]}: " if flaw.key is not None and flaw.key not in infos else ""
        done.disagreements.append(Disagreement(infos.get(flaw.key or ""), None, f"{place}{flaw.what}"))
    return infos, damaged


def _check_cell(store: Store, info: CellInfo, loader: Loader, done: Verification, batch_size: int) -> None:
    wrong = [f"its {name} does not fit its key" for name in identity.contradictions(info)]
    done.disagreements += [Disagreement(info, None, what) for what in wrong]
    if lacking := int((~store.stored(info.key)).sum()):
        done.notes.append(str(Disagreement(info, None, f"{lacking} of {info.rows} rows are not stored yet")))
    try:
        subject = Subject.of_store(store, info, loader)
        found = list(_disagreements(store, info, subject, done, batch_size))
        same_rows = subject.rows.content_hash == info.data_hash
        if found and not wrong and same_rows and edited(info, loader):
            found, changed = [], "the source files or layers of its model have changed since it was run"
            done.skipped.append(Disagreement(info, None, f"cannot be checked here: {changed}"))
    except UNLOADABLE as error:
        done.skipped.append(Disagreement(info, None, f"cannot be checked here: {error}"))
        return
    done.disagreements += [Disagreement(info, row, what) for row, what in found]


def edited(info: CellInfo, loader: Loader) -> bool:
    """Return whether a model that is loaded by name has other source files or layers than when its cell was run."""
    code, model = dict(info.identity.get("model", {}).get("code", {})), origin(info).model
    code.pop(identity.ANEW, None)
    return not loader.has(model) and identity.canonical(code) != identity.canonical(loader.code(model))


def _disagreements(
    store: Store, info: CellInfo, subject: Subject, done: Verification, batch_size: int
) -> Iterator[tuple[int | None, str]]:
    """Yield what is not true of a stored cell: the number of the row, if it concerns one, and a sentence."""
    facts, places = store.facts(info.key), store.positions(info.key)
    done.rows += len(facts)
    wrong = [*subject.differences(info), *_other_rows(subject, info, facts, places)]
    answers = store.answers(info.key)
    network, problem = subject.network, subject.problem
    if not wrong and answers is not None and not same_answers(answers, identity.probe(network, problem.x)):
        wrong = ["the model here answers differently from the one that was attacked"]
    if wrong:
        yield from ((None, what) for what in wrong)
        return  # another model or other rows than those of the run: nothing more can be checked
    device = problem.x.device
    if judge_missing(info, problem.domain):
        done.notes.append(str(Disagreement(info, None, "accept of its space is not stored, and was not asked again")))
    numbers = Numbers.strict(device) if info.precision == "fp64" else Numbers.current(device)
    yield from ((int(row), what) for mask, what in facts.impossible(info.steps) for row in facts.row[mask])
    with strictly(network, device):
        for start in range(0, len(facts), batch_size):
            part, at = facts.take(slice(start, start + batch_size)), places[start : start + batch_size]
            some = subject.take(torch.from_numpy(at))
            yield from contradicted(network, some, part, coarse_numbers(info))
            yield from _holds_in_one_format(network, some, part, numbers)
            changed = part.found & (np.diff(part.offsets) > 0)
            done.found += int(changed.sum())
            if done.survive_8bit is not None:
                rounded = (part.rebuild(some.x) * 255).round() / 255
                still = some.goal.reached(logits_in(network(rounded))).cpu().numpy()
                done.survive_8bit += int((changed & still).sum())
        for place in np.flatnonzero(store.traced(info.key)).tolist():
            trace = store.trace(info.key, place)
            if what := _check_trace(network, subject.take(torch.tensor([place])), trace, batch_size):
                yield int(subject.rows.ids[place]), what


def _other_rows(subject: Subject, info: CellInfo, facts: Facts, places: NDArray[Any]) -> Iterator[str]:
    """Yield how the rows that the facts are about differ from those here."""
    rows = subject.rows
    if len(rows) != info.rows:
        yield f"there are {len(rows)} rows here and {info.rows} in the store"
        return
    targets = np.full(len(facts), -1) if subject.targets is None else subject.targets.numpy()[places]
    here = {"row": rows.ids.numpy()[places], "label": rows.labels.numpy()[places], "target": targets}
    for name, values in here.items():
        if (differ := values != getattr(facts, name)).any():
            yield f"{name} of {int(differ.sum())} samples is not that of the data set"
    features = rows.images[:1].numel()
    if len(facts.index) and not 0 <= facts.index.min() <= facts.index.max() < features:
        yield f"a change is stored at feature {int(facts.index.max())}, but there are {features} features"


def _check_trace(network: Model, problem: Problem, trace: Trace, batch_size: int) -> str:
    """Return what is wrong with a trace; nothing if all is well."""
    if not np.array_equal(trace.clean, problem.x[0].cpu().numpy()):
        return "the trace begins at another input"
    for start in range(0, len(trace), batch_size):
        points = [trace.point(query) for query in range(start, min(start + batch_size, len(trace)))]
        logits = logits_in(network(torch.from_numpy(np.stack(points)).to(problem.x)))
        same = problem.take(torch.zeros(len(points), dtype=torch.int64, device=problem.x.device))
        stored = torch.from_numpy(trace.margin[start : start + batch_size]).to(logits)
        if bool(((same.goal.margin(logits) - stored).abs() > rounding_of(logits)).any()):
            return "a margin of the trace is not the model's"
    return ""


def coarse_numbers(info: CellInfo) -> bool:
    """Return whether a cell's facts were made in a coarser number format than strict fp32."""
    made = info.provenance.get("numbers")
    strict = Numbers.strict("cpu").words
    return any(one != strict for one in (made if isinstance(made, list) else [made]) if one is not None)


def _holds_in_one_format(network: Model, problem: Problem, facts: Facts, numbers: Numbers) -> Iterator[tuple[int, str]]:
    """Yield stored points that hold in strict fp32 or in these numbers, but not in both, by the row's number."""
    strict = Numbers.strict(numbers.device)
    if numbers == strict:
        return
    x_adv, fooled = facts.rebuild(problem.x), []
    for each in (strict, numbers):
        with each.applied():
            fooled.append(problem.goal.reached(logits_in(network(x_adv.clone())).to(x_adv)).cpu().numpy())
    here = f"{numbers.name}, the float32 settings of this process"
    for row in facts.row[facts.found & fooled[0] & ~fooled[1]]:
        yield int(row), f"the stored example reaches the goal in fp32 and not in {here}"
    for row in facts.row[facts.found & ~fooled[0] & fooled[1]]:
        yield int(row), f"the stored example reaches the goal in {here}, and not in fp32"


def contradicted(network: Model, problem: Problem, facts: Facts, coarse: bool = False) -> list[tuple[int, str]]:
    """Return what is not true of some facts, by the row's number; ask the model about clean and adversarial inputs.

    Call it in strict fp32. `problem` has the rows of the facts in their order. `coarse` says that the facts were made
    in a coarser number format, in which rounding alone may make a clean input right or wrong.
    """
    x_adv = facts.rebuild(problem.x)
    # A model may write to what it is given, and give the same memory again.
    clean, logits = logits_in(network(problem.x.clone())).clone(), logits_in(network(x_adv.clone()))
    slack, found, margin = rounding_of(logits), facts.found, problem.goal.margin(logits)
    counts = problem.domain.count(x_adv)
    l0, pixels = counts.l0.cpu().numpy(), counts.l0_pixel.cpu().numpy()
    within = problem.within_budget(torch.from_numpy(pixels if problem.unit == "pixel" else l0)).numpy()
    fooled, already = (_array(problem.goal.reached(each)) for each in (logits, clean))
    stated = facts.outcome == Outcome.ALREADY
    tolerance = torch.where(torch.from_numpy(stated).to(slack.device), slack, slack * (COARSE if coarse else 1))
    known = torch.from_numpy(np.isfinite(facts.margin)).to(margin.device)
    away = (margin - torch.from_numpy(facts.margin).to(margin)).abs() > slack
    predicted, clean_predicted = _array(logits.argmax(1)), _array(clean.argmax(1))
    clear, clean_clear = _array(_gap(logits) > slack), _array(_gap(clean) > slack)
    checks: list[tuple[NDArray[np.bool_], str]] = [
        (found & ~fooled, "the model is not fooled by the stored example"),
        (found & (facts.l0 != l0), "l0 is not the number of changed features"),
        (found & (facts.l0_pixel != pixels), "l0_pixel is not the number of changed positions"),
        (found & (facts.success != within), "the outcome does not say whether the example is within the budget"),
        (~found & (np.isfinite(facts.l0) | (l0 > 0)), "a sample without an example has changes or a finite l0"),
        (~np.isin(facts.outcome, list(Outcome)), "there is no such outcome"),
        ((facts.outcome == Outcome.FOUND) & (l0 == 0), "an example was found, and nothing is changed"),
        ((stated != already) & _array(_gap(clean) > tolerance), "the outcome is not that of the clean input"),
        (~_array(problem.domain.within(x_adv)), "the stored example leaves the box or the mask"),
        *_illegal(problem, x_adv, facts),
        (clean_clear & (clean_predicted != facts.clean_prediction), "clean_prediction is not the model's"),
        (clear & (predicted != facts.prediction), "prediction is not the model's"),
        (_array(torch.where(known, away, margin.isfinite())), "margin is not the model's"),
    ]
    return [(int(row), what) for mask, what in checks for row in facts.row[mask]]


def _illegal(problem: Problem, x_adv: Tensor, facts: Facts) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """Yield whether stored examples are legal in their space, and whether their costs are right."""
    changed = facts.found & (np.diff(facts.offsets) > 0)
    domain = problem.domain
    illegal = _array(domain.within(x_adv) & ~domain.legal(x_adv))
    yield changed & illegal, "the stored example is not legal in its space"
    if domain.accept is not None and changed.any():
        yield changed & ~_array(domain.accept(x_adv, problem.x)), "accept of the space refuses the example"
    wrong = "cost is not what the changes cost"
    if not domain.priced:
        yield ~np.isnan(facts.cost), wrong
        return
    cost = domain.count(x_adv).cost.double().cpu().numpy()
    yield ~np.isclose(facts.cost, np.where(facts.found, cost, np.inf), rtol=1e-5), wrong


def _gap(logits: Tensor) -> Tensor:
    """Return by how much the largest logit leads; 0 where one is not finite."""
    top = logits.topk(2, dim=1).values
    return torch.where(logits.isfinite().all(1), top[:, 0] - top[:, 1], 0.0)


def _array(values: Tensor) -> NDArray[Any]:
    return np.asarray(values.cpu().numpy())
