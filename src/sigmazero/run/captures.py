"""Steps captured as CUDA graphs and replayed, so that the host does not launch a step's hundred small kernels.

A frame holds, for one number of rows, the tensors that a captured step reads and writes. Batches of fewer rows are
padded with rows that are not alive. Frames live as long as the session: later batches replay what earlier ones
captured. Before a capture some steps are taken and thrown away: in them, libraries choose their kernels.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from sigmazero.core.attack import Attack
from sigmazero.core.domain import ENDS
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.ops import each, take
from sigmazero.core.oracle import Model, Oracle
from sigmazero.core.problem import Problem
from sigmazero.run.memory import out_of_memory
from sigmazero.run.search import Phase, Steps, one_step

log = logging.getLogger(__name__)
_SMALLEST = 16  # rows; below this a replay takes as long as with fewer
_MAX_SHAPES = 3  # compilations for one step: each takes seconds
_REHEARSALS = 2  # replays' worth of steps in which the compiler works
_MAX_VARIANTS = 256  # of one compiled model; by default the compiler gives up at the eighth


class CaptureError(RuntimeError):
    """A step cannot be captured."""


class GraphPool:
    """The memory that all captured steps on one model share: they are replayed one at a time.

    After memory ran out, the captured steps are dropped with their pool. Others are made in a new pool: a pool whose
    graphs are all gone is gone too, and its handle must not be used again.
    """

    def __init__(self, insist: bool = False) -> None:
        """Make an empty pool; `insist` makes a step that cannot be captured an error."""
        self.pool: Any = None
        self.stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self.insist = insist
        self.made = 0  # graphs captured so far

    def capture(self, work: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Return what `work` launches, as a graph; torch.cuda.graph would wait for the device."""
        if self.made == 0:
            # A capture that failed has left an unused pool, which torch does not take again.
            self.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            # Other threads may use the device meanwhile.
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        torch.cuda.current_stream().wait_stream(self.stream)
        self.made += 1
        return graph


class CompiledModel:
    """A compiled model for the first few shapes that it is asked about, and the model as it is for others."""

    def __init__(self, model: Model, compiled: Model) -> None:
        self.model, self.compiled = model, compiled
        self.shapes: set[tuple[int, bool]] = set()  # number of rows, and whether with gradients

    def __call__(self, x: Tensor) -> Tensor:
        """Ask."""
        shape = len(x), torch.is_grad_enabled()
        if len(self.shapes) < _MAX_SHAPES:
            self.shapes.add(shape)
        return self.compiled(x) if shape in self.shapes else self.model(x)


class Frame:
    """The captured step of one batch size, and its tensors."""

    def __init__(self, attack: Attack, oracle: Oracle, state: Any, pool: GraphPool) -> None:
        """Take over an oracle and a state of its own."""
        self.attack, self.rows, self.pool = attack, len(oracle.problem), pool
        self.oracle, self.state, self.model = oracle, state, oracle.model
        self.oracle.problem = _owned(oracle.problem)
        self.oracle.iteration = oracle.iteration.clone()

    def capture(self, compiled: Model | None = None) -> None:
        """Rehearse the step, then capture it; with the model compiled, where that works."""
        if compiled is None or not self._capture_compiled(compiled):
            self._rehearse(1)
            self._capture()

    def _capture_compiled(self, compiled: Model) -> bool:
        """Capture with a compiled model; return False, and leave all as before, where that does not work."""
        import torch._dynamo  # loads the compiler

        self.oracle.model = CompiledModel(self.model, compiled)
        try:
            with torch._dynamo.config.patch(recompile_limit=_MAX_VARIANTS):
                self._rehearse(_REHEARSALS * self.attack.unroll)
                self._capture()
        except Exception as error:  # the compiler raises what it likes about what it cannot handle
            self.oracle.model = self.model
            log.warning("the model is searched uncompiled (%s)", (str(error).splitlines() or [repr(error)])[0])
            log.debug("the error of the compiler", exc_info=True)
        else:
            return True
        if self.oracle.problem.x.is_cuda:
            torch.cuda.empty_cache()  # it may have been memory that was missing; outside the handler, which holds it
        return False

    def _rehearse(self, steps: int) -> None:
        """Take steps that are thrown away: they change and count nothing."""
        with self._own_tensors():
            state = self.state
            for _ in range(steps):
                state = one_step(self.attack, self.oracle, state)

    def _capture(self) -> None:
        for last in (False, True):
            try:
                self._graph()
                return
            except RuntimeError as error:
                if not out_of_memory(error):
                    raise CaptureError(str(error).splitlines()[0]) from error
                if last:
                    raise
                self.oracle.forget()
            # A capture cannot use what the rehearsal left in the allocator's cache. This is outside the handler, which
            # keeps the tensors of the first try.
            torch.cuda.empty_cache()

    def _graph(self) -> None:
        self.graph = self.pool.capture(lambda: self._advance(self.attack.unroll))

    def _advance(self, steps: int) -> None:
        """Take steps, and copy the results over the inputs."""
        with self._own_tensors() as (incumbents, iteration):
            state = self.state
            for _ in range(steps):
                state = one_step(self.attack, self.oracle, state)
            new = [*_tensors(self.oracle.incumbents), *_tensors(state), self.oracle.iteration]
            _overwrite([*_tensors(incumbents), *_tensors(self.state), iteration], new)

    @contextmanager
    def _own_tensors(self) -> Iterator[tuple[Incumbents, Tensor]]:
        """Give the oracle its tensors back afterwards: a step puts new ones in their places."""
        incumbents, iteration = self.oracle.incumbents, self.oracle.iteration
        self.oracle.incumbents = replace(incumbents)
        try:
            yield incumbents, iteration
        finally:
            self.oracle.incumbents, self.oracle.iteration = incumbents, iteration

    def go(self, steps: int) -> None:
        """Replay as often as the captured steps fit, and step the rest."""
        for _ in range(steps // self.attack.unroll):
            self.graph.replay()
        for _ in range(steps % self.attack.unroll):
            self._advance(1)

    def load(self, problem: Problem, incumbents: Incumbents, state: Any, iteration: Tensor) -> None:
        """Put rows in; what is left of the frame repeats the first row and is not alive."""
        n, own_problem = len(problem), self.oracle.problem
        mine = [*_inputs(own_problem), *_tensors(self.oracle.incumbents), *_tensors(self.state)]
        for own, new in zip(mine, [*_inputs(problem), *_tensors(incumbents), *_tensors(state)], strict=True):
            if len(own) == self.rows:
                own[:n], own[n:] = new, new[:1]
            else:
                own.copy_(new)  # one box for all rows
        self.oracle.incumbents.alive[n:] = False
        self.oracle.iteration.copy_(iteration)

    def part(self, rows: int) -> Oracle:
        """Return an oracle of the first rows, which asks the model uncompiled."""
        mine = self.oracle.part(torch.arange(rows, device=self.oracle.problem.x.device))
        mine.iteration, mine.model = self.oracle.iteration.clone(), self.model
        return mine


class Captures(Phase):
    """A phase whose steps are captured, by number of rows; `compiled` is the model for frames of a whole batch."""

    def __init__(self, attack: Attack, size: int, pool: GraphPool, compiled: Model | None = None) -> None:
        super().__init__(attack)
        self.size, self.pool, self.compiled = size, pool, compiled
        self.works = True  # until a capture fails
        self._frames: dict[int, Frame] = {}

    def bucket(self, rows: int) -> int:
        """Return the number of rows of the frame that would hold this many."""
        size = self.size
        while size // 2 >= max(rows, _SMALLEST):
            size //= 2
        return max(size, rows)

    def hold(self, oracle: Oracle, state: Any) -> Frame:
        """Return a frame with these rows in it, captured now if there is none of the size."""
        rows, size = len(oracle.problem), self.bucket(len(oracle.problem))
        frame = self._frames.get(size)
        if frame is not None:
            frame.load(oracle.problem, oracle.incumbents, state, oracle.iteration)
            return frame
        padded = torch.arange(size, device=oracle.problem.x.device).clamp(max=rows - 1)
        frame = Frame(self.attack, oracle.part(padded), take(state, padded), self.pool)
        frame.oracle.incumbents.alive[rows:] = False
        frame.capture(self.compiled if size == self.size else None)
        self._frames[size] = frame
        return frame

    def steps(self, oracle: Oracle, state: Any) -> Steps:
        """Replay a captured step; where it cannot be captured, log why and step eagerly."""
        if self.works:
            try:
                return CapturedSteps(self, oracle, state)
            except CaptureError as error:
                if self.pool.insist:
                    raise
                self.works = False
                log.warning("stepping eagerly: the step could not be captured (%s)", error)
        return super().steps(oracle, state)


class CapturedSteps(Steps):
    """Replays a captured step; the host looks at the rows only now and then."""

    def __init__(self, captures: Captures, oracle: Oracle, state: Any) -> None:
        self.captures, self.rows = captures, len(oracle.problem)
        self.interval = max(10, 5 * captures.attack.unroll)
        self.frame = captures.hold(oracle, state)

    @property
    def oracle(self) -> Oracle:  # type: ignore[override]
        """Return an oracle of the rows in the frame."""
        return self.frame.part(self.rows)

    @property
    def incumbents(self) -> Incumbents:
        """Return what is known of the rows."""
        own: Incumbents = _head(self.frame.oracle.incumbents, self.rows)
        return own

    @property
    def state(self) -> Any:
        """Return the attack's state of the rows."""
        return _head(self.frame.state, self.rows)

    def go(self, steps: int) -> None:
        """Take some steps."""
        self.frame.go(steps)

    def pays(self, alive: int, rows: int) -> bool:
        """Return whether a smaller frame holds the rows that are left."""
        return self.captures.bucket(alive) < self.frame.rows

    def take(self, keep: Tensor) -> Steps:
        """Move some of the rows to a smaller frame."""
        mine, state = self.oracle, take(self.state, keep)
        mine.take(keep)
        return self.captures.steps(mine, state)


def _owned(problem: Problem) -> Problem:
    """Return the same question in tensors that a frame may write to; only the start of an attack looks at the pool."""
    # Rows were copied when they were taken; ends that hold for all rows were not.
    domain = problem.domain
    ends = {} if domain.per_sample else {name: getattr(domain, name) for name in ENDS}
    copies: dict[str, Any] = {name: end.clone() for name, end in ends.items() if end is not None}
    return replace(problem, pool=None, domain=replace(domain, **copies))


def _inputs(problem: Problem) -> list[Tensor]:
    """Return the tensors of a question, in order, without the pool."""
    parts: tuple[Any, ...] = (problem, problem.goal, problem.domain)
    values = [getattr(part, f.name) for part in parts for f in fields(part) if f.name != "pool"]
    return [value for value in values if isinstance(value, Tensor)]


def _tensors(rows_of: Any) -> list[Tensor]:
    """Return the tensors of a dataclass, in order, with those of dataclasses inside it."""
    found: list[Tensor] = []
    for value in (getattr(rows_of, f.name) for f in fields(rows_of)):
        found += [value] if isinstance(value, Tensor) else _tensors(value) if is_dataclass(value) else []
    return found


def _head(rows_of: Any, n: int) -> Any:
    """Return the first rows, without a copy."""
    return each(lambda v: v[:n], rows_of)


def _overwrite(mine: list[Tensor], new: list[Tensor]) -> None:
    """Copy new values into their places, as if all at once."""
    own = {t.untyped_storage().data_ptr() for t in mine}
    pairs = [(to, t) for to, t in zip(mine, new, strict=True) if t is not to]
    # A state that hands an old tensor on under another name would read what was just overwritten.
    pairs = [(to, t.clone() if t.untyped_storage().data_ptr() in own else t) for to, t in pairs]
    for dtype in {to.dtype for to, _ in pairs}:  # one kernel copies all of a type
        some = [(to, t) for to, t in pairs if to.dtype == dtype]
        torch._foreach_copy_([to for to, _ in some], [t for _, t in some])
