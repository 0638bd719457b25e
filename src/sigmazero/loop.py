"""The search of one batch: step, let finished rows leave, go on with the rest."""

from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch
from torch import Tensor

from sigmazero.oracle import Oracle, Tally, take
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


def one_step(attack: Steps, oracle: Oracle, state: Any) -> Any:
    """A step of the attack and what belongs to it: who may leave, and the step counter."""
    state = attack.step(oracle.iteration, state, oracle)
    oracle.retire(getattr(state, "done", None))
    oracle.iteration = oracle.iteration + 1
    return state


class Eager:
    """Steps one by one. On a CPU a finished row leaves at once; on a device the host looks only now and then."""

    def __init__(self, attack: Steps, oracle: Oracle) -> None:
        self.attack, self.oracle = attack, oracle
        self.state = attack.init(oracle)
        self.interval = 10 if oracle.problem.x.is_cuda else 1

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


def search(attack: Steps, oracle: Oracle, *, compact: bool, advance: Advance) -> Found:
    """Step until every row has its answer or the steps are spent."""
    rows = torch.arange(len(oracle.problem), device=oracle.problem.x.device)
    found = Found(take(oracle.tally, rows), oracle.problem.x.clone() if attack.keeps_own else None)
    stepper = Eager(attack, oracle)
    done, total = 0, attack.iterations
    while True:
        alive = oracle.tally.alive
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


def _write(found: Found, rows: Tensor, stepper: Eager, which: Tensor) -> None:
    """Copy what is known of some rows to their places."""
    for field in fields(Tally):
        getattr(found.tally, field.name)[rows[which]] = getattr(stepper.oracle.tally, field.name)[which]
    if found.own is not None:
        found.own[rows[which]] = stepper.state.own[which]
