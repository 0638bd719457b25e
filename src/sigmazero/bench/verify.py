"""Believe nothing of what a store says.

Every value is compared with its checksum, every adversarial example is rebuilt, shown to the model, and counted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero.bench import identity
from sigmazero.bench.allowed import judge_missing
from sigmazero.bench.allowed import recall as recall_allowed
from sigmazero.bench.answers import probe, same_answers
from sigmazero.bench.cells import ABSENT, Loader, in_format, origin
from sigmazero.bench.inputs import GIVEN, recall
from sigmazero.bench.trust import refuse_untrusted
from sigmazero.core.oracle import Model
from sigmazero.core.outputs import logits_in
from sigmazero.core.problem import Problem, whole
from sigmazero.core.result import Outcome
from sigmazero.data import Rows
from sigmazero.run.numbers import Numbers
from sigmazero.run.turns import strictly
from sigmazero.spaces.space import Space
from sigmazero.store.checksums import Flaw
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import Store, StoreError
from sigmazero.store.trace import Trace

BATCH_SIZE = 101  # not one that plans use: a fact must not depend on it
ROUNDING = 1e-4  # by how much of the largest logit two kernels may differ in single precision
COARSE = 3e-2  # and by how much two number formats, such as fp32 and bf16


@dataclass(frozen=True)
class Disagreement:
    """Something stored that is not so; `row` is None where it concerns the whole cell, `cell` where the whole store."""

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
    """What a check of a store found.

    `skipped` says why cells could not be checked, `notes` what the check cannot tell, and `survive_8bit` counts the
    `found` adversarial examples that still fool once rounded.
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
    flaws = [flaw for flaw in store.audit() if keys is None or flaw.key is None or flaw.key in keys]
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
    done.notes += [] if None in damaged else store.notes()
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
    """Model, rows and, if it is targeted, classes to reach of a stored cell."""
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
    allowed = recall_allowed(store, info, spaces)
    if judge_missing(info, allowed):
        done.notes.append(str(Disagreement(info, None, "accept of its space is not stored, and was not asked again")))
    goals = (rows.labels if targets is None else targets).to(device)
    how: dict[str, Any] = {"unit": info.unit, "budget": info.budget, "margin": info.margin}
    problem = allowed.pose(images.to(device), goals, targeted=targets is not None, **how)
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
    """What is wrong with a trace; nothing if all is well."""
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
    """Whether model and rows are those that the facts are about, and the perturbations fit them."""
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
    wrong = contradicted(network, problem, facts, _coarse(info)) + _held_once(network, problem, facts, numbers)
    done.disagreements += [Disagreement(info, row, what) for row, what in wrong]
    changed = facts.found & (np.diff(facts.offsets) > 0)
    done.found += int(changed.sum())
    if done.survive_8bit is not None:
        rounded = (facts.rebuild(problem.x) * 255).round() / 255
        still = problem.goal.reached(logits_in(network(rounded))).cpu().numpy()
        done.survive_8bit += int((changed & still).sum())


def _coarse(info: CellInfo) -> bool:
    """Whether a cell's facts were made in a process with coarser numbers than strict fp32; older ones never were."""
    made = info.provenance.get("numbers")
    strict = Numbers.strict("cpu").words
    return any(one != strict for one in (made if isinstance(made, list) else [made]) if one is not None)


def _held_once(network: Model, problem: Problem, facts: Facts, numbers: Numbers) -> list[tuple[int, str]]:
    """Stored points that hold in strict fp32 or in these numbers, but not in both, by the row's number."""
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
    """What of some facts is not so, by the row's number; the model is asked about clean and adversarial inputs.

    To be called while the model is quiet and in strict numbers; `problem` has the rows of the facts in their order.
    `coarse` says that they were made where the process computed in others: there a clean input that is wrong by their
    rounding alone may count as right.
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
    """What a space says of stored examples: whether they are legal, and what they cost."""
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
    """By how much the largest logit leads; not at all where one is not finite."""
    top = logits.topk(2, dim=1).values
    return torch.where(logits.isfinite().all(1), top[:, 0] - top[:, 1], 0.0)


def _differs(logits: Tensor, prediction: NDArray[Any], slack: Tensor) -> NDArray[np.bool_]:
    wrong = logits.argmax(1).cpu().numpy() != prediction
    found: NDArray[np.bool_] = wrong & (_gap(logits) > slack).cpu().numpy()
    return found
