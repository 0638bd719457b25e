"""The search of one batch: step, let finished rows leave, go on with the rest, phase after phase."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sigmazero.core.attack import Attack, Fork
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.ops import per_row, put, take
from sigmazero.core.oracle import Oracle

Advance = Callable[[float], None]  # moves a progress bar


def ignore(amount: float) -> None:
    """Move no bar."""
    del amount


class Steps:
    """Takes the steps of a phase for a batch, one by one.

    On a CPU a finished row leaves at once; on a device the host looks at the rows every `interval` steps.
    """

    oracle: Oracle  # of the rows, for the next phase
    state: Any  # of the attack

    def __init__(self, attack: Attack, oracle: Oracle, state: Any) -> None:
        self.attack, self.oracle, self.state = attack, oracle, state
        self.interval = 10 if oracle.problem.x.is_cuda else 1

    @property
    def incumbents(self) -> Incumbents:
        """Return what is known of the rows."""
        return self.oracle.incumbents

    def go(self, steps: int) -> None:
        """Take some steps."""
        for _ in range(steps):
            self.state = one_step(self.attack, self.oracle, self.state)

    def pays(self, alive: int, rows: int) -> bool:
        """Return whether to send the finished rows away now."""
        return alive < rows if self.interval == 1 else alive <= 0.75 * rows

    def take(self, keep: Tensor) -> "Steps":
        """Go on with some of the rows."""
        self.oracle.take(keep)
        self.state = take(self.state, keep)
        return self


class Phase:
    """A phase of an attack; most attacks have one, themselves."""

    def __init__(self, attack: Attack) -> None:
        self.attack = attack

    def begin(self, oracle: Oracle, before: Any) -> Steps:
        """Begin a batch, after the state `before` of an earlier phase (None for the first)."""
        state = self.attack.init(oracle) if before is None else self.attack.follow(oracle, before)
        if (spent := over_limit(self.attack, oracle)) is not None:
            oracle.incumbents.alive = oracle.incumbents.alive & ~spent
        return self.steps(oracle, state)

    def steps(self, oracle: Oracle, state: Any) -> Steps:
        """Return what takes the steps of this phase."""
        return Steps(self.attack, oracle, state)


def over_limit(attack: Attack, oracle: Oracle) -> Tensor | None:
    """Return which samples could exceed the attack's limit by another step and the verification, if it has one."""
    if attack.limit is None:
        return None
    queries = oracle.incumbents.forwards + oracle.incumbents.backwards
    return queries > attack.limit - attack.step_cost - oracle.problem.reserve


def one_step(attack: Attack, oracle: Oracle, state: Any) -> Any:
    """Take a step of the attack, end the samples that are done, and count the step."""
    alive = oracle.incumbents.alive
    new = attack.step(oracle.iteration - oracle.first, state, oracle)
    if attack.keeps_own:
        # A row that has left may still be stepped for a while; its answer is the one it left with.
        new = replace(new, own=torch.where(per_row(alive, new.own), new.own, state.own))
    done, spent = getattr(new, "done", None), over_limit(attack, oracle)
    oracle.retire(done if spent is None else spent if done is None else done | spent)
    oracle.iteration = oracle.iteration + 1
    return new


def search(phases: Sequence[Phase | Fork], oracle: Oracle, advance: Advance) -> Incumbents:
    """Step through the phases until every row has its answer or the steps are spent; return what is known then."""
    problem = oracle.problem
    rows = torch.arange(len(problem), device=problem.x.device)
    found = take(oracle.incumbents, rows)
    if isinstance(phases[0], Phase) and phases[0].attack.keeps_own:
        found.own = problem.domain.x.clone()
    batch = _Search(found, advance, longest(phases))
    batch.go(phases, oracle, None, rows, 0)
    return batch.found


def longest(phases: Sequence[Phase | Fork]) -> int:
    """Return the most steps that a row may take."""
    return sum(max(map(longest, p.ways)) if isinstance(p, Fork) else p.attack.iterations for p in phases)


@dataclass
class _Search:
    """The search of a batch, some rows of which may part from the others; `total` counts the longest way's steps."""

    found: Incumbents
    advance: Advance
    total: int

    def go(self, phases: Sequence[Phase | Fork], oracle: Oracle, state: Any, rows: Tensor, done: int) -> None:
        """Take some rows through the phases that are left, after `done` steps."""
        end, last = done, done + longest(phases)
        steps: Steps | None = None
        for phase in phases:
            if isinstance(phase, Fork):
                assert steps is not None  # a fork follows a phase
                self.part(phase, steps, rows, done)
                return
            oracle.first = done
            steps = phase.begin(oracle, state)
            end += phase.attack.iterations
            left = len(rows)
            while done < end:
                alive = steps.incumbents.alive.clone()
                left = int(alive.sum())
                if left == 0:
                    break
                if steps.pays(left, len(rows)):
                    self.end(rows, steps, ~alive, done)
                    rows = rows[alive]
                    steps = steps.take(alive)
                count = (end - done - 1) % steps.interval + 1  # a short turn comes first: see below
                steps.go(count)
                done += count
                self.advance(len(rows) * count / self.total)
            if left == 0 or done == last:
                break
            # Without asking who is left: a device is still at the last turn while the host prepares the next phase.
            oracle, state = steps.oracle, steps.state
        if steps is not None:
            self.end(rows, steps, torch.ones_like(rows, dtype=torch.bool), done)

    def part(self, fork: Fork, steps: Steps, rows: Tensor, done: int) -> None:
        """Take each row the way that is chosen for it; finished ones leave."""
        oracle, state, alive = steps.oracle, steps.state, steps.incumbents.alive.clone()
        self.end(rows, steps, ~alive, done)
        chosen = fork.chosen(state)
        for way, mine in zip(fork.ways, (alive & chosen, alive & ~chosen), strict=True):
            places = mine.nonzero().squeeze(1)
            if len(places):
                self.go(way, oracle.part(places), take(state, places), rows[places], done)

    def end(self, rows: Tensor, steps: Steps, which: Tensor, done: int) -> None:
        """Keep what is known of some rows, which leave after `done` steps."""
        places, leaving = rows[which], take(steps.incumbents, which)
        if self.found.own is not None and leaving.own is None:
            leaving.own = steps.state.own[which]
        self.found = put(self.found, places, leaving)
        self.advance(len(places) * (1 - done / self.total))
