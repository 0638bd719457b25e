"""Who takes the steps of a phase for a batch: one by one here, replayed from a recording in `graphs`."""

from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.batched import take
from sigmazero.core.ops import per_row
from sigmazero.core.oracle import Oracle
from sigmazero.core.tally import Tally


class Stepper(Protocol):
    """Takes the steps of a phase for a batch."""

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

    def take(self, keep: Tensor) -> "Stepper":
        """Whoever goes on with some of the rows; mostly this stepper itself."""


def one_step(attack: Attack, oracle: Oracle, state: Any) -> Any:
    """A step of the attack and what belongs to it: who may leave, and the step counter."""
    alive = oracle.tally.alive
    new = attack.step(oracle.iteration - oracle.first, state, oracle)
    if attack.keeps_own:
        # A row that has left may still be stepped for a while; its answer is the one it left with.
        new = replace(new, own=torch.where(per_row(alive, new.own), new.own, state.own))
    done, spent = getattr(new, "done", None), attack.spent(oracle.tally)
    oracle.retire(done if spent is None else spent if done is None else done | spent)
    oracle.iteration = oracle.iteration + 1
    return new


class Eager:
    """Steps one by one. On a CPU a finished row leaves at once; on a device the host looks only now and then.

    `ahead` is how many steps were taken already that nobody has asked for yet.
    """

    def __init__(self, attack: Attack, oracle: Oracle, state: Any, ahead: int = 0) -> None:
        self.attack, self.oracle, self.state, self.ahead = attack, oracle, state, ahead
        self.interval = 10 if oracle.problem.x.is_cuda else 1

    @property
    def tally(self) -> Tally:
        """What is known of the rows."""
        return self.oracle.tally

    def go(self, steps: int) -> None:
        """Take some steps."""
        left = steps - self.ahead
        self.ahead = max(-left, 0)
        for _ in range(left):
            self.state = one_step(self.attack, self.oracle, self.state)

    def worth(self, alive: int, rows: int) -> bool:
        """Whether to send the finished rows away now."""
        return alive < rows if self.interval == 1 else alive <= 0.75 * rows

    def take(self, keep: Tensor) -> "Eager":
        """Go on with some of the rows."""
        self.oracle.take(keep)
        self.state = take(self.state, keep)
        return self
