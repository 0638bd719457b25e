"""A model made ready for searches: the copy that they ask, and the steps recorded on it, for all who search it."""

import logging
from collections.abc import Hashable, Sequence
from typing import Any

from torch import Tensor

from sigmazero.core.ability import Ability, ability_of
from sigmazero.core.attack import Attack
from sigmazero.core.oracle import Model, Oracle
from sigmazero.core.problem import Problem
from sigmazero.run.compiled import Compiler, SearchModel
from sigmazero.run.copies import search_copy
from sigmazero.run.graphs import Frames, Recordings, stepper
from sigmazero.run.hardware import Hardware
from sigmazero.run.numbers import Numbers
from sigmazero.run.precision import OwnCopy, search_numbers
from sigmazero.run.steppers import Eager, Stepper

log = logging.getLogger(__name__)
_WORTH_RECORDING = 4  # recordings' worth of steps; fewer cost less than a recording


class Prepared:
    """Holds what is made once for a model and a number format; sessions of several attacks may share it.

    Steps are recorded per attack and question: two problems that differ in nothing but their rows share recordings.
    """

    def __init__(self, model: Model, hardware: Hardware) -> None:
        self.model, self.hardware = model, hardware if ability_of(model) == "gradients" else hardware.plain()
        self._copy: SearchModel | None = None
        self.batches_left = 0  # after the one at hand, as far as is known
        self.numbers: Numbers | None = None  # of the caller; all that is made here was made for them
        self._recordings: Recordings | None = None
        self._phases: dict[Hashable, list[PhaseRunner]] = {}

    def protect(self) -> None:
        """The model writes to its input: give it copies from now on."""
        if not isinstance(self.model, OwnCopy):
            self.close()
            self.model = OwnCopy(self.model)

    def compute_in(self, numbers: Numbers) -> None:
        """These are the caller's numbers from now on: what was made for others is dropped."""
        if numbers != self.numbers:
            self.close()
            self.numbers = numbers

    def copy(self, problem: Problem) -> SearchModel:
        """The model as the search asks it; made when first asked for, which must be while the model is quiet."""
        if self._copy is None:
            hardware, x = self.hardware, problem.x
            caller = self.numbers or Numbers.current(x.device)
            numbers = search_numbers(hardware.precision, caller)
            with numbers.flags():
                made = search_copy(self.model, x, numbers, bf16=hardware.precision == "bf16", prepare=hardware.prepare)
            self._copy = SearchModel(made)
            if hardware.prepare == "compile" and (hardware.capture is False or not x.is_cuda):
                log.info("nothing is compiled: that is for steps recorded on a CUDA device")
        return self._copy

    @property
    def searches_a_copy(self) -> bool:
        """Whether a search has asked something else than the model itself."""
        return self._copy is not None and self._copy.model is not self.model

    @property
    def recordings(self) -> int:
        """How many steps were recorded, and are still held."""
        return 0 if self._recordings is None else self._recordings.made

    def oracle(self, problem: Problem, size: int, shows: Ability = "gradients") -> Oracle:
        """Who asks the copy about a batch of a problem cut into batches of `size`, and shows an attack so much."""
        # Forward-only queries need less memory than the batch with its backward pass: twice the rows at once.
        return Oracle(self.copy(problem), problem, exact=self.exact, chunk=2 * size, shows=shows)

    @property
    def exact(self) -> bool:
        """Whether a search computes in the very numbers in which its records are checked, and in no others."""
        return self.numbers is None or (self.numbers.strictly and self.hardware.strict(self.numbers))

    def phases(self, attack: Attack, problem: Problem, size: int) -> "Sequence[PhaseRunner]":
        """The phases of an attack on a problem cut into batches of `size`, each with who takes its steps."""
        key = (_same_attack(attack), _question(problem), size)
        if key not in self._phases:
            shared = self._shared_recordings(problem)
            self._phases[key] = [PhaseRunner(one, size, self.hardware, shared) for one in attack.phases(problem)]
        for phase in self._phases[key]:
            phase.batches_left = self.batches_left
        return self._phases[key]

    def _shared_recordings(self, problem: Problem) -> Recordings | None:
        if not problem.x.is_cuda or self.hardware.capture is False:
            return None
        if self._recordings is None:
            hardware = self.hardware
            compiler = Compiler(self.copy(problem), hardware.prepare, hardware.fuse)
            self._recordings = Recordings(compiler, insist=bool(hardware.capture))
        return self._recordings

    def forget_recordings(self) -> None:
        """Let go of every recording and of the memory they share; others are made when they are needed."""
        self._phases, self._recordings = {}, None

    def close(self) -> None:
        """Let go of everything but the model itself."""
        self.forget_recordings()
        self._copy = None


class PhaseRunner:
    """Chooses, for each batch, how a phase's steps are taken; its recordings serve all batches."""

    def __init__(self, attack: Attack, size: int, hardware: Hardware, shared: Recordings | None) -> None:
        self.attack = attack
        if hardware.capture and not attack.capturable:
            raise ValueError(
                f"{attack.name} looks at values between its steps and cannot be captured; leave capture out"
            )
        self.batches_left = 0
        worth = attack.capturable and attack.iterations >= _WORTH_RECORDING * attack.unroll
        self.frames = Frames(attack, size, shared) if shared is not None and worth else None

    def begin(self, oracle: Oracle, before: Any) -> Stepper:
        """A stepper for one batch, after the state `before` of an earlier phase."""
        state = self.attack.init(oracle) if before is None else self.attack.follow(oracle, before)
        if self.frames is None or not self.frames.recordable:
            return Eager(self.attack, oracle, state)
        steps = self.attack.iterations
        self.frames.left, self.frames.later = steps, steps * self.batches_left
        return stepper(self.frames, oracle, state)


def _same_attack(attack: Attack) -> Hashable:
    """Equal for attacks with equal parameters, whatever they are called."""
    try:
        hash(attack)
    except TypeError:  # a parameter such as a list: the attack is only itself
        return id(attack)
    return attack


def _question(problem: Problem) -> Hashable:
    """All that a recorded step has built into it besides the rows: equal questions may share recordings."""
    x, goal = problem.domain.x, problem.goal
    least = "per sample" if isinstance(goal.least, Tensor) else goal.least
    started = problem.start is not None
    plain = (goal.name, least, problem.budget, problem.seed, problem.checks, started)
    return (x.dtype, x.device, plain, problem.domain.key())
