"""The cascade: member after member on the samples that are still right, under AutoAttack's names.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> auto = sz.SparseAutoAttack(model, norm="L0", eps=2, version="quick", verbose=False)
>>> x_adv = auto.run_standard_evaluation(torch.full((1, 4), 0.5), torch.tensor([0]))
>>> auto.report.robust_accuracy(), auto.report.found_by
(0.0, ['sigma-swap'])
"""

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from sigmazero.auto.draws import Expected, confirmed
from sigmazero.auto.kept import Kept, kept
from sigmazero.auto.progress import CascadeState
from sigmazero.auto.report import CascadeReport, make_report
from sigmazero.auto.versions import VERSIONS, choose, most_queries, too_large
from sigmazero.auto.watch import Watch
from sigmazero.bench.constraints import Allowed
from sigmazero.core.attack import Attack
from sigmazero.core.domain import COST_ROUNDING, Unit
from sigmazero.core.files import writable
from sigmazero.core.findings import Finding, gating, render
from sigmazero.core.hardware import Precision
from sigmazero.core.inputs import Bounds
from sigmazero.core.model import Ability, ability_of, check_ability, logits_in
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem, whole
from sigmazero.core.result import Result
from sigmazero.models.any import understood
from sigmazero.models.doctor import examine
from sigmazero.run import Hardware, Prepared, Session
from sigmazero.run.memory import at_most
from sigmazero.run.precision import Numbers, strictly
from sigmazero.run.progress import Advance
from sigmazero.run.verify import check_logits
from sigmazero.spaces.space import Space


class SparseAutoAttack:
    """A reliable evaluation without parameters to tune: several strong attacks, and each sample's worst case.

    eps          the number of changes allowed; None looks for the fewest changes of every sample
    seed         of the random members; None is 0, so that an evaluation can be repeated
    verbose      print a line per member, as AutoAttack does; log_path appends the same lines to a file
    version      "standard" or "quick", "rand" for random models, or "custom" with the attacks of attacks_to_run (names,
                 or attacks); on a model without gradients the first two have other members, and report themselves as
                 "standard-scores" and the like
    device       where the members run; None is where the model is
    bounds, unit as for `Attack.run`: the box (for one sample, or scalars), and what counts as one change
    mask, space  as for `Attack.run`; members that cannot honour the space are left out, and the report names them
    precision    as for `Attack.run`: the numbers of the searches, None for those that your process computes in

    After an evaluation `report` says what was found, by which member, at what cost, and what looks suspicious.
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
        is_tf_model: bool = False,
        device: str | torch.device | None = None,
        log_path: str | PathLike[str] | None = None,
        *,
        bounds: Bounds = (0.0, 1.0),
        unit: Unit = "feature",
        precision: Precision | None = None,
        mask: Tensor | None = None,
        space: Space | None = None,
    ) -> None:
        if norm != "L0":
            raise ValueError(
                f'norm={norm!r}: this cascade counts changes, "L0"; for Linf, L2, L1 use the package autoattack'
            )
        if is_tf_model:
            raise ValueError("is_tf_model=True: give a PyTorch model, or any callable from tensors to logits")
        if eps is not None and not (whole(eps) and eps >= 1):
            raise ValueError(f"eps={eps!r} must be a whole number of changes, 1 or more (None for as few as possible)")
        self.model: Model = understood(model, "cpu" if device is None else device)
        self.eps, self.seed = None if eps is None else int(eps), seed or 0
        self.verbose, self.log_path = verbose, None if log_path is None else Path(log_path)
        self.device = _device(self.model) if device is None else torch.device(device)
        self.allowed, self.unit = Allowed(bounds, mask, space), unit
        self.precision = precision
        self._choose(version, attacks_to_run)
        self.watch, self.doctor = Watch(), True
        self._report: CascadeReport | None = None

    def _choose(self, version: str, attacks: Sequence[Any] = (), ability: Ability | None = None) -> None:
        self.version = choose(version, attacks, self.eps, ability or ability_of(self.model))
        self.members = self.version.members(self.eps)
        self._asked = self.model if self.version.draws == 1 else Expected(self.model, self.version.draws, self.seed)
        for member in self.members:
            check_ability(member.name, member.needs, self.model)

    def set_version(self, version: str = "standard") -> None:
        """Take another version from now on; AutoAttack's name for it."""
        self._choose(version)

    @property
    def attacks_to_run(self) -> list[str]:
        """The names of the members; set to other names, or attacks, it makes the version "custom"."""
        return [member.name for member in self.members]

    @attacks_to_run.setter
    def attacks_to_run(self, attacks: Sequence[Any]) -> None:
        self._choose("custom", attacks)

    def get_logits(self, x: Tensor) -> Tensor:
        """The model's answers; AutoAttack's name for it."""
        return logits_in(self.model(x))

    def get_seed(self) -> int:
        """The seed of the random members, which is always the same unless you give another."""
        return self.seed

    @property
    def report(self) -> CascadeReport:
        """What the last standard evaluation found."""
        if self._report is None:
            raise RuntimeError("nothing was evaluated yet; call run_standard_evaluation(x, y) first")
        return self._report

    @overload
    def run_standard_evaluation(
        self,
        x_orig: Tensor,
        y_orig: Tensor,
        bs: int = 250,
        return_labels: Literal[False] = False,
        state_path: str | PathLike[str] | None = None,
    ) -> Tensor: ...

    @overload
    def run_standard_evaluation(
        self,
        x_orig: Tensor,
        y_orig: Tensor,
        bs: int = 250,
        *,
        return_labels: Literal[True],
        state_path: str | PathLike[str] | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    def run_standard_evaluation(
        self,
        x_orig: Tensor,
        y_orig: Tensor,
        bs: int = 250,
        return_labels: bool = False,
        state_path: str | PathLike[str] | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Adversarial inputs, clean ones where none was found; with `return_labels` also the model's answers to them.

        bs is the number of inputs at a time. With `state_path` the evaluation is kept in that file batch by batch,
        and goes on where it stopped.
        """
        problem = self._pose(x_orig, y_orig, bs)
        doctor = self._examined(problem) if self.doctor else []
        report = self._evaluate(problem, self.members, bs, None if state_path is None else Path(state_path))
        found = (*doctor, *report.findings)
        self._report = replace(report, findings=found, result=replace(report.result, findings=tuple(gating(found))))
        for finding in self._report.findings:
            self._log(render([finding]))
            warnings.warn(render([finding]), stacklevel=2)
        return self._returned(self._report, x_orig, y_orig, return_labels)

    def run_standard_evaluation_individual(
        self, x_orig: Tensor, y_orig: Tensor, bs: int = 250, return_labels: bool = False
    ) -> dict[str, Any]:
        """What each member finds alone, by its name: inputs, or inputs and the model's answers to them."""
        problem = self._pose(x_orig, y_orig, bs)
        alone = {member.name: self._evaluate(problem, (member,), bs, None) for member in self.members}
        return {name: self._returned(report, x_orig, y_orig, return_labels) for name, report in alone.items()}

    def clean_accuracy(self, x_orig: Tensor, y_orig: Tensor, bs: int = 250) -> float:
        """Share of the inputs that the model classifies correctly."""
        problem = self._pose(x_orig, y_orig, bs)
        right = []
        for start in range(0, len(problem), bs):
            part = problem.take(torch.arange(start, min(start + bs, len(problem)), device=problem.x.device))
            with strictly(self._asked, part.x.device):
                logits = check_logits(logits_in(self._asked(part.x)), part)
            right.append(~part.goal.fooled(logits) & logits.isfinite().all(1))
        return float(torch.cat(right).double().mean()) if right else float("nan")

    def _pose(self, x: Tensor, y: Tensor, bs: int) -> Problem:
        """The question, where the model is."""
        if not (whole(bs) and bs >= 1):
            raise ValueError(f"bs={bs!r} must be a whole number of inputs, 1 or more")
        if any(isinstance(bound, Tensor) and bound.ndim >= x.ndim for bound in self.allowed.bounds):
            raise ValueError("bounds must be numbers, or tensors for one sample that hold for all")
        if self.device is not None and isinstance(x, Tensor) and isinstance(y, Tensor):
            x, y = x.to(self.device), y.to(self.device)
        problem = self.allowed.pose(x, y, unit=self.unit, budget=self.eps, seed=self.seed)
        if self.version.name in VERSIONS and len(problem) and not _slopes(self.model, problem):
            self._choose(self.version.name, ability="scores")
        if self.version.number:
            self.members = self.version.fitting(self.eps, problem)
        return problem

    def _examined(self, problem: Problem) -> list[Finding]:
        """The doctor's errors, less what this version copes with; who chooses the members looks for himself."""
        if not (self.version.number and len(problem)):
            return []
        x, box = problem.x, self.allowed
        return gating(examine(self.model, x, problem.y, bounds=box.bounds, space=box.space), self.copes)

    @property
    def copes(self) -> tuple[str, ...]:
        """The codes of findings that are no objection to this version: random answers, or answers without gradients."""
        scores = self.version.number > 0 and self.version.name not in VERSIONS
        return ("SZ003",) * (self.version.draws > 1) + ("SZ012",) * scores

    def most(self, x: Tensor, y: Tensor) -> dict[str, int]:
        """The most queries that each member makes about one of these samples, by its name."""
        problem = self._pose(x, y, 1)
        left_out = self._left_out(problem, self.members)
        members = [member for member in self.members if member not in left_out]
        return {member.name: most_queries([member], problem, self.version.draws) for member in members}

    def _left_out(self, problem: Problem, members: Sequence[Attack]) -> list[Attack]:
        """Members that cannot honour the space, or have too few steps for inputs so large."""
        left_out = [member for member in members if problem.domain.needs_exploring and not member.spaces]
        if self.version.number:  # an attack that the caller chose is refused, not left out
            left_out += [member for member in members if member not in left_out and too_large(member, problem)]
        return left_out

    def _evaluate(self, problem: Problem, members: Sequence[Attack], bs: int, path: Path | None) -> CascadeReport:
        """Every member on the samples that the members before it left; with a path, kept after every batch."""
        left_out = self._left_out(problem, members)
        members = [member for member in members if member not in left_out]
        if not members:
            names = ", ".join(member.name for member in left_out)
            raise ValueError(f"{names} cannot honour a space that is more than a box; add sigma-zero or sigma-swap")
        for member in members:  # before the first one takes its time
            member.check(problem)
        for file in filter(None, (path, self.log_path)):
            writable(file)
        if path is None:
            return self._run(problem, members, bs, None, left_out)
        numbers = self.precision or Numbers.current(problem.x.device).name
        with kept(path, str(self.version), members, problem, self.allowed, self._asked, numbers) as store:
            return self._run(problem, members, bs, store, left_out)

    def _run(
        self, problem: Problem, members: Sequence[Attack], bs: int, store: Kept | None, left_out: Sequence[Attack]
    ) -> CascadeReport:
        version, least = self.version, float(problem.domain.user_costs.min()) * (1 + COST_ROUNDING)
        progress = CascadeState.start(problem.x, len(members))
        prepared = Prepared(self._asked, self._hardware)
        bs = at_most(self.model, bs)
        if store is not None:
            store.recall(progress, problem, self._asked, bs)
        report = make_report(version, members, progress, problem, left_out)
        self._say(report.announcement)
        for index, member in enumerate(members):
            if self.watch.enough(progress):
                break
            # One change is the fewest there can be.
            asking = progress.asking(index, self.eps, least)
            part = problem.take(asking.to(problem.x.device))
            advance = self.watch.begin(member, len(part))
            session = Session(member, self._asked, batch_size=bs, prepared=prepared)
            for places, result in self._batches(session, part, advance):
                rows = asking[places.cpu()]
                progress.note(index, rows, result)
                if store is not None:
                    store.add(index, rows, result, problem)
                if self.watch.enough(progress):
                    break
            report = make_report(version, members, progress, problem, left_out)
            if index == 0:
                self._say(report.headline)
            self._say(report.line(index))
        if report.exact:
            self._say(report.exact)
        return report

    def _batches(self, session: Session, part: Problem, advance: Advance) -> Iterator[tuple[Tensor, Result]]:
        """What a member finds, batch by batch; successes against draws are confirmed by others."""
        for places, result in session.batches(part, advance) if len(part) else ():
            if isinstance(self._asked, Expected):
                yield places, confirmed(result, part.take(places.to(part.x.device)), self._asked)
            else:
                yield places, result

    @property
    def _hardware(self) -> Hardware:
        """How the members run; draws are made afresh in every question, so nothing of them may be recorded."""
        if isinstance(self._asked, Expected):
            return Hardware(self.precision, capture=False, prepare="none")
        return Hardware(self.precision, prepare="fold")

    def _returned(self, report: CascadeReport, x: Tensor, y: Tensor, labels: bool) -> Tensor | tuple[Tensor, Tensor]:
        """Return what AutoAttack returns, where the inputs are."""
        x_adv = report.result.x_adv.to(x.device)
        return (x_adv, report.result.prediction.to(y)) if labels else x_adv

    def _say(self, line: str) -> None:
        if self.verbose:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        self._log(line)

    def _log(self, line: str) -> None:
        if self.log_path is not None:
            with self.log_path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def _device(model: Model) -> torch.device | None:
    """Where a module's parameters are; None for what has none."""
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return None if parameter is None else parameter.device


def _slopes(model: Model, problem: Problem) -> bool:
    """Whether the answers of a model carry gradients; one that says it has fewer abilities is not asked."""
    if ability_of(model) != "gradients":
        return True
    devices = [problem.x.device] if problem.x.is_cuda else []
    with (
        torch.random.fork_rng(devices=devices),  # a random model draws as if it had not been asked
        strictly(model, problem.x.device),
        torch.inference_mode(False),
        torch.enable_grad(),
    ):
        return logits_in(model(problem.x[:1].clone().requires_grad_())).requires_grad
