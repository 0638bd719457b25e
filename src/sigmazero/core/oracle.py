"""The only way to the model: it answers queries, counts them per sample and keeps the best points it was shown.

Where a space is more than a box, it is the legal point nearest to the one shown that is asked about, judged and kept;
slopes are passed on as if it were the one shown.

A model may answer in another number format than that of its inputs. What its answer is worth, and the slope of a loss,
are computed in the wider of both; an attack is handed everything in the format of the inputs.

On a device nothing here reads a tensor's value on the host, so a step made of these calls can be captured and replayed.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from sigmazero.core import ops
from sigmazero.core.domain import Domain
from sigmazero.core.goal import Goal
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.model import Ability, logits_in
from sigmazero.core.ops import put, take
from sigmazero.core.problem import Problem

Model = Callable[[Tensor], Tensor]
_LARGE = 2**16  # features of an input whose records weigh more than they help: each step carries all of them along
LogitLoss = Callable[[Tensor], Tensor]


class Look(Protocol):
    """Looks at the gradients of a batch in passing."""

    def note(self, problem: Problem, point: Tensor, logits: Tensor, slope: Tensor, grad: Tensor, alive: Tensor) -> None:
        """Take note of the gradients of a loss with respect to logits and inputs."""


class Verdict(NamedTuple):
    """What a point is worth, per sample."""

    fooled: Tensor
    valid: Tensor  # fooled and feasible: may become the answer
    l0: Tensor
    finite: Tensor


@dataclass(frozen=True)
class Answer:
    """What the model said at a point."""

    logits: Tensor
    fooled: Tensor
    value: Tensor
    grad: Tensor


def widened(logits: Tensor, x: Tensor) -> Tensor:
    """The same numbers in a format that holds those of the model and those of its inputs."""
    return logits.to(torch.promote_types(logits.dtype, x.dtype))


def _slope(loss: LogitLoss, logits: Tensor) -> tuple[Tensor, Tensor]:
    """A loss per sample and its gradient with respect to the logits."""
    if torch.compiler.is_compiling():

        def total(z: Tensor) -> tuple[Tensor, Tensor]:
            value = loss(z)
            return value.sum(), value

        slope, (_, value) = torch.func.grad_and_value(total, has_aux=True)(logits)
        return value, slope
    with torch.enable_grad():
        z = logits.detach().requires_grad_()
        value = loss(z)
        (slope,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), slope


class Oracle:
    """Asks the model about the samples still alive.

    Where the goal must be reached by some margin, attacks see logits in which that margin is taken off: they aim for it
    without knowing.
    """

    def __init__(
        self, model: Model, problem: Problem, *, exact: bool = True, chunk: int = 1024, shows: Ability = "gradients"
    ) -> None:
        """Prepare to ask `model` about `problem`; `chunk` is the most rows sent through it at once in `copies`.

        An oracle that is not exact answers in a coarser number format: its records need confirmation.
        `shows` is the most that the attack is to see: with "labels" its logits are 1 for the class that was named and 0
        for the others, whatever the model says.
        """
        self.shows = shows
        self.model, self.problem, self.exact, self.chunk = model, problem, exact, chunk
        self.incumbents = Incumbents.start(
            problem, depth=2 if exact or problem.domain.features > _LARGE else 4, exact=exact
        )
        self.iteration = torch.zeros((), dtype=torch.int64, device=problem.ids.device)
        self.first = 0  # the iteration at which the current phase began
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}
        self._counted: tuple[Tensor, Tensor] | None = None
        self._open: tuple[Tensor, Tensor] | None = None
        self.look: Look | None = None

    @property
    def domain(self) -> Domain:
        """Return what may change."""
        return self.problem.domain

    @property
    def goal(self) -> Goal:
        """Return what counts as success."""
        return self.problem.goal

    def logits(self, x: Tensor, copies: int | None = None) -> Tensor:
        """Logits at one point per sample, or at `copies` of them: x is (N, copies, ...), so is the answer."""
        x = self.domain.snap(x)
        if copies is None:
            logits = self.goal.aim(self._ask(self.domain.to_user(x)))
            self._count(forwards=1)
            self._record(x, self._judge(x, logits))
            return self._shown(logits).to(x.dtype)
        points = self.domain.to_user(x).flatten(0, 1)
        parts = [self._ask(part) for part in torch.split(points, self.chunk)]
        logits = self.goal.aim(torch.cat(parts).view(len(x), copies, -1))
        self._count(forwards=copies)
        verdicts = [self._judge(x[:, k], logits[:, k]) for k in range(copies)]
        worth = [self._worth(x[:, k], v.l0) for k, v in enumerate(verdicts)]
        none = self.domain.nothing
        first = torch.stack([torch.where(v.valid, w, none) for v, w in zip(verdicts, worth, strict=True)], 1).argmin(1)
        every = torch.arange(len(x), device=x.device)
        chosen = Verdict(*(torch.stack(field, 1)[every, first] for field in zip(*verdicts, strict=True)))
        finite = torch.stack([v.finite for v in verdicts], 1).all(1)
        self._record(x[every, first], chosen._replace(finite=finite))
        return self._shown(logits).to(x.dtype)

    def _shown(self, logits: Tensor) -> Tensor:
        """What an attack sees of an answer."""
        if self.shows != "labels":
            return logits
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)

    def value_and_grad(self, x: Tensor, loss: LogitLoss) -> Answer:
        """One forward and one backward: the logits, and the gradient of a per-sample loss of them.

        The gradient is zero at features that may not change, so that no norm of it counts them.
        """
        x = self.domain.snap(x)
        logits = self._forward(x)
        value, slope = _slope(loss, logits)
        grad = self._backward(slope)
        self._count(forwards=1, backwards=1)
        verdict = self._judge(x, logits)
        self._record(x, verdict)
        return Answer(logits.to(x.dtype), verdict.fooled, value.to(x.dtype), self.domain.pull(grad))

    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, classes) and the gradients of the logits named in `classes` (N, K): (N, K, ...)."""
        x = self.domain.snap(x)
        logits = self._forward(x)
        rows = torch.zeros_like(logits)
        grads = []
        for k in range(classes.shape[1]):
            slope = rows.scatter(1, classes[:, k : k + 1], 1.0)
            grads.append(self.domain.pull(self._backward(slope, again=k + 1 < classes.shape[1])))
        self._count(forwards=1, backwards=classes.shape[1])
        self._record(x, self._judge(x, logits))
        return logits.to(x.dtype), torch.stack(grads, 1)

    def note(self, rows: Tensor, x: Tensor, logits: Tensor) -> None:
        """Somebody else asked the model about points (M, ...) of the samples `rows` (M,): count them, keep the best.

        In the place of the step that found a point stands how many points of its sample had been asked about by then.
        """
        goal, domain, ones = self.goal.take(rows), self.domain.take(rows), torch.ones_like(rows)
        finite = logits.isfinite().all(1)
        fooled = goal.fooled(logits) & finite
        verdict = Verdict(fooled, fooled & domain.inside(x), domain.l0(x), finite)
        self.incumbents.forwards = self.incumbents.forwards.index_add(0, rows, ones)
        self.incumbents.broken = self.incumbents.broken.index_fill(0, rows[~finite], True)
        worth = self.problem.rank(domain.cost(x), verdict.l0) if domain.weighted else verdict.l0
        for row in sorted(set(rows[verdict.valid].tolist())):
            mine = (verdict.valid & (rows == row)).nonzero().squeeze(1)
            best = mine[worth[mine].argmin()].view(1)
            part = self.part(rows[best])
            part.iteration = part.incumbents.forwards - self.problem.checks
            part._record(x[best], Verdict(*(field[best] for field in verdict)))
            self.absorb(part, rows[best])

    def note_backwards(self, rows: Tensor) -> None:
        """Gradients at points of these samples were computed for somebody else."""
        self.incumbents.backwards = self.incumbents.backwards.index_add(0, rows, torch.ones_like(rows))

    def l0(self, x: Tensor) -> Tensor:
        """Number of changes of a point; that of the point asked last is known already."""
        if self._counted is not None and self._counted[0] is x:
            return self._counted[1]
        return self.domain.l0(self.domain.snap(x))

    def worth(self, x: Tensor) -> Tensor:
        """Return what records are compared by, lowest best: `Problem.rank`, or changes where they all cost alike."""
        return self._worth(self.domain.snap(x), self.l0(x)) if self.domain.weighted else self.l0(x)

    def _worth(self, x: Tensor, l0: Tensor) -> Tensor:
        return self.problem.rank(self.domain.cost(x), l0) if self.domain.weighted else l0

    def row(self, table: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        """The numbers of step i in a schedule of shape (steps, numbers), on the problem's device and dtype."""
        if id(table) not in self._tables:
            # The table itself is kept beside its copy: an id alone could be reused by another table.
            self._tables[id(table)] = table, self._send(table)
        here = self._tables[id(table)][1]
        return here.index_select(0, i.reshape(1)).squeeze(0).unbind()

    def retire(self, done: Tensor | None = None) -> None:
        """End a step: rows that have their answer, or that the attack gave up (`done`), ask no more."""
        incumbents = self.incumbents
        self._counted = None  # a point of a recorded step must not outlive it
        # Where nothing was found the count is one more than there are sites: a larger budget must not pass for met.
        finished = (incumbents.best_l0 <= min(self.problem.budget or 0, self.domain.sites)) | incumbents.broken
        incumbents.alive = incumbents.alive & ~(finished if done is None else finished | done)

    def no_start(self, rows: Tensor) -> None:
        """Rows (a boolean mask) for which the attack found no starting point end here; the others go on."""
        self.incumbents.unstarted = self.incumbents.unstarted | rows
        self.incumbents.alive = self.incumbents.alive & ~rows

    def part(self, rows: Tensor) -> "Oracle":
        """An oracle about some of the rows (indices), for questions that only they have; see `absorb`."""
        part = copy(self)
        part.take(rows)
        return part

    def absorb(self, part: "Oracle", rows: Tensor) -> None:
        """Take over what an oracle about some of the rows has counted and found."""
        self.incumbents = put(self.incumbents, rows, part.incumbents)

    def take(self, rows: Tensor) -> None:
        """Go on with some of the rows only."""
        self.problem, self.incumbents, self._counted = self.problem.take(rows), take(self.incumbents, rows), None

    def forget(self) -> None:
        """Let go of an answer that nobody went on with."""
        self._open = None

    def _send(self, table: Tensor) -> Tensor:
        """A copy on the problem's device, in its dtype; nobody waits for its arrival."""
        table, x = table.to(self.domain.x.dtype), self.domain.x
        return table.pin_memory().to(x.device, non_blocking=True) if x.is_cuda else table

    def _ask(self, x: Tensor) -> Tensor:
        """Logits without a way back; a copy, as some models give the same memory again each time."""
        with torch.no_grad():
            return widened(logits_in(self.model(x)), x).clone()

    def _forward(self, x: Tensor) -> Tensor:
        """Logits, with the way back kept open for `_backward`."""
        if self.shows != "gradients":
            raise TypeError(
                f'this attack says that {self.shows} are all it needs; for gradients say needs = "gradients"'
            )
        with torch.enable_grad():
            point = self.domain.to_user(x.detach()).requires_grad_()
            logits = logits_in(self.model(self.domain.traced(point)))
        if not logits.requires_grad:
            raise TypeError(
                "the model's output carries no gradient with respect to its input; "
                "remove no_grad, detach or NumPy from its forward, or choose an attack without gradients"
            )
        self._open = point, logits
        return self.goal.aim(widened(logits.detach(), x))

    def _backward(self, slope: Tensor, again: bool = False) -> Tensor:
        """The gradient at the last point asked, for a gradient with respect to the logits."""
        assert self._open is not None  # by `_forward`
        point, logits = self._open
        (grad,) = torch.autograd.grad(logits, point, slope.to(logits.dtype), retain_graph=again)
        if not again:
            self._open = None
        if self.look is not None:
            self.look.note(self.problem, point, logits, slope, grad, self.incumbents.alive)
        return grad.contiguous()  # a copy with channels last has gradients so, and a recorded step knows one layout

    @property
    def _on_host(self) -> bool:
        """Whether looking at a value costs nothing: then steps that bring nothing new skip passes over the input."""
        return not self.domain.x.is_cuda

    def _count(self, forwards: int = 0, backwards: int = 0) -> None:
        incumbents = self.incumbents
        incumbents.forwards = torch.add(incumbents.forwards, incumbents.alive, alpha=forwards)
        if backwards:
            incumbents.backwards = torch.add(incumbents.backwards, incumbents.alive, alpha=backwards)

    def _judge(self, x: Tensor, logits: Tensor) -> Verdict:
        finite = (logits * 0 == 0).all(1)  # not for infinite numbers, nor for NaN; fewer kernels than isfinite
        fooled = self.goal.fooled(logits) & finite
        if self._on_host and not bool(fooled.any()):
            return Verdict(fooled, fooled, torch.zeros_like(self.goal.y), finite)  # no point to weigh
        self._counted = x, self.domain.l0(x)
        return Verdict(fooled, fooled & self.domain.inside(x), self._counted[1], finite)

    def _record(self, x: Tensor, verdict: Verdict) -> None:
        """Keep a point that is better than the best so far; push the older ones down."""
        incumbents = self.incumbents
        incumbents.broken = incumbents.broken | (incumbents.alive & ~verdict.finite)
        worth = self._worth(x, verdict.l0)
        record = verdict.valid & (worth < incumbents.best_cost) & incumbents.alive
        if self._on_host and not bool(record.any()):
            return
        newer = torch.cat([x[:, None], incumbents.points[:, :-1]], 1)
        incumbents.points = torch.where(ops.per_row(record, newer), newer, incumbents.points)
        counts = torch.cat([verdict.l0[:, None], incumbents.counts[:, :-1]], 1)
        incumbents.counts = torch.where(record[:, None], counts, incumbents.counts)
        steps = torch.cat([self.iteration.expand(len(x), 1), incumbents.step_found[:, :-1]], 1)
        incumbents.step_found = torch.where(record[:, None], steps, incumbents.step_found)
        if self.domain.weighted:
            costs = torch.cat([worth[:, None], incumbents.worth[:, :-1]], 1)
            incumbents.costs = torch.where(record[:, None], costs, incumbents.worth)
