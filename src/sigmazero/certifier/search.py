"""Branch and bound over subproblems of many inputs at once, until every input is decided.

All subproblems of a batch have one size. For each size the search tries the bounds with the least total cost; their
cost and success are measured.
"""

import itertools
import logging
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from sigmazero.certifier.bounds import Strength
from sigmazero.certifier.regions import MAX_FREE
from sigmazero.certifier.subproblems import Question, SiteGroups, Subproblems, ValueBoxes, join
from sigmazero.run.memory import out_of_memory

log = logging.getLogger(__name__)
VALUES, SITES = 0, 1  # kinds of subproblems
PROBES = 2  # fewest subproblems of a new size on which the full bound is tried; more in large batches
REPORT = 5.0  # seconds after which a search tells which inputs are proved so far
PATIENCE = 1.0  # after this many seconds an input is postponed until the others are done


class OutOfTime(Exception):
    """End a computation whose inputs have no time left."""


class Size(NamedTuple):
    """Kind and size of a subproblem: log2 of the sites of its longest range, or of its share of the values."""

    kind: int
    log2: int

    @property
    def smaller(self) -> "Size":
        """Return the size of the halves."""
        return Size(VALUES, -1) if self == (SITES, 0) else Size(self.kind, self.log2 - 1)


@dataclass
class Queue:
    """Open subproblems, grouped by size so that every batch is full and uniform."""

    waiting: dict[Size, list[Any]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether any subproblem waits."""
        return bool(self.waiting)

    def push(self, size: Size, some: Subproblems) -> None:
        """Add subproblems of one size."""
        if len(some):
            self.waiting.setdefault(size, []).append(some)

    def pop(self, room: int) -> tuple[Size, Any]:
        """Take out a batch of the smallest size that fills one, else of the most frequent size."""
        counts = {size: sum(len(part) for part in parts) for size, parts in self.waiting.items()}
        full = [size for size, count in counts.items() if count >= room]
        size = min(full) if full else min(counts, key=lambda each: (-counts[each], each))
        parts = self.waiting.pop(size)
        taken: list[Any] = []
        while parts and room:
            part = parts.pop()
            if len(part) > room:
                parts.append(part.take(slice(0, len(part) - room)))
                part = part.take(slice(len(part) - room, len(part)))
            taken.append(part)
            room -= len(part)
        if parts:
            self.waiting[size] = parts
        return size, join(taken)


@dataclass
class Tries:
    """Results of one bound at one size."""

    tried: int = 0
    proved: int = 0
    cost: float = math.inf  # least seconds of one try; in small batches the calls alone cost more

    def note(self, tried: int, proved: int, seconds: float) -> None:
        """Add a batch of tries."""
        self.tried, self.proved = self.tried + tried, self.proved + proved
        self.cost = min(self.cost, seconds / tried)

    @property
    def failure(self) -> float:
        """Return the share of tries that failed, never quite 0 or 1."""
        return (self.tried - self.proved + 0.1) / (self.tried + 0.2)


@dataclass
class Strategy:
    """Choose bounds for each size by measured cost and success, for subproblems of t ranges.

    A stronger bound is measured where weaker ones failed. Halving all ranges makes 2^t subproblems, halving a box of
    values two.
    """

    t: int = 1
    scores: dict[Size, dict[Strength, Tries]] = field(default_factory=dict)

    def note(self, size: Size, strength: Strength, tried: int, proved: int, seconds: float) -> None:
        """Add tries."""
        if tried:
            self.scores.setdefault(size, {}).setdefault(strength, Tries()).note(tried, proved, seconds)

    def failure(self, size: Size) -> float:
        """Return the share of subproblems of a size that no bound proves; 1 where nothing was tried."""
        return math.prod(each.failure for each in self.scores.get(size, {}).values())

    def choose(self, size: Size) -> tuple[Strength, ...] | None:
        """Return the bounds to try at a size, in order; None if nothing is known yet: try all."""
        sizes = [size]
        while sizes[-1] > min([*self.scores, size]):
            sizes.append(sizes[-1].smaller)
        # Below all known sizes one cheap bound is assumed to be enough.
        cost = min((each.cost for known in self.scores.values() for each in known.values()), default=0.0)
        best: tuple[Strength, ...] | None = None
        for each in reversed(sizes):
            cost, best = self._best(each, cost * (2**self.t if each > (SITES, 0) else 2))
        return best

    def _best(self, size: Size, split: float) -> tuple[float, tuple[Strength, ...] | None]:
        """Return the least cost at one size, if splitting costs `split`, and the bounds that reach it."""
        known = self.scores.get(size)
        if known is None:  # below a known size trying may pay, above it not yet
            below = size <= (SITES, 0) or size < max(self.scores, default=Size(SITES, 0))
            return split, None if below else ()
        kinds = sorted(known)
        choices = [each for count in range(len(kinds) + 1) for each in itertools.combinations(kinds, count)]
        if size <= (SITES, 0) and size.smaller not in self.scores:  # smaller ones may not be provable
            choices = choices[1:]
        return min((self._cost(size, each, split), each) for each in choices)

    def _cost(self, size: Size, chosen: tuple[Strength, ...], split: float) -> float:
        """Return the cost of a subproblem with these bounds; a stronger one proves what a weaker one does."""
        cost, left, failed, known = 0.0, 1.0, 1.0, self.scores[size]
        for kind in sorted(known):
            failed *= known[kind].failure
            if kind in chosen:
                cost, left = cost + left * self._once(size, kind), failed
        return cost + left * split

    def _once(self, size: Size, kind: Strength) -> float:
        """Return the seconds of one bound at a size, at most those at larger sizes."""
        return min(known[kind].cost for each, known in self.scores.items() if each >= size and kind in known)


class Progress:
    """The state of each input: its witness, whether it is left open, and the time and boxes spent."""

    def __init__(self, question: Question) -> None:
        self.witness = question.x.clone()
        self.found = torch.zeros_like(question.y, dtype=torch.bool)
        self.open = self.found.clone()
        self.seconds = torch.zeros_like(question.y, dtype=torch.float64)
        self.boxes = self.seconds.clone()

    def meet(self, points: Tensor, rows: Tensor) -> None:
        """Store the first witness of each input; writing several at once could mix them."""
        number = torch.arange(len(rows), device=rows.device)
        first = torch.full_like(self.found, len(rows), dtype=torch.long).scatter_reduce(0, rows, number, "amin")
        met = (first < len(rows)).nonzero()[:, 0]
        self.witness[met], self.found[met] = points[first[met]], True


class BranchAndBound:
    """Decide for some inputs whether t changes can fool the model."""

    def __init__(
        self,
        question: Question,
        progress: Progress,
        strategy: Strategy,
        *,
        batch: int,
        limit: float = math.inf,
        end: float = math.inf,
    ) -> None:
        """`limit` is in seconds for one input, `end` when all must be over, on the clock of `time.perf_counter`."""
        self.question, self.progress, self.strategy, self.t = question, progress, strategy, strategy.t
        self.batch, self.limit, self.end = batch, limit, end
        self.queue, self.postponed = Queue(), dict[int, Queue]()
        self.patience = torch.full_like(progress.seconds, PATIENCE)
        self.deadline = math.inf
        question.bounds.tick = self._tick

    def run(self, rows: Tensor) -> Iterator[Tensor]:
        """Search until nothing is left; every few seconds and at the end yield the rows that no t changes can fool."""
        left = rows
        while len(left := left[self._alive(left)]):
            if self._completed(left, partial(self.question.allow_for_rounding, left, self.t)):
                break
        if len(left) and not self.strategy.scores:
            self._probe(left)
        self._push(self.question.whole(rows, self.t))
        reported = time.perf_counter()
        while self.queue or self.postponed:
            if time.perf_counter() - reported > REPORT:
                yield self._decided(rows)
                reported = time.perf_counter()
            if not self.queue:  # inputs that take long come one by one, the one with the least time first
                row = min(self.postponed, key=lambda each: float(self.progress.seconds[each]))
                self.queue = self.postponed.pop(row)
                self.patience[row] = 4 * self.progress.seconds[row]
            size, some = self.queue.pop(self.batch)
            some = self._timely(some.take(self._alive(some.rows)), size)
            if len(some):
                self._step(some, size)
        yield self._decided(rows)

    def _decided(self, rows: Tensor) -> Tensor:
        """Return the rows that are proved: no witness, not given up, and no subproblem left. None may be worked on."""
        left = self.progress.found | self.progress.open
        for queue in (self.queue, *self.postponed.values()):
            for part in itertools.chain.from_iterable(queue.waiting.values()):
                left[part.rows] = True
        return rows[~left[rows]]

    def _step(self, some: Any, size: Size) -> None:
        """Work on one batch; if time or memory runs out, put it back."""
        work = self._sites if size.kind == SITES else self._values
        if not self._completed(some.rows, partial(work, some, size)):
            self.queue.push(size, some)

    def _completed(self, rows: Tensor, work: Callable[[], object]) -> bool:
        """Do some work for these inputs; return whether it ended before time or memory ran out.

        For lack of memory the batches are halved, so that the same work may succeed later.
        """
        begin = time.perf_counter()
        self.deadline = self.end
        if self.limit < math.inf:
            each, count = torch.unique(rows, return_counts=True)
            left = (self.limit - self.progress.seconds[each]) * (len(rows) / count)
            self.deadline = min(self.end, begin + float(left.min()))
        try:
            work()
        except OutOfTime:
            return False
        except Exception as error:
            if not out_of_memory(error) or self.batch == 1:
                raise
            self._shrink(len(rows))
            return False
        finally:
            self.deadline = math.inf
            share = (time.perf_counter() - begin) / max(1, len(rows))
            self.progress.seconds.index_add_(0, rows, torch.full_like(rows, share, dtype=torch.float64))
        return True

    def _tick(self) -> None:
        if time.perf_counter() > self.deadline:
            raise OutOfTime

    def _shrink(self, tried: int) -> None:
        """Halve the batches."""
        self.batch = max(1, min(self.batch, tried) // 2)
        log.warning("memory ran out; batches have %d subproblems from here on", self.batch)
        self.question.bounds.size = max(1, self.question.bounds.size // 2)
        torch.cuda.empty_cache()

    def _timely(self, some: Any, size: Size) -> Any:
        """Postpone the subproblems of inputs that take long; return the others."""
        late = self.progress.seconds[some.rows] > self.patience[some.rows]
        for row in some.rows[late].unique().tolist():
            self.postponed.setdefault(row, Queue()).push(size, some.take(some.rows == row))
        return some.take(~late)

    def _probe(self, rows: Tensor) -> None:
        """Try subproblems of several sizes: from a middle size down if few succeed, else up while that pays."""
        top = math.ceil(math.log2(self.question.sites))
        start = min(3, top)
        for log2 in range(start, -1, -1):
            self._try(rows, Size(SITES, log2))
            if self.strategy.failure(Size(SITES, log2)) < 0.7:
                break
        vain = 0
        for log2 in range(start + 1, top + 1):
            if vain == 2 or self.strategy.failure(Size(SITES, log2 - 1)) > 0.7:
                return
            self._try(rows, Size(SITES, log2))
            vain = 0 if self.strategy.choose(Size(SITES, log2)) else vain + 1

    def _try(self, rows: Tensor, at: Size) -> None:
        """Try subproblems of one size, spread over inputs and sites."""
        count, sites, generator = 4 * self._probes, self.question.sites, torch.Generator().manual_seed(at.log2)
        size = max(1, min(sites, 2**at.log2) * 3 // 4 if at.log2 > 1 else 2**at.log2)
        slots = sites // size
        pick = torch.rand(count, slots, generator=generator, device="cpu").argsort(1)[:, : self.t]
        pick = pick if slots >= self.t else torch.zeros(count, self.t, dtype=torch.long, device="cpu")
        begin = (pick.sort(1).values * size).to(rows)
        mine = rows[torch.randint(len(rows), (count,), generator=generator, device="cpu").to(rows)]
        some = SiteGroups(mine, begin, begin + size)
        some = some.take(self._alive(some.rows))
        batch = self.batch
        if len(some) and not self._completed(some.rows, partial(self._scouted, some, at)) and self.batch < batch:
            self._try(rows, at)

    def _alive(self, rows: Tensor) -> Tensor:
        """Return which subproblems still matter: their input is undecided and has time left."""
        late = self.progress.seconds[rows] > (-1.0 if time.perf_counter() > self.end else self.limit)
        late &= ~self.progress.found[rows]
        self.progress.open[rows[late]] = True  # only these: inputs without any subproblem left are proved
        return ~(self.progress.found | self.progress.open)[rows]

    def _proved(self, some: Any, size: Size) -> Tensor:
        """Return which subproblems of a size are proved by the chosen bounds."""
        chosen = self.strategy.choose(size)
        if chosen is not None:
            return self._tried(some, size, chosen)
        proved = self._scouted(some, size)
        rest = (~proved).nonzero()[:, 0]
        if Strength.FULL in (self.strategy.choose(size) or ()):
            proved[rest] = self._tried(some.take(rest), size, (Strength.FULL,))
        return proved

    def _scouted(self, some: Any, size: Size) -> Tensor:
        """Return which subproblems of a new size are proved; the full bound, which may be slow, tries a few."""
        few = self.t * 2 ** max(size.log2, 0) * self.question.features <= MAX_FREE  # planes are for few features
        proved = self._tried(some, size, (Strength.INTERVALS, Strength.PLANES) if few else (Strength.INTERVALS,))
        left = (~proved).nonzero()[: self._probes, 0]
        proved[left] = self._tried(some.take(left), size, (Strength.FULL,))
        return proved

    @property
    def _probes(self) -> int:
        """Return on how many subproblems of a new size the full bound is tried."""
        return max(PROBES, self.batch // 64)

    def _tried(self, some: Any, size: Size, strengths: tuple[Strength, ...]) -> Tensor:
        """Return which subproblems these bounds prove, each tried where those before failed; measure all."""
        proved = torch.zeros(len(some), dtype=torch.bool, device=some.rows.device)
        for strength in strengths:
            left = (~proved).nonzero()[:, 0]
            if not len(left):
                break
            tried, begin = some.take(left), time.perf_counter()
            proved[left] = good = self._bounded(tried, strength)
            self.strategy.note(size, strength, len(left), int(good.sum()), time.perf_counter() - begin)
        return proved

    def _bounded(self, some: Any, strength: Strength) -> Tensor:
        """Return which subproblems a bound proves, and count them."""
        found: Tensor = some.proved(self.question, strength)
        self.progress.boxes.index_add_(0, some.rows, torch.ones_like(some.rows, dtype=torch.float64))
        return found

    def _sites(self, some: SiteGroups, size: Size) -> None:
        """Prove subproblems, or split them."""
        failed = some.take(~self._proved(some, size))
        if size.log2 > 0:
            self._push(failed.split())
        elif len(failed):  # the corners of the values of chosen sites may fool the model already
            boxes = ValueBoxes.whole(self.question, failed.rows, self.question.order[failed.begin])
            self.progress.meet(*boxes.corners(self.question))
            self._halve(boxes)

    def _values(self, boxes: ValueBoxes, size: Size) -> None:
        """Find a witness in boxes of values, or prove or halve them."""
        middle = self.question.outside(boxes.points(self.question, boxes.middle))
        fooled = self.question.fooled(middle, boxes.rows)
        self.progress.meet(middle[fooled], boxes.rows[fooled])
        boxes = boxes.take(~fooled)
        self._halve(boxes.take(~self._proved(boxes, size)))

    def _halve(self, boxes: ValueBoxes) -> None:
        """Halve boxes; leave an input open if a box is too narrow for that and not proved."""
        smaller, narrow = boxes.split(self.question)
        narrow = narrow.take(self._alive(narrow.rows))
        if len(narrow):  # the strategy may not have tried the strongest bound
            self.progress.open[narrow.rows[~self._bounded(narrow, Strength.FULL)]] = True
        self._push(smaller)

    def _push(self, some: Subproblems) -> None:
        kind, sizes = SITES if isinstance(some, SiteGroups) else VALUES, some.sizes(self.question)
        for log2 in sorted(set(sizes.tolist())):
            self.queue.push(Size(kind, log2), some.take(sizes == log2))
