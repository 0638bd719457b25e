"""Check a store: rebuild every adversarial example, ask the model again, and run some searches again.

Every sample is compared with its checksum, every adversarial example is rebuilt, shown to the model and counted, and
counts that no attack can have made are noticed. Whether a search asked as often as is stored, or really found nothing,
only another search can tell: `rerun` makes some again and reports how they differ. Another processor, number of threads
or version rounds differently and may lead a search elsewhere, so differences are figures and no accusation.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero import attacks
from sigmazero.bench import identity
from sigmazero.bench.answers import probe, same_answers
from sigmazero.bench.constraints import Allowed, judge_missing
from sigmazero.bench.constraints import recall as recall_constraints
from sigmazero.bench.loader import ABSENT, GIVEN, Loader, in_format, origin, recall, refuse_untrusted
from sigmazero.bench.provenance import provenance
from sigmazero.bench.worker import forced
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.hardware import Prepare
from sigmazero.core.model import logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem, whole
from sigmazero.core.result import Outcome
from sigmazero.data import Rows
from sigmazero.report.measure import TRANSFER
from sigmazero.run import Hardware, Session
from sigmazero.run.precision import Numbers, strictly
from sigmazero.spaces.space import Space
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import Flaw, Store, StoreError
from sigmazero.store.trace import Trace

BATCH_SIZE = 101  # not one that plans use: a fact must not depend on it
ROUNDING = 1e-4  # by how much of the largest logit two kernels may differ in single precision
COARSE = 3e-2  # and by how much two number formats, such as fp32 and bf16
BATCHES = 2  # of a cell that are run again, drawn at random
SAME = ("torch", "numpy", "device", "threads", "processor", "sigmazero")  # as in the run: then bits should be the same
COMPARED = ("outcome", "l0", "l0_pixel", "clean_prediction", "prediction", "step_found", "forwards", "backwards")


@dataclass(frozen=True)
class Disagreement:
    """A stored value that is not true; `row` is None where it concerns the whole cell, `cell` where the whole store."""

    cell: CellInfo | None
    row: int | None
    what: str

    def __str__(self) -> str:
        """One line."""
        if self.cell is None:
            return self.what
        place = f"{self.cell.attack} against {self.cell.model} on {self.cell.dataset} [{self.cell.key[:12]}]"
        return f"{place}{'' if self.row is None else f', row {self.row}'}: {self.what}"


@dataclass
class Verification:
    """The outcome of a check of a store.

    rows           samples that were checked
    skipped        cells that could not be checked, with the reason
    notes          what the check cannot tell, and how searches differed that were run again
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
    """
    if not (whole(batch_size) and batch_size >= 1):
        raise ValueError(f"batch_size={batch_size!r} must be a whole number, 1 or more")
    done = Verification(survive_8bit=0 if export_8bit else None)
    flaws = [flaw for flaw in store.damage() if keys is None or flaw.key is None or flaw.key in keys]
    damaged = {flaw.key for flaw in flaws}
    infos: dict[str, CellInfo] = {}
    for key in store.cell_keys():
        try:
            infos[key] = store.cell(key)
        except StoreError as error:
            flaws += [] if key in damaged else [Flaw(str(error))]
    for flaw in flaws:
        place = f"cell {flaw.key[:12]}: " if flaw.key is not None and flaw.key not in infos else ""
        done.disagreements.append(Disagreement(infos.get(flaw.key or ""), None, f"{place}{flaw.what}"))
    if keys is None and None not in damaged and (proofs := sum(len(store.proofs(key)) for key in store.proof_keys())):
        done.notes.append(f"{proofs} proved lower bounds are compared with the points, and not proved again here")
    for key, info in infos.items():
        if keys is None or key in keys:
            try:
                _verify_cell(store, info, loader, done, batch_size)
                store.proved(key)  # raises where a point is below what is proved
            except StoreError as error:
                if key not in damaged:  # else it was said above
                    done.disagreements.append(Disagreement(info, None, str(error)))
    return done


def _verify_cell(store: Store, info: CellInfo, loader: Loader, done: Verification, batch_size: int) -> None:
    wrong = [f"its {name} does not fit its key" for name in identity.contradictions(info)]
    done.disagreements += [Disagreement(info, None, what) for what in wrong]
    if lacking := int((~store.stored(info.key)).sum()):
        done.notes.append(str(Disagreement(info, None, f"{lacking} of {info.rows} rows are not stored yet")))
    try:
        network, rows, targets = load(store, info, loader)
    except (*ABSENT, ValueError, LookupError, TypeError) as error:
        done.skipped.append(Disagreement(info, None, f"cannot be checked here: {error}"))
        return
    try:
        _check_cell(store, info, network, (rows, targets), done, batch_size, loader.spaces)
    except (LookupError, TypeError, ValueError) as error:
        done.skipped.append(Disagreement(info, None, f"cannot be checked here: {error}"))


def load(store: Store, info: CellInfo, loader: Loader) -> tuple[nn.Module, Rows, Tensor | None]:
    """Return the model, the rows and, if it is targeted, the classes to reach of a stored cell."""
    model, data, target = origin(info)
    refuse_untrusted([each for each in (model, data) if not loader.has(each)], loader.trust)
    if model.spec == GIVEN and not loader.has(model):
        raise LookupError(
            f"{model.name} was a module, which a store does not hold; call verify() on what sz.evaluate(...) returns, "
            "or give it a model that can be loaded again, such as file.py:build"
        )
    rows, targets = loader.asked(recall(store, info, loader), model, target, info.seed)
    return loader.model(model), rows, targets


def _check_cell(
    store: Store,
    info: CellInfo,
    network: nn.Module,
    asked: tuple[Rows, Tensor | None],
    done: Verification,
    batch_size: int,
    spaces: Mapping[str, Space],
) -> None:
    rows, targets = asked
    facts, places = store.facts(info.key), np.flatnonzero(store.stored(info.key))
    done.rows += len(facts)
    wrong = list(_identity(info, network, rows, targets, facts, places))
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    network, images = in_format(network, rows.images, info.precision)
    answers = store.answers(info.key)
    if not wrong and answers is not None and not same_answers(answers, probe(network, images.to(device))):
        wrong = ["the model here answers otherwise than the one that was attacked"]
    done.disagreements += [Disagreement(info, None, what) for what in wrong]
    if wrong:
        return  # another model or other rows than those of the run: nothing more can be said
    allowed = recall_constraints(store, info, spaces)
    if judge_missing(info, allowed):
        done.notes.append(str(Disagreement(info, None, "accept of its space is not stored, and was not asked again")))
    problem = pose(info, allowed, images, rows, targets, device)
    double = images.dtype == torch.float64
    numbers = Numbers.strict(device) if double else Numbers.current(device)
    with strictly(network, device):
        for start in range(0, len(facts), batch_size):
            part, at = (
                facts.take(slice(start, start + batch_size)),
                torch.from_numpy(places[start : start + batch_size]),
            )
            _check_batch(info, network, problem.take(at.to(device)), part, done, numbers)
        for place in np.flatnonzero(store.traced(info.key)).tolist():
            one = problem.take(torch.tensor([place], device=device))
            what = _check_trace(network, one, store.trace(info.key, place), batch_size)
            done.disagreements += [Disagreement(info, int(rows.ids[place]), what)] if what else []


def _check_trace(network: nn.Module, problem: Problem, trace: Trace, batch_size: int) -> str:
    """Return what is wrong with a trace; nothing if all is well."""
    if not np.array_equal(trace.clean, problem.x[0].cpu().numpy()):
        return "the trace begins at another input"
    for start in range(0, len(trace), batch_size):
        points = [trace.point(question) for question in range(start, min(start + batch_size, len(trace)))]
        logits = logits_in(network(torch.from_numpy(np.stack(points)).to(problem.x)))
        asked = problem.take(torch.zeros(len(points), dtype=torch.int64, device=problem.x.device))
        stored = torch.from_numpy(trace.margin[start : start + batch_size]).to(logits)
        slack = ROUNDING * logits.abs().amax(1).clamp(min=1.0)
        if bool(((asked.goal.margin(logits) - stored).abs() > slack).any()):
            return "a margin of the trace is not the model's"
    return ""


def _identity(
    info: CellInfo, network: nn.Module, rows: Rows, targets: Tensor | None, facts: Facts, places: NDArray[Any]
) -> Iterator[str]:
    """Yield how model and rows differ from those that the facts are about."""
    if (found := identity.hash_weights(network)) != info.model_sha256:
        yield f"the model here has other weights (sha256 {found[:12]}, stored {info.model_sha256[:12]})"
    if rows.content_hash != info.data_hash or len(rows) != info.rows:
        yield f"the rows here have other content (sha256 {rows.content_hash[:12]}, stored {info.data_hash[:12]})"
        return
    goals = np.full(len(facts), -1) if targets is None else targets.numpy()[places]
    stored = (facts.row, facts.label, facts.target)
    for name, here, kept in zip(
        ("row", "label", "target"), (rows.ids.numpy()[places], rows.labels.numpy()[places], goals), stored, strict=True
    ):
        if (here != kept).any():
            yield f"{name} of {int((here != kept).sum())} samples is not that of the data set"
    features = rows.images[:1].numel()
    if len(facts.index) and not 0 <= facts.index.min() <= facts.index.max() < features:
        yield f"a change is stored at feature {int(facts.index.max())}, but there are {features} features"


def _check_batch(
    info: CellInfo, network: nn.Module, problem: Problem, facts: Facts, done: Verification, numbers: Numbers
) -> None:
    wrong = contradicted(network, problem, facts, coarse_numbers(info)) + _held_once(network, problem, facts, numbers)
    wrong += [(int(row), what) for mask, what in facts.impossible(info.steps) for row in facts.row[mask]]
    done.disagreements += [Disagreement(info, row, what) for row, what in wrong]
    changed = facts.found & (np.diff(facts.offsets) > 0)
    done.found += int(changed.sum())
    if done.survive_8bit is not None:
        rounded = (facts.rebuild(problem.x) * 255).round() / 255
        still = problem.goal.reached(logits_in(network(rounded))).cpu().numpy()
        done.survive_8bit += int((changed & still).sum())


def coarse_numbers(info: CellInfo) -> bool:
    """Return whether a cell's facts were made in a coarser number format than strict fp32."""
    made = info.provenance.get("numbers")
    strict = Numbers.strict("cpu").words
    return any(one != strict for one in (made if isinstance(made, list) else [made]) if one is not None)


def pose(
    info: CellInfo, allowed: Allowed, images: Tensor, rows: Rows, targets: Tensor | None, device: torch.device
) -> Problem:
    """Return the problem of all rows of a stored cell."""
    return allowed.pose(
        images.to(device),
        (rows.labels if targets is None else targets).to(device),
        targeted=targets is not None,
        unit=cast(Unit, info.unit),
        budget=info.budget,
        seed=info.seed,
        ids=rows.ids,
        margin=info.margin,
    )


def _held_once(network: Model, problem: Problem, facts: Facts, numbers: Numbers) -> list[tuple[int, str]]:
    """Return the stored points that hold in strict fp32 or in these numbers, but not in both, by the row's number."""
    strict = Numbers.strict(numbers.device)
    if numbers == strict:
        return []
    x_adv, held = facts.rebuild(problem.x), []
    for each in (strict, numbers):
        with each.applied():
            held.append(problem.goal.reached(logits_in(network(x_adv.clone())).to(x_adv)).cpu().numpy())
    once = "the stored example reaches the goal in {} and not in {}, the numbers of this process"
    other = f"the stored example reaches the goal in {numbers.name}, the numbers of this process, and not in fp32"
    lost = [(int(row), once.format("fp32", numbers.name)) for row in facts.row[facts.found & held[0] & ~held[1]]]
    return lost + [(int(row), other) for row in facts.row[facts.found & ~held[0] & held[1]]]


def contradicted(network: Model, problem: Problem, facts: Facts, coarse: bool = False) -> list[tuple[int, str]]:
    """Return what of some facts is not true, by the row's number; ask the model about clean and adversarial inputs.

    Call it in strict numbers; `problem` has the rows of the facts in their order. `coarse` says that they were made in
    a coarser number format: there a clean input that is wrong by rounding alone may count as right.
    """
    x_adv = facts.rebuild(problem.x)
    # A model may write to what it is given, and give the same memory again.
    clean, logits = logits_in(network(problem.x.clone())).clone(), logits_in(network(x_adv.clone()))
    slack = ROUNDING * logits.abs().amax(1).clamp(min=1.0)
    found, margin = facts.found, problem.goal.margin(logits)
    surely = _gap(logits) > slack
    counts = problem.domain.count(x_adv)
    counted, pixels = counts.l0.cpu().numpy(), counts.l0_pixel.cpu().numpy()
    within = problem.within_budget(torch.from_numpy(pixels if problem.unit == "pixel" else counted)).numpy()
    fooled, already = (problem.goal.reached(each).cpu().numpy() for each in (logits, clean))
    stated, near = facts.outcome == Outcome.ALREADY, slack * (COARSE / ROUNDING if coarse else 1)
    sure = torch.where(torch.from_numpy(stated).to(slack.device), slack, near)
    known = torch.from_numpy(np.isfinite(facts.margin)).to(margin.device)
    away = (margin - torch.from_numpy(facts.margin).to(margin)).abs() > slack
    checks: list[tuple[NDArray[np.bool_], str]] = [
        (found & ~fooled, "the model is not fooled by the stored example"),
        (found & (facts.l0 != counted), "l0 is not the number of changed features"),
        (found & (facts.l0_pixel != pixels), "l0_pixel is not the number of changed positions"),
        (found & (facts.success != within), "the outcome does not say whether the example is within the budget"),
        (~found & (np.isfinite(facts.l0) | (counted > 0)), "a sample without an example has changes or a finite l0"),
        (~np.isin(facts.outcome, list(Outcome)), "there is no such outcome"),
        ((facts.outcome == Outcome.FOUND) & (counted == 0), "an example was found, and nothing is changed"),
        (
            (stated != already) & (_gap(clean) > sure).cpu().numpy(),
            "the outcome is not that of the clean input",
        ),
        (~problem.domain.within(x_adv).cpu().numpy(), "the stored example leaves the box or the mask"),
        *_unlawful(problem, x_adv, facts),
        (_differs(clean, facts.clean_prediction, slack), "clean_prediction is not the model's"),
        (
            (surely.cpu().numpy()) & (logits.argmax(1).cpu().numpy() != facts.prediction),
            "prediction is not the model's",
        ),
        (torch.where(known, away, margin.isfinite()).cpu().numpy(), "margin is not the model's"),
    ]
    return [(int(row), what) for mask, what in checks for row in facts.row[mask]]


def _unlawful(problem: Problem, x_adv: Tensor, facts: Facts) -> Iterator[tuple[NDArray[np.bool_], str]]:
    """Yield whether stored examples are legal in their space, and whether their costs are right."""
    changed = facts.found & (np.diff(facts.offsets) > 0)
    domain = problem.domain
    illegal = (domain.within(x_adv) & ~domain.legal(x_adv)).cpu().numpy()
    yield changed & illegal, "the stored example is not legal in its space"
    if domain.accept is not None and changed.any():
        yield changed & ~domain.accept(x_adv, problem.x).cpu().numpy(), "accept of the space refuses the example"
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


def _differs(logits: Tensor, prediction: NDArray[Any], slack: Tensor) -> NDArray[np.bool_]:
    wrong = logits.argmax(1).cpu().numpy() != prediction
    found: NDArray[np.bool_] = wrong & (_gap(logits) > slack).cpu().numpy()
    return found


def rerun(store: Store, loader: Loader, share: float | int, done: Verification, seed: int = 0) -> int:
    """Run batches of some cells again and note in a verification how they differ; return the rows compared.

    share   a number of cells, or a float: the part of all cells; at least one cell is drawn
    seed    for the draw of cells and batches; cells that `done` could not check, or found at fault, are not drawn
    """
    out = {one.cell.key for one in (*done.skipped, *done.disagreements) if one.cell is not None and one.row is None}
    # What was found on other models is no run of an attack, so there is nothing to run again.
    every = [one.cell for one in store.status() if one.done and TRANSFER not in one.cell.origin]
    held = [info for info in every if info.key not in out]
    if not held:
        done.notes.append("no cell could be run again")
        return 0
    draw = random.Random(seed)
    count = round(share * len(held)) if isinstance(share, float) else share
    rows = 0
    for info in draw.sample(held, min(max(count, 1), len(held))):
        try:
            rows += _compare(store, info, loader, done, draw)
        except (*ABSENT, ValueError, LookupError, TypeError, StoreError) as error:
            done.skipped.append(Disagreement(info, None, f"cannot be run again: {error}"))
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


def _compare(store: Store, info: CellInfo, loader: Loader, done: Verification, draw: random.Random) -> int:
    """Run batches of a cell again and note how they differ; return their number of rows."""
    if not info.identity:
        raise LookupError("it does not describe its attack in full")
    attack = attack_of(info.identity["attack"])
    network, rows, targets = load(store, info, loader)
    network, images = in_format(network, rows.images, info.precision)
    problem = pose(info, recall_constraints(store, info, loader.spaces), images, rows, targets, loader.device)
    precision = forced(info.precision)
    numbers = Numbers.current(loader.device)
    if precision is None:
        numbers = Numbers.named(info.precision, loader.device)
    batches, facts, stored = store.batches(info.key), store.facts(info.key), store.positions(info.key)
    traced, compared = store.traced(info.key), 0
    for places, made in draw.sample(batches, min(BATCHES, len(batches))):
        prepare: Prepare = "none" if traced[places].any() else made.get("prepare", "fold")
        hardware = Hardware(precision, prepare=prepare)
        part: Problem = problem.take(torch.from_numpy(places).to(loader.device))
        with numbers.applied(), Session(attack, network, hardware, batch_size=len(places)) as session:
            result = session.run(part)
        at = torch.from_numpy(places)
        goals_here = None if targets is None else targets[at]
        fresh = Facts.from_result(result, rows.labels[at], goals_here, part.x, priced=part.domain.priced)
        kept = facts.take(np.searchsorted(stored, places))
        done.notes += _compared(info, kept, fresh, _same_place(made, loader.device))
        compared += len(places)
    return compared


def _same_place(made: Mapping[str, Any], device: torch.device) -> bool:
    """Return whether a run with this provenance should give the same bits here."""
    here = provenance(device)
    return device.type == "cpu" and all(made.get(name) == here.get(name) for name in SAME)


def _compared(info: CellInfo, kept: Facts, fresh: Facts, same_place: bool) -> list[str]:
    """Say in a line how a batch that was run again differs from the stored one; nothing if it does not."""
    pairs = {name: (getattr(kept, name), getattr(fresh, name)) for name in COMPARED}
    masks = {name: (here != there) & ~((here != here) & (there != there)) for name, (here, there) in pairs.items()}
    masks["margin"] = ~np.isclose(kept.margin, fresh.margin, rtol=ROUNDING, atol=ROUNDING, equal_nan=True)
    masks["changes"] = _changes(kept) != _changes(fresh)
    parts = [f"{name} of {int(mask.sum())}" for name, mask in masks.items() if mask.any()]
    if not parts:
        return []
    where = "here" if same_place else "on another machine or with other versions"
    means = [f"{_mean(each):.2f}" for each in (kept, fresh)]
    asked = [f"{float((each.forwards + each.backwards).mean()):.0f}" for each in (kept, fresh)]
    what = f"run again {where}, of {len(kept)} rows differ: {', '.join(parts)}; mean changes {means[1]} against "
    what += f"{means[0]} stored, mean queries {asked[1]} against {asked[0]} stored"
    return [str(Disagreement(info, None, what))]


def _changes(facts: Facts) -> NDArray[np.object_]:
    """Return the changes of each row, as bytes."""
    spans = zip(facts.offsets[:-1], facts.offsets[1:], strict=True)
    found = [facts.index[a:b].tobytes() + facts.value[a:b].tobytes() for a, b in spans]
    return np.array([*found, None], dtype=object)[:-1]


def _mean(facts: Facts) -> float:
    found = facts.l0[np.isfinite(facts.l0)]
    return float(found.mean()) if len(found) else float("nan")
