"""The search of one batch: step, let finished rows leave, go on with the rest."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from sigmazero.ops import per_row
from sigmazero.oracle import Oracle, Tally, put, take
from sigmazero.problem import Problem
from sigmazero.progress import Advance


class Steps(Protocol):
    """The part of an attack the loop needs."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def iterations(self) -> int:
        """How often to step at most."""

    @property
    def keeps_own(self) -> bool:
        """Whether its state has a field `own`."""

    @property
    def capturable(self) -> bool:
        """Whether a step never looks at a value on the host."""

    def init(self, oracle: Oracle) -> Any:
        """The state before the first step."""

    def step(self, i: Tensor, state: Any, oracle: Oracle) -> Any:
        """One step."""


@dataclass
class Found:
    """What a search leaves behind: a row per sample, in the order of the batch."""

    tally: Tally
    own: Tensor | None


class Stepper(Protocol):
    """Takes the steps of a batch: one by one, or replayed."""

    interval: int

    @property
    def tally(self) -> Tally:
        """What is known of the rows."""

    @property
    def state(self) -> Any:
        """The attack's state of the rows."""

    def go(self, steps: int) -> None:
        """Take some steps."""

    def worth(self, alive: int, rows: int) -> bool:
        """Whether to send the finished rows away now."""

    def take(self, keep: Tensor) -> None:
        """Go on with some of the rows."""


def one_step(attack: Steps, oracle: Oracle, state: Any) -> Any:
    """A step of the attack and what belongs to it: who may leave, and the step counter."""
    alive = oracle.tally.alive
    new = attack.step(oracle.iteration, state, oracle)
    if attack.keeps_own:
        # A row that has left may still be stepped for a while; its answer is the one it left with.
        new = replace(new, own=torch.where(per_row(alive, new.own), new.own, state.own))
    oracle.retire(getattr(new, "done", None))
    oracle.iteration = oracle.iteration + 1
    return new


class Eager:
    """Steps one by one. On a CPU a finished row leaves at once; on a device the host looks only now and then."""

    def __init__(self, attack: Steps, oracle: Oracle) -> None:
        self.attack, self.oracle = attack, oracle
        self.state = attack.init(oracle)
        self.interval = 10 if oracle.problem.x.is_cuda else 1

    @property
    def tally(self) -> Tally:
        """What is known of the rows."""
        return self.oracle.tally

    def go(self, steps: int) -> None:
        """Take some steps."""
        for _ in range(steps):
            self.state = one_step(self.attack, self.oracle, self.state)

    def worth(self, alive: int, rows: int) -> bool:
        """Whether to send the finished rows away now."""
        return alive < rows if self.interval == 1 else alive <= 0.75 * rows

    def take(self, keep: Tensor) -> None:
        """Go on with some of the rows."""
        self.oracle.take(keep)
        self.state = take(self.state, keep)


def search(
    attack: Steps,
    problem: Problem,
    stepper: Stepper,
    compact: bool,
    recheck: Callable[[Problem, Tally], None] | None,
    advance: Advance,
) -> Found:
    """Step until every row has its answer or the steps are spent.

    `recheck` looks at new records before rows may leave with them, where the search itself is not to be trusted.
    """
    rows = torch.arange(len(problem), device=problem.x.device)
    found = Found(take(stepper.tally, rows), problem.x.clone() if attack.keeps_own else None)
    done, total = 0, attack.iterations
    while True:
        if recheck is not None:
            recheck(problem.take(rows), stepper.tally)
        alive = stepper.tally.alive.clone()
        left = int(alive.sum())
        if left == 0 or done == total:
            break
        if compact and stepper.worth(left, len(rows)):
            _write(found, rows, stepper, ~alive)
            advance((len(rows) - left) * (1 - done / total))
            rows = rows[alive]
            stepper.take(alive)
        steps = min(stepper.interval, total - done)
        stepper.go(steps)
        done += steps
        advance(len(rows) * steps / total)
    _write(found, rows, stepper, torch.ones_like(alive))
    advance(len(rows) * (1 - done / total))
    return found


def _write(found: Found, rows: Tensor, stepper: Stepper, which: Tensor) -> None:
    """Copy what is known of some rows to their places."""
    places = rows[which]
    found.tally = put(found.tally, places, take(stepper.tally, which))
    if found.own is not None:
        found.own[places] = stepper.state.own[which]
