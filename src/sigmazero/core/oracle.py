"""The only way to the model: it answers queries, counts them per sample and keeps the best points it was shown.

Where a space is more than a box, the oracle asks about the legal point nearest to the one shown, judges it and keeps
it; gradients are passed on as if they were those of the point shown.

A model may answer in another number format than that of its inputs. Goals and losses are computed in the wider of both,
and an attack gets everything in the format of the inputs.

On a GPU nothing here reads a tensor's value on the host, so a step made of these calls can be captured and replayed.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from sigmazero.core import noise
from sigmazero.core.answers import Answers
from sigmazero.core.domain import Domain
from sigmazero.core.goal import Goal
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.model import Ability, ask
from sigmazero.core.ops import put, take
from sigmazero.core.problem import Problem

Model = Callable[[Tensor], Tensor]
LogitLoss = Callable[[Tensor], Tensor]
# Sees the gradients of a batch: problem, point, logits, gradients with respect to logits and to inputs, alive rows.
Look = Callable[[Problem, Tensor, Tensor, Tensor, Tensor, Tensor], None]


class Verdict(NamedTuple):
    """A point of each sample, judged by its logits."""

    fooled: Tensor
    valid: Tensor  # fooled and legal: may become the answer
    changes: Tensor
    worth: Tensor  # what records are compared by
    finite: Tensor


@dataclass(frozen=True)
class Answer:
    """The model's answer at a point: logits, and a loss with its gradient."""

    logits: Tensor
    fooled: Tensor
    value: Tensor
    grad: Tensor


def widened(logits: Tensor, x: Tensor) -> Tensor:
    """Return logits in a format that holds the numbers of the model and those of its inputs."""
    return logits.to(torch.promote_types(logits.dtype, x.dtype))


def _slope(loss: LogitLoss, logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return a loss per sample and its gradient with respect to the logits."""
    with torch.enable_grad():
        z = logits.detach().requires_grad_()
        value = loss(z)
        (slope,) = torch.autograd.grad(value.sum(), z)
    return value.detach(), slope


class Oracle:
    """Asks the model about the samples that are still searched.

    Where the goal must be reached by a margin, attacks see logits in which the margin is taken off, and so aim for it.
    """

    def __init__(self, model: Model, problem: Problem, *, chunk: int = 1024, shows: Ability = "gradients") -> None:
        """Prepare to ask `model` about `problem`; several points per sample go through it `chunk` rows at a time.

        `shows` limits what the attack sees: with "labels" its logits are 1 for the predicted class and 0 for others.
        """
        self.model, self.problem, self.chunk, self.shows = model, problem, chunk, shows
        self.incumbents = Incumbents.start(problem)
        self.iteration = torch.zeros((), dtype=torch.int64, device=problem.ids.device)
        self.first = 0  # the iteration at which the current phase began
        self._tables: dict[int, tuple[Tensor, Tensor]] = {}
        self._counted: tuple[Tensor, Tensor] | None = None
        self._open: tuple[Tensor, Tensor] | None = None
        self.look: Look | None = None
        # Where no point of a row is asked about twice, on the host alone: logits, and logits, loss and gradient.
        self.answers: Answers | None = None
        self.gradients: Answers | None = None

    @property
    def domain(self) -> Domain:
        """Return what may change."""
        return self.problem.domain

    @property
    def goal(self) -> Goal:
        """Return what counts as success."""
        return self.problem.goal

    # Queries

    def logits(self, x: Tensor, copies: int | None = None) -> Tensor:
        """Return logits at one point per sample, or at `copies` of them: x is (N, copies, ...), so is the answer."""
        x = self.domain.snap(x)
        if self.answers is not None:
            return self._remembered(x if copies is not None else x[:, None], self.answers, copies is None)
        if copies is None:
            logits = self.goal.aim(self._ask(self.domain.to_user(x)))
            self._count(forwards=1)
            self._record(x, self._judge(x, logits))
            return self._shown(logits).to(x.dtype)
        points = self.domain.to_user(x).flatten(0, 1)
        parts = [self._ask(part) for part in torch.split(points, self.chunk)]
        logits = self.goal.aim(torch.cat(parts).view(len(x), copies, -1))
        self._count(forwards=copies)
        return self._weighed(x, logits)

    def _remembered(self, x: Tensor, answers: Answers, alone: bool) -> Tensor:
        """Ask about points (N, K, ...) that are new, and count these alone."""
        new, hashes = answers.find(x)
        rows, which = new.nonzero(as_tuple=True)
        logits = x.new_zeros(0, 2)
        if len(rows):
            points = self.domain.take(rows).to_user(x[rows, which])
            logits = torch.cat([self._ask(part) for part in torch.split(points, self.chunk)])
        mine = self.incumbents
        mine.forwards = mine.forwards + mine.alive * new.sum(1)
        answers.remember(new, hashes, logits)
        found = self._weighed(x, self.goal.aim(answers.recall(hashes)))
        return found[:, 0] if alone else found

    def _weighed(self, x: Tensor, logits: Tensor) -> Tensor:
        """Keep the best of several points per sample, and return what the attack sees of the answers."""
        copies = x.shape[1]
        verdicts = [self._judge(x[:, k], logits[:, k]) for k in range(copies)]
        worth = [torch.where(v.valid, v.worth, self.domain.nothing) for v in verdicts]
        every, best = torch.arange(len(x), device=x.device), torch.stack(worth, 1).argmin(1)
        fields = [torch.stack(field, 1) for field in zip(*verdicts, strict=True)]
        chosen = Verdict(*(field[every, best] for field in fields))
        self._record(x[every, best], chosen._replace(finite=fields[-1].all(1)))
        return self._shown(logits).to(x.dtype)

    def value_and_grad(self, x: Tensor, loss: LogitLoss) -> Answer:
        """Return the logits, and the gradient of a loss per sample: one forward and one backward.

        The gradient is zero at features that may not change, so that no norm of it counts them.
        """
        x = self.domain.snap(x)
        if self.gradients is None:
            logits = self._forward(x)
            value, slope = _slope(loss, logits)
            grad = self._backward(slope)
            self._count(forwards=1, backwards=1)
        else:
            logits, value, grad = self._remembered_gradient(x, loss, self.gradients)
        verdict = self._judge(x, logits)
        self._record(x, verdict)
        return Answer(logits.to(x.dtype), verdict.fooled, value.to(x.dtype), self.domain.pull(grad))

    def _remembered_gradient(self, x: Tensor, loss: LogitLoss, known: Answers) -> tuple[Tensor, Tensor, Tensor]:
        """Ask for gradients at points that are new, and count these alone. A search has one loss."""
        new, hashes = known.find(x[:, None])
        rows = new[:, 0].nonzero()[:, 0]
        if len(rows):
            part = self if len(rows) == len(x) else self.part(rows)
            some = part._forward(x[rows])
            assert part._open is not None  # by `_forward`
            if self.answers is not None:
                self.answers.remember(new, hashes, widened(part._open[1].detach(), x))
            logits = some.new_zeros(len(x), some.shape[1]).index_copy(0, rows, some)  # others do not matter
            value, slope = _slope(loss, logits)
            grad = part._backward(slope[rows]).flatten(1)
            known.remember(new, hashes, torch.cat([some, value[rows, None], grad], 1))
        mine = self.incumbents
        mine.forwards = mine.forwards + mine.alive * new[:, 0]
        mine.backwards = mine.backwards + mine.alive * new[:, 0]
        found, features = known.recall(hashes)[:, 0], self.domain.user_x[0].numel()
        classes = found.shape[1] - 1 - features
        grad = found[:, classes + 1 :].view_as(self.domain.user_x).to(x.dtype)
        return found[:, :classes], found[:, classes], grad

    def jacobian(self, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits (N, classes) and the gradients of those in `classes` (N, K): (N, K, ...)."""
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

    def count_foreign(self, rows: Tensor, x: Tensor, logits: Tensor) -> None:
        """Count points (M, ...) of the samples `rows` (M,) that a foreign attack asked about, and keep the best.

        The step that found a point is the number of its sample's queries by then.
        """
        part = self.part(rows)
        verdict = part._judge(x, logits)
        mine, ones = self.incumbents, torch.ones_like(rows)
        mine.forwards = mine.forwards.index_add(0, rows, ones)
        mine.broken = mine.broken.index_fill(0, rows[~verdict.finite], True)
        for row in sorted(set(rows[verdict.valid].tolist())):
            places = (verdict.valid & (rows == row)).nonzero().squeeze(1)
            best = places[verdict.worth[places].argmin()].view(1)
            part = self.part(rows[best])
            part.iteration = part.incumbents.forwards - self.problem.clean
            part._record(x[best], Verdict(*(field[best] for field in verdict)))
            self.absorb(part, rows[best])

    def count_backwards(self, rows: Tensor) -> None:
        """Count gradients at points of these samples that a foreign attack asked for."""
        self.incumbents.backwards = self.incumbents.backwards.index_add(0, rows, torch.ones_like(rows))

    # What is known

    def l0(self, x: Tensor) -> Tensor:
        """Return the number of changes of a point; that of the point asked last is known already."""
        if self._counted is not None and self._counted[0] is x:
            return self._counted[1]
        return self.domain.l0(self.domain.snap(x))

    def worth(self, x: Tensor) -> Tensor:
        """Return what records are compared by, lowest best: `Problem.rank`, or changes where they all cost alike."""
        return self._worth(self.domain.snap(x), self.l0(x)) if self.domain.weighted else self.l0(x)

    def row(self, table: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        """Return the numbers of step i in a schedule (steps, numbers), on the problem's device and in its dtype."""
        if id(table) not in self._tables:
            x, own = self.domain.x, table.to(self.domain.x.dtype)
            # Pinned, so that nothing waits for the copy to arrive. The table itself is held with its copy: an id alone
            # could be reused by another table.
            here = own.pin_memory().to(x.device, non_blocking=True) if x.is_cuda else own
            self._tables[id(table)] = table, here
        here = self._tables[id(table)][1]
        return here.index_select(0, i.reshape(1)).squeeze(0).unbind()

    def uniform(self, i: Tensor | int, stream: int = 0) -> Tensor:
        """Return a random number in [0, 1) for every feature, the same in every batch; streams are independent."""
        p, x = self.problem, self.domain.x
        return noise.uniform(p.seed, p.ids, i, tuple(x.shape[1:]), stream, x.dtype)

    # Which samples go on

    def retire(self, done: Tensor | None = None) -> None:
        """End a step: samples that have their answer, or that the attack gave up (`done`), ask no more."""
        incumbents = self.incumbents
        self._counted = None  # a point of a captured step must not outlive it
        # Where nothing was found the count is one more than there are sites: a larger budget must not pass for met.
        finished = (incumbents.best_l0 <= min(self.problem.budget or 0, self.domain.sites)) | incumbents.broken
        incumbents.alive = incumbents.alive & ~(finished if done is None else finished | done)

    def no_start(self, rows: Tensor) -> None:
        """End the samples (a boolean mask) for which the attack found no starting point."""
        self.incumbents.unstarted = self.incumbents.unstarted | rows
        self.incumbents.alive = self.incumbents.alive & ~rows

    def part(self, rows: Tensor) -> "Oracle":
        """Return an oracle about some of the rows (indices), for questions that only they have; see `absorb`."""
        part = copy(self)
        part.take(rows)
        return part

    def absorb(self, part: "Oracle", rows: Tensor) -> None:
        """Take over what an oracle about some of the rows has counted and found."""
        self.incumbents = put(self.incumbents, rows, part.incumbents)

    def take(self, rows: Tensor) -> None:
        """Go on with some of the rows only."""
        self.answers = None if self.answers is None else self.answers.take(rows)
        self.gradients = None if self.gradients is None else self.gradients.take(rows)
        self.problem, self.incumbents, self._counted = self.problem.take(rows), take(self.incumbents, rows), None

    def forget(self) -> None:
        """Drop the graph of an answer whose gradient was never asked for."""
        self._open = None

    # Inside

    def _shown(self, logits: Tensor) -> Tensor:
        """Return what the attack sees of an answer."""
        if self.shows != "labels":
            return logits
        return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)

    def _ask(self, x: Tensor) -> Tensor:
        """Return logits without a graph; a copy, as some models return the same memory each time."""
        with torch.no_grad():
            return widened(ask(self.model, x), x).clone()

    def _forward(self, x: Tensor) -> Tensor:
        """Return logits, and keep their graph for `_backward`."""
        if self.shows != "gradients":
            raise TypeError(
                f'this attack says that {self.shows} are all it needs; for gradients say needs = "gradients"'
            )
        with torch.enable_grad():
            point = self.domain.to_user(x.detach()).requires_grad_()
            logits = ask(self.model, self.domain.traced(point))
        if not logits.requires_grad:
            raise TypeError(
                "the model's output carries no gradient with respect to its input; "
                "remove no_grad, detach or NumPy from its forward, or choose an attack without gradients"
            )
        self._open = point, logits
        return self.goal.aim(widened(logits.detach(), x))

    def _backward(self, slope: Tensor, again: bool = False) -> Tensor:
        """Return the gradient at the last point asked, for a gradient with respect to the logits."""
        assert self._open is not None  # by `_forward`
        point, logits = self._open
        (grad,) = torch.autograd.grad(logits, point, slope.to(logits.dtype), retain_graph=again)
        if not again:
            self._open = None
        if self.look is not None:
            self.look(self.problem, point, logits, slope, grad, self.incumbents.alive)
        return grad.contiguous()  # a copy with channels last has gradients so, and a captured step knows one layout

    def _count(self, forwards: int = 0, backwards: int = 0) -> None:
        incumbents = self.incumbents
        incumbents.forwards = torch.add(incumbents.forwards, incumbents.alive, alpha=forwards)
        if backwards:
            incumbents.backwards = torch.add(incumbents.backwards, incumbents.alive, alpha=backwards)

    def _judge(self, x: Tensor, logits: Tensor) -> Verdict:
        finite = (logits * 0 == 0).all(1)  # fewer kernels than isfinite
        fooled = self.goal.fooled(logits) & finite
        if not x.is_cuda and not bool(fooled.any()):  # on the host, reading a value costs nothing
            nothing = torch.zeros_like(self.goal.y)
            return Verdict(fooled, fooled, nothing, nothing, finite)
        count = self.domain.l0(x)
        self._counted = x, count
        return Verdict(fooled, fooled & self.domain.inside(x), count, self._worth(x, count), finite)

    def _worth(self, x: Tensor, count: Tensor) -> Tensor:
        return self.problem.rank(self.domain.cost(x), count) if self.domain.weighted else count

    def _record(self, x: Tensor, verdict: Verdict) -> None:
        """Keep a point that is better than the best so far."""
        incumbents = self.incumbents
        incumbents.broken = incumbents.broken | (incumbents.alive & ~verdict.finite)
        better = verdict.valid & (verdict.worth < incumbents.best_cost) & incumbents.alive
        if not x.is_cuda and not bool(better.any()):
            return
        incumbents.push(better, x, verdict.changes, verdict.worth, self.iteration.expand(len(x)))
