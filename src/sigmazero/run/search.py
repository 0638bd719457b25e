"""The search of one batch: step, let finished rows leave, go on with the rest, phase after phase."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.ops import each, per_row, put, take
from sigmazero.core.oracle import Oracle
from sigmazero.core.problem import Problem
from sigmazero.run.progress import Advance

Recheck = Callable[[Problem, Incumbents], None]


@dataclass
class Found:
    """What a search leaves behind: a row per sample, in the order of the batch."""

    incumbents: Incumbents
    own: Tensor | None


class Steps:
    """Takes the steps of a phase for a batch, one by one.

    On a CPU a finished row leaves at once; on a device the host looks at the rows every `interval` steps.
    """

    def __init__(self, attack: Attack, oracle: Oracle, state: Any) -> None:
        self.attack, self._oracle, self._state = attack, oracle, state
        self.interval = 10 if oracle.problem.x.is_cuda else 1

    @property
    def oracle(self) -> Oracle:
        """The oracle of the rows, for the next phase."""
        return self._oracle

    @property
    def incumbents(self) -> Incumbents:
        """What is known of the rows."""
        return self._oracle.incumbents

    @property
    def state(self) -> Any:
        """The attack's state of the rows."""
        return self._state

    def go(self, steps: int) -> None:
        """Take some steps."""
        for _ in range(steps):
            self._state = one_step(self.attack, self._oracle, self._state)

    def worth(self, alive: int, rows: int) -> bool:
        """Return whether to send the finished rows away now."""
        return alive < rows if self.interval == 1 else alive <= 0.75 * rows

    def take(self, keep: Tensor) -> "Steps":
        """Go on with some of the rows; mostly the same object."""
        self._oracle.take(keep)
        self._state = take(self._state, keep)
        return self


class Phase:
    """A phase of an attack; most attacks have one, themselves."""

    def __init__(self, attack: Attack) -> None:
        self.attack = attack

    def begin(self, oracle: Oracle, before: Any) -> Steps:
        """Begin a batch, after the state `before` of an earlier phase (None for the first)."""
        state = self.attack.init(oracle) if before is None else self.attack.follow(oracle, before)
        return self._steps(oracle, state)

    def _steps(self, oracle: Oracle, state: Any) -> Steps:
        return Steps(self.attack, oracle, state)


def one_step(attack: Attack, oracle: Oracle, state: Any) -> Any:
    """Take a step of the attack; retire rows that are done and count the step."""
    alive = oracle.incumbents.alive
    new = attack.step(oracle.iteration - oracle.first, state, oracle)
    if attack.keeps_own:
        # A row that has left may still be stepped for a while; its answer is the one it left with.
        new = replace(new, own=torch.where(per_row(alive, new.own), new.own, state.own))
    done, spent = getattr(new, "done", None), attack.spent(oracle.incumbents)
    oracle.retire(done if spent is None else spent if done is None else done | spent)
    oracle.iteration = oracle.iteration + 1
    return new


def search(phases: Sequence[Phase], oracle: Oracle, compact: bool, recheck: Recheck | None, advance: Advance) -> Found:
    """Step through the phases until every row has its answer or the steps are spent.

    `recheck` looks at new records before rows may leave with them, where the search itself is not to be trusted.
    """
    problem = oracle.problem
    rows = torch.arange(len(problem), device=problem.x.device)
    keeps_own = phases[0].attack.keeps_own
    found = Found(take(oracle.incumbents, rows), problem.domain.x.clone() if keeps_own else None)
    done, total = 0, sum(phase.attack.iterations for phase in phases)
    state, end, left = None, 0, len(rows)
    looks = Looks()
    for phase in phases:
        oracle.first = done
        steps = phase.begin(oracle, state)
        end += phase.attack.iterations
        while True:
            if recheck is not None:
                everyone = looks.due() or done == end
                _rechecked(phase.attack, problem.take(rows), steps.incumbents, recheck, everyone)
            if done == end:
                break
            alive = steps.incumbents.alive.clone()
            left = int(alive.sum())
            if left == 0:
                break
            if compact and steps.worth(left, len(rows)):
                _write(found, rows, steps, ~alive)
                advance((len(rows) - left) * (1 - done / total))
                rows = rows[alive]
                steps = steps.take(alive)
            count = (end - done - 1) % steps.interval + 1  # a short turn comes first: see below
            steps.go(count)
            done += count
            advance(len(rows) * count / total)
        if left == 0 or done == total:
            break
        # Without a look at who is left: a device is still at the last turn while the host prepares the next phase.
        oracle, state = steps.oracle, steps.state
    _write(found, rows, steps, torch.ones_like(rows, dtype=torch.bool))
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
        """Count a look; return whether the records of all rows are confirmed at it."""
        self.count += 1
        if self.count < self.next:
            return False
        self.next = max(self.count + 1, self.count * 5 // 4)
        return True


def _rechecked(phase: Attack, problem: Problem, incumbents: Incumbents, recheck: Recheck, everyone: bool) -> None:
    """Confirm new records, in place: everybody's, or only of rows that are about to leave or have nothing confirmed.

    That asks too, and a row that goes on for it may have nothing left to ask.
    """
    if everyone:
        recheck(problem, incumbents)
    else:
        assert incumbents.confirmed_l0 is not None  # in every search that needs to confirm
        urgent = ~incumbents.alive | (incumbents.confirmed_l0 > problem.sites)
        rows = (urgent & (incumbents.best_cost < incumbents.confirmed_worth)).nonzero().squeeze(1)
        if not len(rows):
            return
        part = take(incumbents, rows)
        recheck(problem.take(rows), part)
        each(lambda held, new: held.index_copy_(0, rows, new), incumbents, part)
    spent = phase.spent(incumbents)
    if spent is not None:
        incumbents.alive &= ~spent


def _write(found: Found, rows: Tensor, steps: Steps, which: Tensor) -> None:
    """Copy what is known of some rows to their places."""
    places = rows[which]
    found.incumbents = put(found.incumbents, places, take(steps.incumbents, which))
    if found.own is not None:
        found.own[places] = steps.state.own[which]
