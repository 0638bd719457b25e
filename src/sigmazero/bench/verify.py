"""Check a store: compare checksums, rebuild every adversarial example, query the model and count the changes.

Impossible counts are found too. Only another search (`rerun`) can show whether a search made as many queries as is
stored, or really found nothing.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero import attacks
from sigmazero.bench import identity
from sigmazero.bench.cells import Cell, Subject, stored_question
from sigmazero.bench.constraints import judge_missing
from sigmazero.bench.loader import ABSENT, Loader, origin
from sigmazero.bench.provenance import provenance
from sigmazero.bench.worker import Unit, Worker
from sigmazero.core.attack import Attack
from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome
from sigmazero.report.formats import count
from sigmazero.report.runs import TRANSFER
from sigmazero.run.precision import Numbers, strictly
from sigmazero.store.facts import ROUNDING, CellInfo, Facts, Trace, rounding_of, same_answers
from sigmazero.store.store import Store, StoreError

BATCH_SIZE = 101  # unlike those of plans, since no fact may depend on it
RERUN_BATCHES = 2  # of each cell that are run again, drawn at random
SAME = ("torch", "numpy", "device", "threads", "processor", "sigmazero")  # if these agree, the bits should agree too
COMPARED = ("outcome", "l0", "l0_pixel", "clean_prediction", "prediction", "step_found", "forwards", "backwards")
COARSE = 300  # times ROUNDING: how far two number formats, such as fp32 and bf16, may lie apart
UNLOADABLE = (*ABSENT, ValueError, LookupError, TypeError)


@dataclass(frozen=True)
class Disagreement:
    """A stored value that is wrong; without `row` it concerns the whole cell, without `cell` the whole store."""

    cell: CellInfo | None
    row: int | None
    what: str

    def __str__(self) -> str:
        """Return one line."""
        if self.cell is None:
            return self.what
        cell = f"{self.cell.attack} against {self.cell.model} on {self.cell.dataset} [{self.cell.key[:12]}]"
        return f"{cell}{'' if self.row is None else f', row {self.row}'}: {self.what}"


@dataclass
class Verification:
    """The outcome of a check of a store.

    rows           samples that were checked
    skipped        cells that could not be checked, and why
    notes          limits of the check, and how searches differed that were run again
    survive_8bit   how many of the `found` adversarial examples still fool the model after rounding to 8 bits
    """

    rows: int = 0
    found: int = 0
    survive_8bit: int | None = None
    disagreements: list[Disagreement] = field(default_factory=list)
    skipped: list[Disagreement] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a sentence."""
        skipped = f", {count(len(self.skipped), 'cell')} could not be checked" if self.skipped else ""
        return f"{self.rows} rows checked, {len(self.disagreements)} disagreements{skipped}"

    def note(self, info: CellInfo, what: str) -> None:
        """Add a note about a cell."""
        self.notes.append(str(Disagreement(info, None, what)))

    def skip(self, info: CellInfo, why: str) -> None:
        """Say that a cell could not be checked."""
        self.skipped.append(Disagreement(info, None, why))


def verify(
    store: Store,
    loader: Loader,
    *,
    export_8bit: bool = False,
    keys: Collection[str] | None = None,
) -> Verification:
    """Check what is stored, of all cells or of those with these keys.

    First compare checksums. Then check every row with a fresh forward pass in strict fp32 (double for cells in double
    precision), and every success with another one in the float32 settings of this process. Superseded cells, whose
    models are gone, and models with random outputs get the first check alone.
    """
    done = Verification(survive_8bit=0 if export_8bit else None)
    flaws = [flaw for flaw in store.damage() if keys is None or flaw.key is None or flaw.key in keys]
    damaged = {flaw.key for flaw in flaws}
    done.disagreements += [Disagreement(store.cell(flaw.key) if flaw.key else None, None, flaw.what) for flaw in flaws]
    if None in damaged:  # the file itself
        return done
    if keys is None and (proofs := sum(len(store.proofs(key)) for key in store.proof_keys())):
        done.notes.append(f"{proofs} proved lower bounds are compared with the points, and not proved again here")
    old, findings = store.superseded(), store.findings()
    for info in map(store.cell, store.cell_keys() if keys is None else keys):
        if (key := info.key) in old:
            done.note(info, f"superseded by [{old[key][:12]}], so not checked again")
            continue
        if identity.is_random(findings.get(key, ())):
            done.skip(info, f"cannot be checked: its model has random outputs ({identity.RANDOM})")
            continue
        try:
            _check_cell(store, info, loader, done)
            store.proved(key)  # raises if a point is below its proved bound
        except StoreError as error:
            if key not in damaged:  # otherwise it is among the flaws
                done.disagreements.append(Disagreement(info, None, str(error)))
    return done


def _check_cell(store: Store, info: CellInfo, loader: Loader, done: Verification) -> None:
    wrong = [f"its {name} does not fit its key" for name in identity.contradictions(info)]
    done.disagreements += [Disagreement(info, None, what) for what in wrong]
    if lacking := int((~store.stored(info.key)).sum()):
        done.note(info, f"{lacking} of {info.rows} rows are not stored yet")
    try:
        subject = Subject.of_store(store, info, loader)
        found = list(_disagreements(store, info, subject, done))
        same_rows = subject.rows.content_hash == info.data_hash
        if found and not wrong and same_rows and edited(info, loader):
            done.skip(info, "cannot be checked here: the source files or layers of its model have changed since")
            return
    except UNLOADABLE as error:
        done.skip(info, f"cannot be checked here: {error}")
        return
    done.disagreements += [Disagreement(info, row, what) for row, what in found]


def edited(info: CellInfo, loader: Loader) -> bool:
    """Return whether a model that is loaded by name has other source files or layers than when its cell was run."""
    code, model = dict(info.identity.get("model", {}).get("code", {})), origin(info).model
    code.pop(identity.ANEW, None)
    return not loader.has(model) and identity.canonical(code) != identity.canonical(loader.code(model))


def _disagreements(
    store: Store, info: CellInfo, subject: Subject, done: Verification
) -> Iterator[tuple[int | None, str]]:
    """Yield what is wrong with a stored cell: the row's number, if it concerns one, and a sentence."""
    facts, positions = store.facts(info.key), store.positions(info.key)
    done.rows += len(facts)
    wrong = [*subject.differences(info), *_other_rows(subject, info, facts, positions)]
    answers = store.answers(info.key)
    network, problem = subject.network, subject.problem
    if not wrong and answers is not None and not same_answers(answers, identity.probe(network, problem.x)):
        wrong = ["the model here answers differently from the one that was attacked"]
    if wrong:
        yield from ((None, what) for what in wrong)
        return  # not the model or rows of the run: nothing more can be checked
    device = problem.x.device
    if judge_missing(info, problem.domain):
        done.note(info, "accept of its space is not stored, so it was not checked")
    numbers = Numbers.strict(device) if info.precision == "fp64" else Numbers.current(device)
    yield from ((int(row), what) for mask, what in facts.impossible(info.steps) for row in facts.row[mask])
    with strictly(network, device):
        for start in range(0, len(facts), BATCH_SIZE):
            part, at = facts.take(slice(start, start + BATCH_SIZE)), positions[start : start + BATCH_SIZE]
            some = subject.take(torch.from_numpy(at))
            yield from contradicted(network, some, part, coarse_numbers(info))
            yield from _holds_in_one_format(network, some, part, numbers)
            changed = part.found & (np.diff(part.offsets) > 0)
            done.found += int(changed.sum())
            if done.survive_8bit is not None:
                rounded = (part.rebuild(some.x) * 255).round() / 255
                still = some.goal.reached(logits_in(network(rounded))).cpu().numpy()
                done.survive_8bit += int((changed & still).sum())
        for position in np.flatnonzero(store.traced(info.key)).tolist():
            trace = store.trace(info.key, position)
            if what := _check_trace(network, subject.take(torch.tensor([position])), trace):
                yield int(subject.rows.ids[position]), what


def _other_rows(subject: Subject, info: CellInfo, facts: Facts, positions: NDArray[Any]) -> Iterator[str]:
    """Yield how the present rows differ from those of the facts."""
    rows = subject.rows
    if len(rows) != info.rows:
        yield f"there are {len(rows)} rows here and {info.rows} in the store"
        return
    targets = np.full(len(facts), -1) if subject.targets is None else subject.targets.numpy()[positions]
    here = {"row": rows.ids.numpy()[positions], "label": rows.labels.numpy()[positions], "target": targets}
    for name, values in here.items():
        if (differ := values != getattr(facts, name)).any():
            yield f"{name} of {int(differ.sum())} samples is not that of the data set"
    features = rows.images[:1].numel()
    if len(facts.index) and not 0 <= facts.index.min() <= facts.index.max() < features:
        yield f"a change is stored at feature {int(facts.index.max())}, but there are {features} features"


def _check_trace(network: Model, problem: Problem, trace: Trace) -> str:
    """Return what is wrong with a trace; nothing if all is well."""
    if not np.array_equal(trace.clean, problem.x[0].cpu().numpy()):
        return "the trace begins at another input"
    for start in range(0, len(trace), BATCH_SIZE):
        points = [trace.point(query) for query in range(start, min(start + BATCH_SIZE, len(trace)))]
        logits = logits_in(network(torch.from_numpy(np.stack(points)).to(problem.x)))
        same = problem.take(torch.zeros(len(points), dtype=torch.int64, device=problem.x.device))
        stored = torch.from_numpy(trace.margin[start : start + BATCH_SIZE]).to(logits)
        if bool(((same.goal.margin(logits) - stored).abs() > rounding_of(logits)).any()):
            return "a margin of the trace is not the model's"
    return ""


def coarse_numbers(info: CellInfo) -> bool:
    """Return whether a cell's facts were made in a coarser number format than strict fp32."""
    made = info.provenance.get("numbers")
    strict = Numbers.strict("cpu").in_words
    return any(one != strict for one in (made if isinstance(made, list) else [made]) if one is not None)


def _holds_in_one_format(network: Model, problem: Problem, facts: Facts, numbers: Numbers) -> Iterator[tuple[int, str]]:
    """Yield the rows whose point holds in strict fp32 or in these float32 settings, but not in both."""
    strict = Numbers.strict(numbers.device)
    if numbers == strict:
        return
    x_adv, fooled = facts.rebuild(problem.x), []
    for each in (strict, numbers):
        with each.applied():
            fooled.append(_array(problem.goal.reached(logits_in(network(x_adv.clone())).to(x_adv))))
    names = "fp32", f"{numbers.name}, the float32 settings of this process"
    for here, there in ((0, 1), (1, 0)):
        for row in facts.row[facts.found & fooled[here] & ~fooled[there]]:
            yield int(row), f"the stored example reaches the goal in {names[here]} and not in {names[there]}"


def contradicted(network: Model, problem: Problem, facts: Facts, coarse: bool = False) -> list[tuple[int, str]]:
    """Query the model at clean and adversarial inputs; return what is wrong with some facts, by the row's number.

    Call it in strict fp32. `problem` has the rows of the facts in their order. `coarse` means that the facts were made
    in a coarser number format, in which rounding alone may make a clean input right or wrong.
    """
    x_adv = facts.rebuild(problem.x)
    # A model may write to its input, and return the same memory again.
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
    """Yield which stored examples are illegal in their space, and which costs are wrong."""
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


# Searches that are run again ------------------------------------------------------------------------------------------


def rerun(store: Store, loader: Loader, share: float | int, done: Verification, seed: int = 0) -> int:
    """Run batches of some cells again and add to `done.notes` how they differ; return the number of rows compared.

    Another processor, number of threads or version rounds differently and may lead a search elsewhere. So differences
    are figures and no accusation. Cells that `done` could not check, or found wrong, are left out.

    share   a number of cells, or a float: the share of all cells; at least one cell is drawn
    seed    for the draw of cells and batches
    """
    out = {one.cell.key for one in (*done.skipped, *done.disagreements) if one.cell is not None and one.row is None}
    out |= store.superseded().keys()
    # Cells of `transfer` have no search to run again.
    every = [one.cell for one in store.status() if one.done and TRANSFER not in one.cell.origin]
    candidates = [info for info in every if info.key not in out]
    if not candidates:
        done.notes.append("no cell could be run again")
        return 0
    draw = random.Random(seed)
    count = round(share * len(candidates)) if isinstance(share, float) else share
    rows = 0
    for info in draw.sample(candidates, min(max(count, 1), len(candidates))):
        try:
            rows += _rerun_cell(store, info, loader, done, draw)
        except (*UNLOADABLE, StoreError) as error:
            done.skip(info, f"cannot be run again: {error}")
    return rows


def _rerun_cell(store: Store, info: CellInfo, loader: Loader, done: Verification, draw: random.Random) -> int:
    """Run batches of a cell again in the same way; return the number of rows."""
    if not info.identity:
        raise LookupError("it does not describe its attack in full")
    worker = Worker(loader, foreign=True)
    question = stored_question(store, info, loader, attack_of(info.identity["attack"]))
    batches, traced, rows = store.batches(info.key), store.traced(info.key), 0
    for positions, made in draw.sample(batches, min(RERUN_BATCHES, len(batches))):
        size, trace = int(made.get("batch_size", len(positions))), bool(traced[positions].any())
        cell = Cell(info, replace(question, batch_size=size, prepare=made.get("prepare", "fold"), trace=trace))
        start = int(positions[0]) // size * size
        result = worker.attack(Unit(cell, start, min(start + size, info.rows)))
        if result.error:
            raise ValueError(result.line)
        fresh = result.facts.take(np.isin(result.positions, positions))
        if what := _compared(store.facts(info.key, positions=positions), fresh):
            here = provenance(loader.device)
            same = loader.device.type == "cpu" and all(made.get(name) == here.get(name) for name in SAME)
            done.note(info, f"run again {'here' if same else 'on another machine or with other versions'}, {what}")
        rows += len(positions)
    return rows


def attack_of(described: Mapping[str, Any]) -> Attack:
    """Return the attack that a cell's identity describes: one of the registry, as it is here."""
    kind = described["class"]
    known = next((each for each in attacks.ATTACKS.values() if type(each).__name__ == kind), None)
    if known is None or "code" in described:
        raise LookupError(f"its attack {kind} is not in the registry of sigmazero")
    values: dict[str, Any] = {
        name: attack_of(value) if isinstance(value, dict) else tuple(value) if isinstance(value, list) else value
        for name, value in described["parameters"].items()
    }
    made = replace(known, **values)
    if made.version != described["version"]:
        raise ValueError(f"{kind} is version {made.version} here, the facts are of version {described['version']}")
    if identity.describe_attack(made) != described:
        raise ValueError(f"{kind} is described with other parameters or other code than it has here")
    return made


def _compared(stored: Facts, fresh: Facts) -> str:
    """Say how a batch that was run again differs from the stored one; empty if it does not."""
    masks = {name: getattr(stored, name) != getattr(fresh, name) for name in COMPARED}
    masks["margin"] = ~np.isclose(stored.margin, fresh.margin, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    masks["changes"] = np.array([one != two for one, two in zip(_changes(stored), _changes(fresh), strict=True)])
    parts = [f"{name} of {int(mask.sum())}" for name, mask in masks.items() if mask.any()]
    if not parts:
        return ""
    queries = [_mean(facts.forwards + facts.backwards) for facts in (fresh, stored)]
    return (
        f"of {len(stored)} rows differ: {', '.join(parts)}; mean changes {_mean(fresh.l0)} against "
        f"{_mean(stored.l0)} stored, mean queries {queries[0]} against {queries[1]} stored"
    )


def _mean(values: NDArray[Any]) -> str:
    finite = values[np.isfinite(values)]
    return f"{finite.mean():.2f}" if len(finite) else "none"


def _changes(facts: Facts) -> list[bytes]:
    """Return the changes of each row as bytes."""
    return [facts.index[a:b].tobytes() + facts.value[a:b].tobytes() for a, b in pairwise(facts.offsets)]
