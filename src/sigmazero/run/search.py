"""The search of one batch: step, let finished rows leave, go on with the rest, phase after phase."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from sigmazero.core.ops import per_row
from sigmazero.core.oracle import Oracle, Tally, put, take
from sigmazero.core.problem import Problem
from sigmazero.run.progress import Advance


class Steps(Protocol):
    """A phase of an attack; most attacks have one, themselves."""

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

    @property
    def unroll(self) -> int:
        """How many steps to record together."""

    def init(self, oracle: Oracle) -> Any:
        """The state before the first step."""

    def follow(self, oracle: Oracle, before: Any) -> Any:
        """The state before the first step, after another phase that ended in the state `before`."""

    def spent(self, tally: Tally) -> Tensor | None:
        """Rows for which another step could exceed a limit of queries; None if there is none."""

    def step(self, i: Tensor, state: Any, oracle: Oracle) -> Any:
        """One step."""


@dataclass
class Found:
    """What a search leaves behind: a row per sample, in the order of the batch."""

    tally: Tally
    own: Tensor | None


class Phases(Protocol):
    """The part of an attack the search needs."""

    @property
    def name(self) -> str:
        """What to call it."""

    @property
    def keeps_own(self) -> bool:
        """Whether its states have a field `own`."""

    @property
    def limit(self) -> int | None:
        """The most queries of a sample."""

    def phases(self, problem: Problem | None = None) -> Sequence[Steps]:
        """What happens, one after the other."""


class Stepper(Protocol):
    """Takes the steps of a phase for a batch: one by one, or replayed."""

    interval: int

    @property
    def oracle(self) -> Oracle:
        """What was asked and found about the rows; a copy, where the stepper goes on writing to its own."""

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
    new = attack.step(oracle.iteration - oracle.first, state, oracle)
    if attack.keeps_own:
        # A row that has left may still be stepped for a while; its answer is the one it left with.
        new = replace(new, own=torch.where(per_row(alive, new.own), new.own, state.own))
    oracle.retire(getattr(new, "done", None))
    oracle.iteration = oracle.iteration + 1
    return new


def begun(phase: Steps, oracle: Oracle, before: Any) -> Any:
    """The state before a phase's first step."""
    return phase.init(oracle) if before is None else phase.follow(oracle, before)


class Eager:
    """Steps one by one. On a CPU a finished row leaves at once; on a device the host looks only now and then."""

    def __init__(self, attack: Steps, oracle: Oracle, state: Any) -> None:
        self.attack, self.oracle, self.state = attack, oracle, state
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
    attack: Phases,
    oracle: Oracle,
    begin: Callable[[int, Oracle, Any], Stepper],
    compact: bool,
    recheck: Callable[[Problem, Tally], None] | None,
    advance: Advance,
) -> Found:
    """Step through the phases until every row has its answer or the steps are spent.

    `begin` makes the stepper of a phase, given its number and what the phase before left.
    `recheck` looks at new records before rows may leave with them, where the search itself is not to be trusted.
    """
    problem = oracle.problem
    rows = torch.arange(len(problem), device=problem.x.device)
    found = Found(take(oracle.tally, rows), problem.x.clone() if attack.keeps_own else None)
    phases = attack.phases(problem)
    done, total = 0, sum(phase.iterations for phase in phases)
    state, end, left = None, 0, len(rows)
    for number, phase in enumerate(phases):
        oracle.first = done
        stepper = begin(number, oracle, state)
        end += phase.iterations
        while True:
            if recheck is not None:
                _rechecked(phase, problem.take(rows), stepper.tally, recheck)
            if done == end:
                break
            alive = stepper.tally.alive.clone()
            left = int(alive.sum())
            if left == 0:
                break
            if compact and stepper.worth(left, len(rows)):
                _write(found, rows, stepper, ~alive)
                advance((len(rows) - left) * (1 - done / total))
                rows = rows[alive]
                stepper.take(alive)
            steps = (end - done - 1) % stepper.interval + 1  # a short turn comes first: see below
            stepper.go(steps)
            done += steps
            advance(len(rows) * steps / total)
        if left == 0 or done == total:
            break
        # Without a look at who is left: a device is still at the last turn while the host prepares the next phase.
        oracle, state = stepper.oracle, stepper.state
    _write(found, rows, stepper, torch.ones_like(rows, dtype=torch.bool))
    advance(len(rows) * (1 - done / total))
    return found


def _rechecked(phase: Steps, problem: Problem, tally: Tally, recheck: Callable[[Problem, Tally], None]) -> None:
    """Confirm new records, in place. That asks too, and a row that goes on for it may have nothing left to ask."""
    recheck(problem, tally)
    spent = phase.spent(tally)
    if spent is not None:
        tally.alive &= ~spent


def _write(found: Found, rows: Tensor, stepper: Stepper, which: Tensor) -> None:
    """Copy what is known of some rows to their places."""
    places = rows[which]
    found.tally = put(found.tally, places, take(stepper.tally, which))
    if found.own is not None:
        found.own[places] = stepper.state.own[which]
