"""A step recorded once as a CUDA graph and replayed: the host no longer launches its hundred small kernels.

A frame holds, for one number of rows, the tensors a recorded step reads and writes. Batches of fewer rows are padded
with rows that are not alive. Frames are kept as long as the session: later batches replay what earlier ones recorded.
The step before a recording, in which libraries choose their kernels, is a step of the search like any other.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.batched import each, take
from sigmazero.core.domain import ENDS
from sigmazero.core.oracle import Oracle
from sigmazero.core.problem import Problem
from sigmazero.core.tally import Tally
from sigmazero.run.compiled import Compiler
from sigmazero.run.memory import out_of_memory
from sigmazero.run.steppers import Eager, Stepper, one_step

log = logging.getLogger(__name__)
StepFunction = Callable[[Attack, Oracle, Any], Any]
_SMALLEST = 16  # rows; below this a replay takes as long as with fewer


def _nothing() -> AbstractContextManager[None]:
    return nullcontext()


class Unrecordable(RuntimeError):
    """A step cannot be recorded. It has been taken once all the same: `frame` holds the rows after it."""

    def __init__(self, reason: str, frame: "Frame") -> None:
        super().__init__(reason)
        self.frame = frame


class Recordings:
    """What all recordings on one model share: they are replayed one at a time, so one pool of memory serves them all.

    The pool lives as long as this object. After memory ran out the recordings are dropped with their pool, and others
    are made in a new one: a pool whose recordings are all gone is gone too, and its handle must not be used again.
    """

    def __init__(self, compiler: Compiler, insist: bool = False) -> None:
        """`insist` makes a step that cannot be recorded an error."""
        self.pool: Any = None
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.compiler, self.insist = compiler, insist
        self.made = 0  # how many steps were recorded

    def begin(self, frame: "Frame") -> None:
        """Record a frame for the first time."""
        self.compiler.begin(frame)

    def look(self, frame: "Frame", left: int) -> None:
        """Now and then, between the steps of a frame that has some left: it may be worth compiling."""
        if self.compiler.watches(frame) and (milliseconds := frame.watch.milliseconds()) is not None:
            self.compiler.look(frame, milliseconds, left)

    def record(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """What `work` launches, as a graph. Not with torch.cuda.graph, which waits for the device."""
        if self.made == 0:
            # A recording that failed has left a pool that nobody uses, and torch does not take such a one again.
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            # What other threads do meanwhile on the device is none of this recording's business.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        self.made += 1
        return graph


class Frame:
    """The recorded step of one batch size, and its tensors."""

    def __init__(self, attack: Attack, oracle: Oracle, state: Any, shared: Recordings) -> None:
        """Take over an oracle and a state that nobody else writes to."""
        self.attack, self.rows, self.shared = attack, len(oracle.problem), shared
        self.oracle, self.state = oracle, state
        self.oracle.problem = _owned(oracle.problem)
        self.oracle.iteration = oracle.iteration.clone()
        self.step: StepFunction = one_step
        self.unasked = 0  # steps taken to record that nobody has asked for
        self.watch = Stopwatch()

    def record(self, *, compiled: bool = False, fused: bool = False) -> None:
        """Take one step, then record; `fused` has the attack's own arithmetic compiled, as the model is if `compiled`.

        The compiler works in steps before, which are thrown away; during a recording it could not.
        """
        before = self.step, self.oracle
        trials, variants = 0, _nothing
        if compiled or fused:
            from sigmazero.run import fused as compiler  # loads that of torch

            trials, variants = compiler.TRIALS, compiler.many_variants
            if fused:
                self.step, self.oracle = compiler.compiled_step(self.attack), compiler.FusedOracle.like(self.oracle)
        try:
            with variants():
                for _ in range(trials):
                    self.rehearse(self.attack.unroll)
                self._advance(1)
                self.unasked += 1
                self._recorded()
        except Exception:
            self.step, self.oracle = before
            raise

    def _recorded(self) -> None:
        try:
            self._capture()
        except RuntimeError as error:
            if out_of_memory(error):
                raise
            raise Unrecordable(str(error).splitlines()[0], self) from error

    def rehearse(self, steps: int = 1) -> None:
        """Steps that are thrown away."""
        with self._own_tensors():
            state = self.state
            for _ in range(steps):
                state = self.step(self.attack, self.oracle, state)

    def _capture(self) -> None:
        try:
            self.graph = self.shared.record(self._unrolled)
            return
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
            self.oracle.forget()
        # What the step before left in the allocator's cache is out of a recording's reach. Not inside the handler: that
        # keeps the tensors of the first try.
        torch.cuda.empty_cache()
        self.graph = self.shared.record(self._unrolled)

    def _unrolled(self) -> None:
        self._advance(self.attack.unroll)

    def _advance(self, steps: int) -> None:
        """Step, and copy what came out over what went in."""
        with self._own_tensors() as (tally, iteration):
            state = self.state
            for _ in range(steps):
                state = self.step(self.attack, self.oracle, state)
            new = [*_tensors(self.oracle.tally), *_tensors(state), self.oracle.iteration]
            _overwrite([*_tensors(tally), *_tensors(self.state), iteration], new)

    @contextmanager
    def _own_tensors(self) -> Iterator[tuple[Tally, Tensor]]:
        """The frame's tensors, which the oracle has again afterwards: a step puts new ones in their places."""
        tally, iteration = self.oracle.tally, self.oracle.iteration
        self.oracle.tally = replace(tally)
        try:
            yield tally, iteration
        finally:
            self.oracle.tally, self.oracle.iteration = tally, iteration

    def go(self, steps: int) -> None:
        """Replay as often as the recording fits, and step the rest."""
        with self.watch.timed(steps // self.attack.unroll * self.attack.unroll, self.oracle.problem.x.device):
            for _ in range(steps // self.attack.unroll):
                self.graph.replay()
        for _ in range(steps % self.attack.unroll):
            self._advance(1)

    def load(self, problem: Problem, tally: Tally, state: Any, iteration: Tensor) -> None:
        """Put rows in; what is left of the frame repeats the first row and is not alive."""
        n, mine = len(problem), self.oracle.problem
        by_row = [(self.oracle.tally, tally), (self.state, state)]
        pairs = [pair for held, new in by_row for pair in zip(_tensors(held), _tensors(new), strict=True)]
        for held, new, common in zip(_parts(mine), _parts(problem), _common(mine), strict=True):
            for name, tensor in _named(held).items():
                if name in common:
                    tensor.copy_(getattr(new, name))  # one box for all rows
                else:
                    pairs.append((tensor, getattr(new, name)))
        for held, new in pairs:
            held[:n] = new
            held[n:] = new[:1]
        self.oracle.tally.alive[n:] = False
        self.oracle.iteration.copy_(iteration)

    def part(self, rows: int) -> Oracle:
        """The first rows, as an oracle of their own."""
        mine = self.oracle.part(torch.arange(rows, device=self.oracle.problem.x.device))
        mine.iteration = self.oracle.iteration.clone()
        return mine


class Frames:
    """The frames of a phase, by number of rows."""

    def __init__(self, attack: Attack, size: int, shared: Recordings) -> None:
        self.attack, self.size, self.shared = attack, size, shared
        self.recordable = True  # until a recording fails
        self.left = self.later = 0  # steps to take for the batch at hand, and for all later ones
        self._frames: dict[int, Frame] = {}

    def bucket(self, rows: int) -> int:
        """The number of rows of the frame that would hold this many."""
        size = self.size
        while size // 2 >= max(rows, _SMALLEST):
            size //= 2
        return max(size, rows)

    def hold(self, oracle: Oracle, state: Any) -> Frame:
        """A frame with these rows in it, recorded now if there is none of the size."""
        size = self.bucket(len(oracle.problem))
        frame = self._frames.get(size)
        if frame is not None:
            frame.load(oracle.problem, oracle.tally, state, oracle.iteration)
            frame.unasked = 0  # those were steps of other rows
            return frame
        rows = len(oracle.problem)
        padded = torch.arange(size, device=oracle.problem.x.device).clamp(max=rows - 1)
        frame = Frame(self.attack, oracle.part(padded), take(state, padded), self.shared)
        frame.oracle.tally.alive[rows:] = False
        self.shared.begin(frame)
        self._frames[size] = frame
        return frame


def stepper(frames: Frames, oracle: Oracle, state: Any, ahead: int = 0) -> Stepper:
    """A stepper that replays a recording; one by one, after a word, where the step cannot be recorded."""
    rows = len(oracle.problem)
    try:
        return Captured(frames, oracle, state, ahead)
    except Unrecordable as error:
        if frames.shared.insist:
            raise
        frames.recordable = False
        log.warning("stepping eagerly: the step could not be captured (%s)", error)
        # Steps before the recording were taken, counted and are not taken again.
        return Eager(frames.attack, error.frame.part(rows), _head(error.frame.state, rows), ahead + error.frame.unasked)


class Stopwatch:
    """How long the last steps took on a device, without waiting for them."""

    def __init__(self) -> None:
        self._events: tuple[Any, Any] | None = None
        self._steps = 0

    @contextmanager
    def timed(self, steps: int, device: torch.device) -> Iterator[None]:
        """Time some steps."""
        if not steps or device.type != "cuda":
            yield
            return
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        first.record()
        yield
        last.record()
        self._events, self._steps = (first, last), steps

    def milliseconds(self) -> float | None:
        """Milliseconds per step, once they are all taken."""
        if self._events is None or not self._events[1].query():
            return None
        elapsed: float = self._events[0].elapsed_time(self._events[1])
        self._events = None
        return elapsed / self._steps


class Captured:
    """Replays a recorded step; the host looks at the rows only now and then."""

    def __init__(self, frames: Frames, oracle: Oracle, state: Any, ahead: int = 0) -> None:
        self.frames = frames
        self.interval = max(10, 5 * frames.attack.unroll)
        self.rows = len(oracle.problem)
        self.frame = frames.hold(oracle, state)
        self.ahead = ahead  # steps taken that nobody has asked for yet

    @property
    def oracle(self) -> Oracle:
        """The rows' own part of the frame, as an oracle."""
        return self.frame.part(self.rows)

    @property
    def tally(self) -> Tally:
        """What is known of the rows."""
        held: Tally = _head(self.frame.oracle.tally, self.rows)
        return held

    @property
    def state(self) -> Any:
        """The attack's state of the rows."""
        return _head(self.frame.state, self.rows)

    def go(self, steps: int) -> None:
        """Take some steps."""
        frames = self.frames
        whole = self.frame.rows == frames.size  # later batches begin in the largest frame
        frames.shared.look(self.frame, frames.left + (frames.later if whole else 0))
        self.ahead, self.frame.unasked = self.ahead + self.frame.unasked, 0
        left = steps - self.ahead
        self.ahead = max(-left, 0)
        self.frame.go(max(left, 0))
        frames.left -= steps

    def worth(self, alive: int, rows: int) -> bool:
        """Whether a smaller frame holds the rows that are left."""
        return self.frames.bucket(alive) < self.frame.rows

    def take(self, keep: Tensor) -> Stepper:
        """Move some of the rows to a smaller frame."""
        mine, state = self.oracle, take(self.state, keep)
        mine.take(keep)
        ahead, self.frame.unasked = self.ahead + self.frame.unasked, 0
        return stepper(self.frames, mine, state, ahead)


def _owned(problem: Problem) -> Problem:
    """The same question in tensors that a frame may write to; only the start of an attack looks at the pool."""
    # Rows were copied when they were taken; ends that hold for all rows were not.
    domain = problem.domain
    ends: dict[str, Any] = {} if domain.per_sample else {k: t.clone() for k, t in _named(domain).items() if k in ENDS}
    return replace(problem, pool=None, domain=replace(domain, **ends))


def _parts(problem: Problem) -> tuple[Any, ...]:
    return problem, problem.goal, problem.domain


def _common(problem: Problem) -> tuple[tuple[str, ...], ...]:
    """Names of the tensors of each part that have one row for all samples."""
    return (), (), () if problem.domain.per_sample else ENDS


def _named(rows_of: Any) -> dict[str, Tensor]:
    """The tensors of a dataclass by name; only the start of an attack looks at the pool."""
    values = {f.name: getattr(rows_of, f.name) for f in fields(rows_of) if f.name != "pool"}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}


def _tensors(rows_of: Any) -> list[Tensor]:
    """The tensors of a dataclass, in order, and of those it holds."""
    found: list[Tensor] = []
    for value in (getattr(rows_of, f.name) for f in fields(rows_of)):
        found += [value] if isinstance(value, Tensor) else _tensors(value) if is_dataclass(value) else []
    return found


def _head(rows_of: Any, n: int) -> Any:
    """The first rows, without a copy."""
    return each(lambda v: v[:n], rows_of)


def _overwrite(mine: list[Tensor], new: list[Tensor]) -> None:
    """Copy new values into their places, as if all at once."""
    own = {t.untyped_storage().data_ptr() for t in mine}
    pairs = [(to, t) for to, t in zip(mine, new, strict=True) if t is not to]
    # A state that hands an old tensor on under another name would read what was just overwritten.
    pairs = [(to, t.clone() if t.untyped_storage().data_ptr() in own else t) for to, t in pairs]
    for group in _by_type(pairs):
        torch._foreach_copy_([to for to, _ in group], [t for _, t in group])


def _by_type(pairs: list[tuple[Tensor, Tensor]]) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Groups that one kernel can copy."""
    for dtype in {to.dtype for to, _ in pairs}:
        yield [(to, t) for to, t in pairs if to.dtype == dtype]
