"""Run several strong attacks one after the other, each on the samples still classified correctly, as AutoAttack does.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> auto = sz.SparseAutoAttack(model, norm="L0", eps=2, version="quick", verbose=False)
>>> x_adv = auto.run_standard_evaluation(torch.full((1, 4), 0.5), torch.tensor([0]))
>>> auto.result.robust_accuracy(), auto.result.found_by
(0.0, ['sigma-swap'])
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.auto.members import Cascade, cascade_of
from sigmazero.auto.random import Averaged, confirmed
from sigmazero.auto.result import CascadeResult
from sigmazero.auto.stored import StoredRuns, stored
from sigmazero.bench.constraints import Allowed
from sigmazero.core.domain import Unit
from sigmazero.core.files import writable
from sigmazero.core.findings import Finding, gating, render
from sigmazero.core.hardware import Precision
from sigmazero.core.inputs import Bounds
from sigmazero.core.messages import warn_caller
from sigmazero.core.model import ability_of, check_ability, logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem, whole
from sigmazero.core.result import Result
from sigmazero.models.doctor import examine
from sigmazero.models.wrapping import understood
from sigmazero.run import Hardware, Prepared, Session
from sigmazero.run.memory import at_most
from sigmazero.run.precision import strictly
from sigmazero.run.progress import Advance, bar, ignore, to_stderr
from sigmazero.spaces.space import Space

BATCH_SIZE = 250
Stop = Callable[[CascadeResult], bool]
Names = tuple[str, str]  # of the model and of the data, as a store keeps them


class SparseAutoAttack:
    """A reliable evaluation without parameters to tune: several strong attacks, and each sample's worst case.

    eps          the number of changes allowed; None looks for the fewest changes of every sample
    seed         of the random attacks; None is 0, so that an evaluation can be repeated
    verbose      print a line per attack, as AutoAttack does; log_path appends the same lines to a file
    version      "standard" or "quick", "rand" for random models, or "custom" with the attacks of attacks_to_run (names,
                 or attacks); a model without gradients gets other attacks, listed as "standard-scores" and the like
    device       where the attacks run; None is where the model is
    bounds, unit as for `Attack.run`: the box (for one sample, or scalars), and what counts as one change
    mask, space  as for `Attack.run`; attacks that cannot honour the space are left out, and the result names them
    precision    as for `Attack.run`
    doctor       examine the model first, except for "custom"

    After an evaluation `result` has what was found, by which attack, at what cost, and reasons to doubt it.
    """

    def __init__(
        self,
        model: object,
        norm: str = "L0",
        eps: int | None = None,
        seed: int | None = None,
        verbose: bool = True,
        attacks_to_run: Sequence[Any] = (),
        version: str = "standard",
        device: str | torch.device | None = None,
        log_path: str | PathLike[str] | None = None,
        *,
        bounds: Bounds = (0.0, 1.0),
        unit: Unit = "feature",
        precision: Precision | None = None,
        mask: Tensor | None = None,
        space: Space | None = None,
        doctor: bool = True,
    ) -> None:
        if norm != "L0":
            raise ValueError(f'norm={norm!r}: this cascade counts changes ("L0"); for other norms use autoattack')
        if eps is not None and not (whole(eps) and eps >= 1):
            raise ValueError(f"eps={eps!r} must be a whole number of changes, 1 or more (None for as few as possible)")
        self.model: Model = understood(model, "cpu" if device is None else device)
        self.eps, self.seed = None if eps is None else int(eps), seed or 0
        self.verbose, self.log_path = verbose, None if log_path is None else Path(log_path)
        parameter = next(self.model.parameters(), None) if isinstance(self.model, nn.Module) else None
        own = None if parameter is None else parameter.device
        self.device = own if device is None else torch.device(device)
        self.allowed, self.unit, self.precision = Allowed(bounds, mask, space), unit, precision
        self.version, self.doctor = version, doctor
        self.cascade = cascade_of(version, attacks_to_run, self.eps, ability_of(self.model))
        for attack in self.cascade.attacks:
            check_ability(attack.name, attack.needs, self.model)
        self._result: CascadeResult | None = None

    @property
    def result(self) -> CascadeResult:
        """Return what the last evaluation found."""
        if self._result is None:
            raise RuntimeError("nothing was evaluated yet; call run_standard_evaluation(x, y) first")
        return self._result

    def run_standard_evaluation(
        self,
        x_orig: Tensor,
        y_orig: Tensor,
        bs: int = BATCH_SIZE,
        return_labels: bool = False,
        state_path: str | PathLike[str] | None = None,
    ) -> Any:
        """Return adversarial inputs, clean ones where none was found; with `return_labels` also the predictions.

        bs is the number of inputs at a time. `state_path` keeps the evaluation in a store, batch by batch, and the same
        call goes on where it stopped.
        """
        self.run(x_orig, y_orig, batch_size=bs, store=state_path)
        for finding in self.result.findings:
            self._log(render([finding]))
            warn_caller(render([finding]))
        return _returned(self.result, x_orig, y_orig, return_labels)

    def run_standard_evaluation_individual(
        self, x_orig: Tensor, y_orig: Tensor, bs: int = BATCH_SIZE, return_labels: bool = False
    ) -> dict[str, Any]:
        """Return what each attack finds alone, by its name: inputs, or inputs and predictions."""
        problem = self.pose(x_orig, y_orig)
        cascade = self._cascade(problem)
        alone = {each.name: self._run(replace(cascade, attacks=(each,)), problem, bs) for each in cascade.attacks}
        return {name: _returned(found, x_orig, y_orig, return_labels) for name, found in alone.items()}

    def run(
        self,
        x: Tensor,
        y: Tensor,
        *,
        batch_size: int = BATCH_SIZE,
        store: str | PathLike[str] | None = None,
        stop: Stop | None = None,
        progress: bool = False,
        ids: Tensor | None = None,
        names: Names | None = None,
        findings: Sequence[Finding] | None = None,
    ) -> CascadeResult:
        """Evaluate inputs x with labels y; `result` holds what is returned.

        store     a file that keeps every batch; an evaluation that stopped goes on where it was
        stop      is called after every batch; the evaluation ends when it returns True
        progress  show how far it is, and how many samples are left
        ids       a number for each sample, by which its random numbers are drawn
        names     what a store calls the model and the data
        findings  what the doctor found, if it examined the model already
        """
        problem = self.pose(x, y, ids)
        cascade = self._cascade(problem)
        if findings is None:
            needed = self.doctor and cascade.number > 0 and len(problem) > 0
            findings = gating(self.examine(problem.x, problem.y)) if needed else []
        path = None if store is None else Path(store)
        self._result = self._run(cascade, problem, batch_size, findings, path, stop, progress, names)
        return self._result

    def examine(
        self, x: Tensor, y: Tensor, claimed: float | None = None, say: Callable[[str], object] | None = None
    ) -> list[Finding]:
        """Return what the doctor finds wrong with the model on these rows, as far as it matters to these attacks.

        claimed  the accuracy, in percent, that the model is known to have
        say      takes a line about the rows and the model: range of the values, classes, accuracy, gradients
        """
        problem, (bounds, space) = self.pose(x, y), (self.allowed.bounds, self.allowed.space)
        found = examine(self.model, problem.x, problem.y, bounds=bounds, space=space, claimed=claimed, say=say)
        return self._cascade(problem).relevant(found)

    def most(self, x: Tensor, y: Tensor) -> dict[str, int]:
        """Return the most queries that each attack makes about one of these samples, by its name."""
        problem = self.pose(x, y)
        cascade = self._cascade(problem)
        return {attack.name: cascade.most_queries(attack, problem) for attack in cascade.fitting(problem)}

    def pose(self, x: Tensor, y: Tensor, ids: Tensor | None = None) -> Problem:
        """Return the question about some inputs, where the model is."""
        if any(isinstance(bound, Tensor) and bound.ndim >= x.ndim for bound in self.allowed.bounds):
            raise ValueError("bounds must be numbers, or tensors for one sample that hold for all")
        if self.device is not None and isinstance(x, Tensor) and isinstance(y, Tensor):
            x, y = x.to(self.device), y.to(self.device)
        return self.allowed.pose(x, y, unit=self.unit, budget=self.eps, seed=self.seed, ids=ids)

    def _cascade(self, problem: Problem) -> Cascade:
        """Return the attacks for this model: others, if its answers turn out to carry no gradient."""
        if self.version == "custom" or not len(problem) or ability_of(self.model) != "gradients":
            return self.cascade  # attacks were chosen by the ability that a model declares
        devices = [problem.x.device] if problem.x.is_cuda else []
        with (
            torch.random.fork_rng(devices=devices),  # a random model draws the same numbers as without this call
            strictly(self.model, problem.x.device),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            answer = logits_in(self.model(problem.x[:1].clone().requires_grad_()))
        return self.cascade if answer.requires_grad else cascade_of(self.version, (), self.eps, "scores")

    def _run(
        self,
        cascade: Cascade,
        problem: Problem,
        batch_size: int,
        findings: Sequence[Finding] = (),
        path: Path | None = None,
        stop: Stop | None = None,
        progress: bool = False,
        names: Names | None = None,
    ) -> CascadeResult:
        if not (whole(batch_size) and batch_size >= 1):
            raise ValueError(f"bs={batch_size!r} must be a whole number of inputs, 1 or more")
        attacks = cascade.fitting(problem)
        for attack in attacks:  # before the first one takes its time
            attack.check(problem)
        for file in filter(None, (path, self.log_path)):
            writable(file)
        averaged = cascade.draws > 1  # draws are made afresh in every question: nothing may be recorded
        model = Averaged(self.model, cascade.draws, self.seed) if averaged else self.model
        hardware = Hardware(self.precision, capture=False if averaged else None, prepare="none" if averaged else "fold")
        found, size = CascadeResult.start(cascade, problem, attacks), at_most(self.model, batch_size)
        self._say(found.announcement)
        with ExitStack() as stack:
            saved: StoredRuns | None = None
            if path is not None:
                how: Any = {"names": names or (type(self.model).__name__, "given"), "findings": findings}
                how |= {"precision": self.precision, "batch_size": size}
                saved = stack.enter_context(stored(path, attacks, problem, self.allowed, model, **how))
            moved, title = Progress(found), f"SparseAutoAttack {cascade}"
            shown = bar(title, moved.total, progress, "queries", moved.words, to_stderr)
            moved.advance = stack.enter_context(shown)
            prepared = Prepared(model, hardware)
            for place, run in enumerate(found.runs):
                rows, enough = found.asking(place), False
                moved.begin(place, len(rows))
                session = Session(run.attack, model, batch_size=size, prepared=prepared)
                for some, result in _batches(session, problem, rows, moved, saved, place):
                    found.add(place, some, result)
                    if enough := stop is not None and stop(found):
                        break
                self._say(f"{found.headline}\n{found.line(place)}" if place == 0 else found.line(place))
                if enough:
                    break
        if found.exact:
            self._say(found.exact)
        return found.finished(findings)

    def _say(self, line: str) -> None:
        if self.verbose:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        self._log(line)

    def _log(self, line: str) -> None:
        if self.log_path is not None:
            with self.log_path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


class Progress:
    """Count queries against the most that the cascade can make: every sample through every attack.

    A sample that an attack need not try moves the bar by all the queries it saves.
    """

    def __init__(self, found: CascadeResult) -> None:
        self.found, self.most = found, [found.cascade.most_queries(run.attack, found.problem) for run in found.runs]
        self.left = self.total = float(len(found) * sum(self.most))
        self.place, self.done, self.rows = 0, 0.0, 0
        self.advance: Advance = ignore

    def begin(self, place: int, rows: int) -> None:
        """Note that the attack at a place begins, and on how many samples."""
        self.place, self.rows, self.done = place, rows, 0.0
        self._move(self.left - rows * sum(self.most[place:]))

    def __call__(self, rows: float) -> None:
        """Note that the attack is through with some samples."""
        self.done += rows
        self._move(rows * self.most[self.place])

    def _move(self, queries: float) -> None:
        self.left -= queries
        self.advance(queries)

    def words(self) -> str:
        """Return the attack at work, how far it is, and how many samples are left."""
        at = f"{self.found.members[self.place]}, {self.done:.0f} of {self.rows} samples"
        left = None if self.found.eps is None else self.found.not_fooled(self.found.eps)[1]
        return at if left is None else f"{at}; {left} of {len(self.found)} not fooled so far"


def _batches(
    session: Session, problem: Problem, rows: Tensor, advance: Advance, saved: StoredRuns | None, place: int
) -> Iterator[tuple[Tensor, Result]]:
    """Yield what an attack finds for some samples: first what the store has, then the rest, batch by batch.

    Points against an averaged model are confirmed by fresh draws.
    """
    known = torch.zeros(len(rows), dtype=torch.bool, device="cpu")
    if saved is not None:
        there, result = saved.recall(place)
        known = torch.isin(rows, there)
        wanted = torch.isin(there, rows)
        if bool(wanted.any()):
            yield there[wanted], result.take(wanted.to(result.success.device))
            advance(float(wanted.sum()))
    if bool(known.all()):
        return
    part = problem.take(rows.to(problem.x.device))
    for places, result in session.batches(part, advance, known.to(problem.x.device)):
        fresh = ~known[places.cpu()]
        places, result = places[fresh.to(places.device)], result.take(fresh.to(result.success.device))
        if isinstance(session.model, Averaged):
            result = confirmed(result, part.take(places), session.model)
        some = rows[places.cpu()]
        if saved is not None and len(some):
            saved.add(place, some, result)
        yield some, result


def _returned(found: CascadeResult, x: Tensor, y: Tensor, labels: bool) -> Any:
    """Return what AutoAttack returns, where the inputs are."""
    x_adv = found.best.x_adv.to(x.device)
    return (x_adv, found.best.prediction.to(y)) if labels else x_adv
