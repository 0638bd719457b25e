"""The search: tasks of one level, many at a time and of many inputs at once, until every input is decided."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sigmazero.certifier import leaves
from sigmazero.certifier.bounds import Effort
from sigmazero.certifier.inquiry import Inquiry
from sigmazero.certifier.leaves import Boxes
from sigmazero.certifier.piles import GIVEN, Piles
from sigmazero.certifier.regions import FEW, Groups
from sigmazero.certifier.tactics import Tactics, level
from sigmazero.certifier.tasks import Tasks, whole
from sigmazero.run.memory import out_of_memory

log = logging.getLogger(__name__)
Ask = Callable[[Any, Effort], Tensor]
PROBED = 2  # tasks of a level that tell what the full bound is worth, at least; more where a batch is large


@dataclass(eq=False)
class Spending:
    """What is known of each input: a witness, whether it is given up, and the time and boxes spent."""

    witness: Tensor
    found: Tensor
    open: Tensor
    seconds: Tensor
    boxes: Tensor

    @staticmethod
    def new(inquiry: Inquiry) -> "Spending":
        """Nothing yet."""
        n, place = len(inquiry.x), inquiry.x.device
        flag = torch.zeros(n, dtype=torch.bool, device=place)
        count = torch.zeros(n, dtype=torch.float64, device=place)
        return Spending(inquiry.x.clone(), flag, flag.clone(), count, count.clone())

    def spend(self, rows: Tensor, seconds: float) -> None:
        """Share time spent among the tasks of a batch."""
        each = torch.full_like(rows, 1, dtype=torch.float64)
        self.boxes.index_add_(0, rows, each)
        self.seconds.index_add_(0, rows, each * (seconds / max(1, len(rows))))

    def meet(self, points: Tensor, rows: Tensor) -> None:
        """Take witnesses in: of each input the first. Several written at once might end up mixed."""
        number = torch.arange(len(rows), device=rows.device)
        first = torch.full_like(self.found, len(rows), dtype=torch.long).scatter_reduce(0, rows, number, "amin")
        met = (first < len(rows)).nonzero()[:, 0]
        self.witness[met], self.found[met] = points[first[met]], True


class Search:
    """Decides for some inputs whether t changes can fool the model."""

    def __init__(
        self,
        inquiry: Inquiry,
        tally: Spending,
        t: int,
        *,
        batch: int,
        limit: float = math.inf,
        end: float = math.inf,
        tactics: Tactics | None = None,
    ) -> None:
        """`limit` are seconds for one input, `end` is when all must be over, on the clock of `time.perf_counter`."""
        self.inquiry, self.tally, self.t, self.batch = inquiry, tally, t, batch
        self.limit, self.end = limit, end
        self.piles, self.late = Piles(batch), dict[int, Piles]()
        self.given = torch.full_like(tally.seconds, GIVEN)
        self.plan = Tactics(t) if tactics is None else tactics

    def run(self, rows: Tensor) -> Tensor:
        """Search until nothing is left; the rows for which it is proved that no t changes fool the model."""
        if len(rows) and not self.plan.scores:
            self._probe(rows)
        self._push(whole(rows, self.inquiry.sites, self.t))
        while self.piles or self.late:
            if not self.piles:  # what took long comes one after the other, those first that had least
                row = min(self.late, key=lambda each: float(self.tally.seconds[each]))
                self.piles = self.late.pop(row)
                self.given[row] = 4 * self.tally.seconds[row]
            at, some = self.piles.pop()
            some = self._timely(some.take(self._alive(some.rows)), at)
            if len(some):
                self._step(some, at)
        return rows[~self.tally.found[rows] & ~self.tally.open[rows]]

    def _step(self, some: Any, at: int) -> None:
        """One batch; where memory runs out it waits, and batches are half as large from then on."""
        try:
            self._sites(some, at) if at >= 0 else self._values(some, at)
        except Exception as error:
            self._spare(error, len(some))
            self.piles.push(at, some)

    def _spare(self, error: Exception, tried: int) -> None:
        """Batches of half as many tasks, if an error says that memory ran out; any other error goes on."""
        if not out_of_memory(error) or self.batch == 1:
            raise error
        self.batch = max(1, min(self.batch, tried) // 2)
        log.warning("memory ran out; batches have %d tasks from here on", self.batch)
        for piles in (self.piles, *self.late.values()):
            piles.batch = self.batch
        self.inquiry.bounder.room = max(1, self.inquiry.bounder.room // 2)
        torch.cuda.empty_cache()

    def _timely(self, some: Any, at: int) -> Any:
        """Tasks or boxes of inputs that have not had their time yet; the others wait until the rest is done."""
        late = self.tally.seconds[some.rows] > self.given[some.rows]
        for row in some.rows[late].unique().tolist():
            self.late.setdefault(row, Piles(self.batch)).push(at, some.take(some.rows == row))
        return some.take(~late)

    def _probe(self, rows: Tensor) -> None:
        """Try some tasks of several levels: from a middle one down if few succeed, else up as long as that pays."""
        top = level(self.inquiry.sites)
        start = min(3, top)
        for at in range(start, -1, -1):
            self._try(rows, at)
            if self.plan.failure(at) < 0.7:
                break
        vain = 0
        for at in range(start + 1, top + 1):
            if vain == 2 or self.plan.failure(at - 1) > 0.7:
                return
            self._try(rows, at)
            vain = 0 if self.plan.choose(at) else vain + 1

    def _try(self, rows: Tensor, at: int) -> None:
        """Try tasks of one level, spread over inputs and sites."""
        count, sites, generator = 4 * self._some, self.inquiry.sites, torch.Generator().manual_seed(at)
        size = max(1, min(sites, 2**at) * 3 // 4 if at > 1 else 2**at)
        slots = sites // size
        pick = torch.rand(count, slots, generator=generator, device="cpu").argsort(1)[:, : self.t]
        pick = pick if slots >= self.t else torch.zeros(count, self.t, dtype=torch.long, device="cpu")
        begin = (pick.sort(1).values * size).to(rows)
        mine = rows[torch.randint(len(rows), (count,), generator=generator, device="cpu").to(rows)]
        tasks = Tasks(mine, begin, begin + size)
        tasks = tasks.take(self._alive(tasks.rows))
        try:
            self._scouted(tasks, at, self._ask)
        except Exception as error:
            self._spare(error, len(tasks))
            self._try(rows, at)

    def _alive(self, rows: Tensor) -> Tensor:
        """Which tasks still matter: their input is undecided and has time left."""
        late = self.tally.seconds[rows] > (-1.0 if time.perf_counter() > self.end else self.limit)
        late &= ~self.tally.found[rows]
        self.tally.open[rows[late]] = True  # only of these tasks: inputs that have none left are proved
        return ~(self.tally.found | self.tally.open)[rows]

    def _kinds(self, at: int) -> tuple[Effort, ...]:
        """The bounds that there are for tasks of a level: planes pay only over few features."""
        channels = self.inquiry.points.shape[3] if self.inquiry.pixels else 1
        few = self.t * 2 ** max(at, 0) * channels <= FEW
        return tuple(Effort) if few else (Effort.INTERVALS, Effort.FULL)

    def _ask(self, tasks: Tasks, effort: Effort) -> Tensor:
        """Which tasks a bound proves."""
        inquiry = self.inquiry
        region = Groups(tasks.sites(inquiry.order), *inquiry.ends, tasks.rows, inquiry.pixels)
        labels = inquiry.y[tasks.rows]
        return inquiry.bounder.margins(inquiry.clean, tasks.rows, labels, region, effort).amin(1) > 0

    def _proved(self, tasks: Any, at: int, ask: Ask) -> Tensor:
        """Which tasks or boxes of a level are proved, by the bounds that pay there."""
        chosen = self.plan.choose(at)
        if chosen is not None:
            return self._tried(tasks, at, chosen, ask)
        proved = self._scouted(tasks, at, ask)
        rest = (~proved).nonzero()[:, 0]
        if Effort.FULL in (self.plan.choose(at) or ()):
            proved[rest] = self._tried(tasks.take(rest), at, (Effort.FULL,), ask)
        return proved

    def _scouted(self, tasks: Any, at: int, ask: Ask) -> Tensor:
        """Which tasks of a level that is not known are proved; the full bound, which may cost much, sees some alone."""
        *cheap, full = self._kinds(at)
        proved = self._tried(tasks, at, tuple(cheap), ask)
        some = (~proved).nonzero()[: self._some, 0]
        proved[some] = self._tried(tasks.take(some), at, (full,), ask)
        return proved

    @property
    def _some(self) -> int:
        """How many tasks tell what to expect of the full bound at a level."""
        return max(PROBED, self.batch // 64)

    def _tried(self, tasks: Any, at: int, kinds: tuple[Effort, ...], ask: Ask) -> Tensor:
        """Which tasks or boxes are proved by some bounds, each tried where those before failed; all are scored."""
        proved = torch.zeros(len(tasks), dtype=torch.bool, device=tasks.rows.device)
        for effort in kinds:
            left = (~proved).nonzero()[:, 0]
            if not len(left):
                break
            some, begin = tasks.take(left), time.perf_counter()
            proved[left] = good = ask(some, effort)
            count, seconds = int(good.sum()), time.perf_counter() - begin
            self.plan.note(at, effort, len(left), count, seconds)
            self.tally.spend(some.rows, seconds)
        return proved

    def _sites(self, tasks: Tasks, at: int) -> None:
        """Prove tasks of a level, or make smaller ones of them."""
        failed = tasks.take(~self._proved(tasks, at, self._ask))
        if at > 0:
            self._push(failed.halved())
        elif len(failed):
            self._enter(leaves.whole_boxes(self.inquiry, failed.rows, self.inquiry.order[failed.begin]))

    def _push(self, tasks: Tasks) -> None:
        levels = tasks.levels
        for at in sorted(set(levels.tolist())):
            self.piles.push(at, tasks.take(levels == at))

    def _enter(self, boxes: Boxes) -> None:
        """Begin with the values of chosen sites: their corners may fool the model already."""
        points, rows = leaves.corners(self.inquiry, boxes)
        self.tally.meet(points, rows)
        self._halve(boxes)

    def _values(self, boxes: Boxes, at: int) -> None:
        """Prove boxes of values, or find a witness in them, or halve them."""
        middle = leaves.middles(self.inquiry, boxes)
        fooled = self.inquiry.fooled(middle, boxes.rows)
        self.tally.meet(middle[fooled], boxes.rows[fooled])
        boxes = boxes.take(~fooled)
        proved = self._proved(boxes, at, self._boxed)
        self._halve(boxes.take(~proved))

    def _boxed(self, boxes: Boxes, effort: Effort) -> Tensor:
        """Which boxes a bound proves."""
        return leaves.proved(self.inquiry, boxes, effort)

    def _halve(self, boxes: Boxes) -> None:
        """Boxes of half the size; an input with one that is too small for that, and not proved, is given up."""
        smaller, narrow = leaves.halved(self.inquiry, boxes)
        narrow = narrow.take(self._alive(narrow.rows))
        if len(narrow):  # tactics may have left the strongest bound out
            self.tally.open[narrow.rows[~self._boxed(narrow, Effort.FULL)]] = True
        levels = leaves.levels(self.inquiry, smaller)
        for at in sorted(set(levels.tolist())):
            self.piles.push(at, smaller.take(levels == at))
