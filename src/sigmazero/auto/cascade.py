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
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from sigmazero.auto.progress import Progress
from sigmazero.auto.report import Report, make_report
from sigmazero.auto.state import CLOSE, StateFile, describe
from sigmazero.auto.versions import choose
from sigmazero.core.attack import Attack
from sigmazero.core.files import writable
from sigmazero.core.findings import render
from sigmazero.core.inputs import Bounds, make_problem
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem, Unit, whole
from sigmazero.core.result import Result
from sigmazero.run.precision import full_precision, quiet

PROBES = 16  # clean inputs whose answers tell one model from another


class SparseAutoAttack:
    """A reliable evaluation without parameters to tune: several strong attacks, and each sample's worst case.

    eps          the number of changes allowed; None looks for the fewest changes of every sample
    seed         of the random members; None is 0, so that an evaluation can be repeated
    verbose      print a line per member, as AutoAttack does; log_path appends the same lines to a file
    version      "standard" or "quick", or "custom" with the attacks of attacks_to_run (names, or attacks)
    device       where the members run; None is where the model is
    bounds, unit as for `Attack.run`: the box (for one sample, or scalars), and what counts as one change

    After an evaluation `report` says what was found, by which member, at what cost, and what looks suspicious.
    """

    def __init__(
        self,
        model: Model,
        norm: str = "L0",
        eps: int | None = None,
        seed: int | None = None,
        verbose: bool = True,
        attacks_to_run: Sequence[str | Attack] = (),
        version: str = "standard",
        is_tf_model: bool = False,
        device: str | torch.device | None = None,
        log_path: str | PathLike[str] | None = None,
        *,
        bounds: Bounds = (0.0, 1.0),
        unit: Unit = "feature",
    ) -> None:
        if norm != "L0":
            raise ValueError(
                f'norm={norm!r}: this cascade counts changes, "L0"; for Linf, L2, L1 use the package autoattack'
            )
        if is_tf_model:
            raise ValueError("is_tf_model=True: give a PyTorch model, or any callable from tensors to logits")
        if eps is not None and not (whole(eps) and eps >= 1):
            raise ValueError(f"eps={eps!r} must be a whole number of changes, 1 or more (None for as few as possible)")
        self.model, self.eps, self.seed = model, None if eps is None else int(eps), seed or 0
        self.verbose, self.log_path = verbose, None if log_path is None else Path(log_path)
        self.device = _device(model) if device is None else torch.device(device)
        self.bounds, self.unit = bounds, unit
        self.version = choose(version, attacks_to_run, self.eps)
        self.members = self.version.members(self.eps)
        self._report: Report | None = None

    @property
    def report(self) -> Report:
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
        self._report = self._evaluate(problem, self.members, bs, None if state_path is None else Path(state_path))
        for finding in self._report.findings:
            self._log(render([finding]))
            warnings.warn(render([finding]), stacklevel=2)
        return _returned(self._report, y_orig, return_labels)

    def run_standard_evaluation_individual(
        self, x_orig: Tensor, y_orig: Tensor, bs: int = 250, return_labels: bool = False
    ) -> dict[str, Any]:
        """What each member finds alone, by its name: inputs, or inputs and the model's answers to them."""
        problem = self._pose(x_orig, y_orig, bs)
        alone = {member.name: self._evaluate(problem, (member,), bs, None) for member in self.members}
        return {name: _returned(report, y_orig, return_labels) for name, report in alone.items()}

    def clean_accuracy(self, x_orig: Tensor, y_orig: Tensor, bs: int = 250) -> float:
        """Share of the inputs that the model classifies correctly."""
        problem = self._pose(x_orig, y_orig, bs)
        every = torch.arange(len(problem), device=problem.x.device)
        answers = [(problem.take(rows), self._ask(problem, problem.x[rows])) for rows in _parts(every, bs)]
        right = [~part.fooled(logits) & logits.isfinite().all(1) for part, logits in answers]
        return float(torch.cat(right).double().mean()) if right else float("nan")

    def _pose(self, x: Tensor, y: Tensor, bs: int) -> Problem:
        if not (whole(bs) and bs >= 1):
            raise ValueError(f"bs={bs!r} must be a whole number of inputs, 1 or more")
        problem = make_problem(x, y, bounds=self.bounds, unit=self.unit, budget=self.eps, seed=self.seed)
        if any(isinstance(bound, Tensor) and bound.ndim >= x.ndim for bound in self.bounds):
            raise ValueError("bounds must be numbers, or tensors for one sample that hold for all")
        return problem

    def _evaluate(self, problem: Problem, members: Sequence[Attack], bs: int, path: Path | None) -> Report:
        """Every member on the samples that the members before it left; with a path, kept after every batch."""
        kept = None if path is None else self._file(path, problem, members)
        for file in filter(None, (path, self.log_path)):
            writable(file)
        progress = Progress.start(problem.x, len(members))
        if kept is not None and kept.path.exists():
            progress = kept.load(problem, len(members))
            self._confirm(kept.path, progress, problem, bs)
        report = make_report(str(self.version), members, progress, problem)
        for index, member in enumerate(members):
            # One change is the fewest there can be.
            asking = progress.asking(index, enough=1 if self.eps is None else self.eps)
            for rows in _parts(asking, len(asking) if kept is None else bs):
                progress.note(index, rows, self._attack(member, problem, rows, bs))
                if kept is not None:
                    kept.save(progress, problem)
            report = make_report(str(self.version), members, progress, problem)
            if index == 0:
                self._say(report.headline)
            self._say(report.line(index))
        return report

    def _file(self, path: Path, problem: Problem, members: Sequence[Attack]) -> StateFile:
        """The file for this question about this model."""
        return StateFile(path, describe(str(self.version), members, problem, self.bounds), self._probe(problem))

    def _attack(self, member: Attack, problem: Problem, rows: Tensor, bs: int) -> Result:
        """A member on some samples; their numbers in the whole are what its randomness depends on."""
        place = rows.to(problem.x.device)
        x, y = problem.x[place], problem.y[place]
        device = x.device if self.device is None else self.device
        return member.run(
            self.model,
            x.to(device),
            y.to(device),
            bounds=self.bounds,
            unit=self.unit,
            budget=self.eps,
            batch_size=bs,
            seed=self.seed,
            ids=rows,
        )

    def _ask(self, problem: Problem, x: Tensor) -> Tensor:
        """The model's logits, in full precision; nothing of this is counted."""
        with quiet(self.model), torch.no_grad(), full_precision():
            logits = self.model(x.to(x.device if self.device is None else self.device))
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(x):
            raise ValueError(f"the model did not return logits of shape ({len(x)}, classes)")
        if len(problem) and int(problem.y.max()) >= logits.shape[1]:
            raise ValueError(f"label {int(problem.y.max())} does not exist: the model has {logits.shape[1]} classes")
        return logits.to(x.device)

    def _probe(self, problem: Problem) -> Tensor:
        """Answers to a few clean inputs, by which a model is recognised."""
        few = torch.linspace(0, max(len(problem) - 1, 0), min(PROBES, len(problem))).round().long()
        return self._ask(problem, problem.x[few.to(problem.x.device)])

    def _confirm(self, path: Path, progress: Progress, problem: Problem, bs: int) -> None:
        """What a file says is asked again; at the boundary another machine may round to the other side."""
        for rows in _parts((progress.best() < torch.inf).nonzero().squeeze(1).to(problem.x.device), bs):
            logits = self._ask(problem, progress.x_adv[rows])
            margin = problem.take(rows).margin(logits)
            if bool((margin > CLOSE * logits.abs().amax(1)).any()):
                row = int(rows[margin.argmax()])
                raise ValueError(f"{path} holds an input for row {row} that does not fool this model; name another")
            inside = problem.take(rows).feasible(progress.x_adv[rows])
            if not bool(inside.all()):
                row = int(rows[~inside][0])
                raise ValueError(f"{path} holds an input for row {row} that lies outside the bounds; name another")

    def _say(self, line: str) -> None:
        if self.verbose:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
        self._log(line)

    def _log(self, line: str) -> None:
        if self.log_path is not None:
            with self.log_path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def _parts(rows: Tensor, size: int) -> list[Tensor]:
    return [rows[first : first + size] for first in range(0, len(rows), max(size, 1))]


def _device(model: Model) -> torch.device | None:
    """Where a module's parameters are; None for what has none."""
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return None if parameter is None else parameter.device


def _returned(report: Report, y: Tensor, labels: bool) -> Tensor | tuple[Tensor, Tensor]:
    """What AutoAttack returns."""
    return (report.result.x_adv, report.result.prediction.to(y)) if labels else report.result.x_adv
