"""A step recorded once as a CUDA graph and replayed: the host no longer launches its hundred small kernels.

A frame holds, for one number of rows, the tensors a recorded step reads and writes. Batches of fewer rows are padded
with rows that are not alive. Frames are kept for the whole run, so later batches replay what earlier ones recorded. The
step before a recording, in which libraries choose their kernels, is a step of the search like any other.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sigmazero.core.oracle import Oracle, Tally, each, take
from sigmazero.core.problem import Problem
from sigmazero.run.search import Steps, one_step

_SMALLEST = 16  # rows; below this a replay takes as long as with fewer
_TRIALS = {False: 0, True: 2}  # steps thrown away before a recording, besides the one that counts; fused ones need them


class Frame:
    """The recorded step of one batch size, and its tensors."""

    def __init__(self, step: Callable[[Steps, Oracle, Any], Any], attack: Steps, oracle: Oracle, state: Any) -> None:
        """Take over an oracle and a state that nobody else writes to."""
        self.attack, self.rows = attack, len(oracle.problem)
        self.oracle, self.state = oracle, state
        self.oracle.problem = replace(oracle.problem, pool=None)  # only the start of an attack looks at the pool
        self.oracle.iteration = oracle.iteration.clone()
        self._step = step

    def record(self, trials: int, pool: Any) -> None:
        """Take one step, then record; all recordings of a run use the memory of `pool` in turn."""
        # Every frame and attack is one more variant of the same function for the compiler, which else gives up at 8.
        with torch._dynamo.config.patch(recompile_limit=256):
            for _ in range(trials):
                with self._own_tensors():
                    self._step(self.attack, self.oracle, self.state)
            self._advance(1)
            self._capture(pool)

    def _capture(self, pool: Any) -> None:
        try:
            self.graph = self._recording(pool)
            return
        except torch.OutOfMemoryError:
            self.oracle.forget()
        # What the step before left in the allocator's cache is out of a recording's reach. Not inside the handler: that
        # keeps the tensors of the first try.
        torch.cuda.empty_cache()
        self.graph = self._recording(pool)

    def _recording(self, pool: Any) -> torch.cuda.CUDAGraph:
        """Not with torch.cuda.graph, which waits for the device: it has work while the host records."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=pool)
            try:
                self._advance(self.attack.unroll)
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(stream)
        return graph

    def _advance(self, steps: int) -> None:
        """Step, and copy what came out over what went in."""
        with self._own_tensors() as (tally, iteration):
            state = self.state
            for _ in range(steps):
                state = self._step(self.attack, self.oracle, state)
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
        for _ in range(steps // self.attack.unroll):
            self.graph.replay()
        for _ in range(steps % self.attack.unroll):
            self._advance(1)

    def load(self, problem: Problem, tally: Tally, state: Any, iteration: Tensor) -> None:
        """Put rows in; what is left of the frame repeats the first row and is not alive."""
        n = len(problem)
        mine = replace(problem, pool=None)
        pairs = [(self.oracle.problem, mine), (self.oracle.tally, tally), (self.state, state)]
        for held, rows in pairs:
            for to, new in zip(_tensors(held), _tensors(rows), strict=True):
                if len(to) == self.rows:
                    to[:n] = new
                    to[n:] = new[:1]
        self.oracle.tally.alive[n:] = False
        self.oracle.iteration.copy_(iteration)


class Frames:
    """The frames of a run, by number of rows; all of them step the same attack on the same model."""

    def __init__(self, attack: Steps, size: int, fuse: bool, pool: Any) -> None:
        self.attack, self.size, self.pool, self.trials = attack, size, pool, _TRIALS[fuse]
        # The shapes of a frame never change: compile for each of them, not for all.
        self._step = torch.compile(one_step, dynamic=False) if fuse else one_step
        self._frames: dict[int, Frame] = {}

    def bucket(self, rows: int) -> int:
        """The number of rows of the frame that would hold this many."""
        size = self.size
        while size // 2 >= max(rows, _SMALLEST):
            size //= 2
        return max(size, rows)

    def hold(self, oracle: Oracle, state: Any) -> tuple[Frame, int]:
        """A frame with these rows in it, recorded now if there is none of the size, and the steps that took."""
        size = self.bucket(len(oracle.problem))
        frame = self._frames.get(size)
        if frame is not None:
            frame.load(oracle.problem, oracle.tally, state, oracle.iteration)
            return frame, 0
        rows = len(oracle.problem)
        padded = torch.arange(size, device=oracle.problem.x.device).clamp(max=rows - 1)
        frame = Frame(self._step, self.attack, oracle.part(padded), take(state, padded))
        frame.oracle.tally.alive[rows:] = False
        frame.record(self.trials, self.pool)
        self._frames[size] = frame
        return frame, 1


class Captured:
    """Replays a recorded step; the host looks at the rows only now and then."""

    def __init__(self, attack: Steps, oracle: Oracle, frames: Frames, state: Any) -> None:
        self.frames = frames
        self.interval = max(10, 5 * attack.unroll)
        self.rows = len(oracle.problem)
        self.frame, self.ahead = frames.hold(oracle, state)  # steps taken that nobody has asked for yet

    @property
    def oracle(self) -> Oracle:
        """The rows' own part of the frame, as an oracle."""
        held = self.frame.oracle
        mine = held.part(torch.arange(self.rows, device=held.problem.x.device))
        mine.iteration = held.iteration.clone()
        return mine

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
        left = steps - self.ahead
        self.ahead = max(-left, 0)
        self.frame.go(max(left, 0))

    def worth(self, alive: int, rows: int) -> bool:
        """Whether a smaller frame holds the rows that are left."""
        return self.frames.bucket(alive) < self.frame.rows

    def take(self, keep: Tensor) -> None:
        """Move some of the rows to a smaller frame."""
        mine, state = self.oracle, take(self.state, keep)
        mine.take(keep)
        self.rows = len(mine.problem)
        self.frame, more = self.frames.hold(mine, state)
        self.ahead += more


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
