"""The search of one batch: step, let finished rows leave, go on with the rest, phase after phase."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.batched import each, put, take
from sigmazero.core.oracle import Oracle
from sigmazero.core.problem import Problem
from sigmazero.core.tally import Tally
from sigmazero.run.progress import Advance
from sigmazero.run.steppers import Stepper

Recheck = Callable[[Problem, Tally], None]


class Phase(Protocol):
    """A phase of an attack, and who takes its steps."""

    @property
    def attack(self) -> Attack:
        """The phase itself: most attacks have one, themselves."""

    def begin(self, oracle: Oracle, before: Any) -> Stepper:
        """A stepper for one batch, after the state `before` of an earlier phase (None for the first)."""


@dataclass
class Found:
    """What a search leaves behind: a row per sample, in the order of the batch."""

    tally: Tally
    own: Tensor | None


def search(phases: Sequence[Phase], oracle: Oracle, compact: bool, recheck: Recheck | None, advance: Advance) -> Found:
    """Step through the phases until every row has its answer or the steps are spent.

    `recheck` looks at new records before rows may leave with them, where the search itself is not to be trusted.
    """
    problem = oracle.problem
    rows = torch.arange(len(problem), device=problem.x.device)
    keeps_own = phases[0].attack.keeps_own
    found = Found(take(oracle.tally, rows), problem.domain.x.clone() if keeps_own else None)
    done, total = 0, sum(phase.attack.iterations for phase in phases)
    state, end, left = None, 0, len(rows)
    looks = Looks()
    for phase in phases:
        oracle.first = done
        stepper = phase.begin(oracle, state)
        end += phase.attack.iterations
        while True:
            if recheck is not None:
                everyone = looks.due() or done == end
                _rechecked(phase.attack, problem.take(rows), stepper.tally, recheck, everyone)
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
                stepper = stepper.take(alive)
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


class Looks:
    """At which looks all records are confirmed: the first few, then ever fewer.

    Records come fast at first and rarely later, and a wrong one has others behind it. Where none was ever confirmed,
    and where a row stops, every look counts.
    """

    def __init__(self) -> None:
        self.count, self.next = 0, 1

    def due(self) -> bool:
        """Count a look; whether everybody's records are confirmed at it."""
        self.count += 1
        if self.count < self.next:
            return False
        self.next = max(self.count + 1, self.count * 5 // 4)
        return True


def _rechecked(phase: Attack, problem: Problem, tally: Tally, recheck: Recheck, everyone: bool) -> None:
    """Confirm new records, in place: everybody's, or only of rows that are about to leave or have nothing confirmed.

    That asks too, and a row that goes on for it may have nothing left to ask.
    """
    if everyone:
        recheck(problem, tally)
    else:
        assert tally.sure_l0 is not None  # in every search that needs to confirm
        urgent = ~tally.alive | (tally.sure_l0 > problem.sites)
        rows = (urgent & (tally.best_cost < tally.sure_worth)).nonzero().squeeze(1)
        if not len(rows):
            return
        part = take(tally, rows)
        recheck(problem.take(rows), part)
        each(lambda held, new: held.index_copy_(0, rows, new), tally, part)
    spent = phase.spent(tally)
    if spent is not None:
        tally.alive &= ~spent


def _write(found: Found, rows: Tensor, stepper: Stepper, which: Tensor) -> None:
    """Copy what is known of some rows to their places."""
    places = rows[which]
    found.tally = put(found.tally, places, take(stepper.tally, which))
    if found.own is not None:
        found.own[places] = stepper.state.own[which]
