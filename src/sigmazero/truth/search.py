"""The search: tasks from a stack, many at a time and of many inputs at once, until every input is decided."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.truth import leaves
from sigmazero.truth.leaves import Boxes
from sigmazero.truth.question import Question
from sigmazero.truth.regions import Groups
from sigmazero.truth.tasks import Tasks, join, whole

TRIED = 24  # tasks of a size after which their success says whether to try more of them
WORTH = 0.2  # the least share of successes for which that is so


@dataclass(eq=False)
class Tally:
    """What is known of each input: witnesses, time and boxes spent, and the largest ranges proved one at a time.

    `patch` is (rows, sites): the number of the range, proved for one change, in which each place of the curve lies.
    """

    witness: Tensor
    found: Tensor
    open: Tensor
    seconds: Tensor
    boxes: Tensor
    patch: Tensor

    @staticmethod
    def new(question: Question) -> "Tally":
        """Nothing yet."""
        n, place = len(question.x), question.x.device
        flag = torch.zeros(n, dtype=torch.bool, device=place)
        count = torch.zeros(n, dtype=torch.float64, device=place)
        patch = torch.full((n, question.sites), -1, device=place)
        return Tally(question.x.clone(), flag, flag.clone(), count, count.clone(), patch)

    def spend(self, rows: Tensor, seconds: float) -> None:
        """Share time spent among the tasks of a batch."""
        each = torch.full_like(rows, 1, dtype=torch.float64)
        self.boxes.index_add_(0, rows, each)
        self.seconds.index_add_(0, rows, each * (seconds / max(1, len(rows))))

    def meet(self, points: Tensor, rows: Tensor) -> None:
        """Take witnesses in."""
        self.witness[rows], self.found[rows] = points, True


class Search:
    """Decides for some inputs whether t changes can fool the model."""

    def __init__(
        self, question: Question, tally: Tally, t: int, batch: int, limit: Tensor, watch: Callable[[], None]
    ) -> None:
        self.question, self.tally, self.t, self.batch, self.limit = question, tally, t, batch, limit
        self.watch = watch
        self.stack: list[Tasks] = []
        self.boxes: list[Boxes] = []
        self._tried: dict[int, list[int]] = {}

    def run(self, rows: Tensor) -> Tensor:
        """Search until nothing is left; true for the rows for which no t changes fool the model, which is proved."""
        # The first row's tasks lie on top, so that inputs are done one after the other.
        self.stack = [whole(rows.flip(0), self.question.sites, self.t)]
        while self.stack or self.boxes:
            if self.boxes:
                self._values(self._pop(self.boxes, leaves.join))
            else:
                self._sites(self._pop(self.stack, join))
            self.watch()
        return rows[~self.tally.found[rows] & ~self.tally.open[rows]]

    def _pop(self, stack: list, join_: Callable) -> "Tasks | Boxes":  # type: ignore[type-arg]
        """As many as fit into a batch, from the top."""
        taken, count = [], 0
        while stack and count < self.batch:
            top = stack.pop()
            room = self.batch - count
            if len(top) > room:
                stack.append(top.take(slice(0, len(top) - room)))
                top = top.take(slice(len(top) - room, len(top)))
            taken.append(top)
            count += len(top)
        return join_(taken)

    def _alive(self, rows: Tensor) -> Tensor:
        """Which tasks still matter: their input is undecided and has time left."""
        late = self.tally.seconds > self.limit
        self.tally.open |= late & ~self.tally.found
        return ~(self.tally.found | self.tally.open)[rows]

    def _sites(self, tasks: Tasks) -> None:
        """Prove tasks, or make smaller ones of them."""
        tasks = tasks.take(self._alive(tasks.rows))
        hopeless = self._hopeless(tasks)
        if bool(hopeless.any()):
            self._push(tasks.take(hopeless).halved())
            tasks = tasks.take(~hopeless)
        if not len(tasks):
            return
        begin, question = time.perf_counter(), self.question
        sites = tasks.sites(question.order)
        region = Groups(sites, *question.ends, tasks.rows, question.pixels)
        margins = question.bounder.margins(question.clean, tasks.rows, question.y[tasks.rows], region)
        proved = margins.amin(1) > 0
        self._learn(tasks, proved)
        failed = tasks.take(~proved)
        single = failed.longest == 1
        if bool(single.any()):
            last = failed.take(single)
            self._enter(leaves.whole_boxes(question, last.rows, question.order[last.begin]))
        self._push(failed.take(~single).halved())
        self.tally.spend(tasks.rows, time.perf_counter() - begin)

    def _hopeless(self, tasks: Tasks) -> Tensor:
        """Tasks that are too large to be tried: one range alone was not proved, or tasks of the size rarely are."""
        longest = tasks.longest
        if self.t > 1:
            rows = tasks.rows[:, None]
            inside = self.tally.patch[rows, tasks.begin] == self.tally.patch[rows, tasks.end - 1]
            hopeless = ~inside.all(1)
        else:
            hopeless = torch.zeros_like(longest, dtype=torch.bool)
        for size, (tried, proved) in self._tried.items():
            if tried >= TRIED and proved < WORTH * tried:
                hopeless |= longest >= size
        return hopeless & (longest > 1)

    def _learn(self, tasks: Tasks, proved: Tensor) -> None:
        """Note which sizes succeed, and at one change which ranges are proved."""
        sizes, place = tasks.longest.unique(return_inverse=True)
        counts = torch.zeros(2, len(sizes), dtype=torch.long, device=place.device)
        counts[0].index_add_(0, place, torch.ones_like(place))
        counts[1].index_add_(0, place, proved.long())
        for size, tried, good in zip(sizes.tolist(), *counts.tolist(), strict=True):
            known = self._tried.setdefault(size, [0, 0])
            known[0] += tried
            known[1] += good
        if self.t == 1:
            done = tasks.take(proved)
            sites = torch.arange(self.question.sites, device=place.device)
            inside = (sites >= done.begin) & (sites < done.end)
            where = inside.nonzero()
            self.tally.patch[done.rows[where[:, 0]], where[:, 1]] = done.begin[where[:, 0], 0]

    def _push(self, tasks: Tasks) -> None:
        if len(tasks):
            self.stack.append(tasks)

    def _enter(self, boxes: Boxes) -> None:
        """Begin with the values of chosen sites: their corners may fool the model already."""
        points, rows = leaves.corners(self.question, boxes)
        self.tally.meet(points, rows)
        self.boxes.append(leaves.halved(self.question, boxes)[0])

    def _values(self, boxes: Boxes) -> None:
        """Prove boxes of values, or find a witness in them, or halve them."""
        boxes = boxes.take(self._alive(boxes.rows))
        if not len(boxes):
            return
        begin = time.perf_counter()
        proved, fooled, middle = leaves.judged(self.question, boxes)
        self.tally.meet(middle[fooled], boxes.rows[fooled])
        smaller, given_up = leaves.halved(self.question, boxes.take(~proved & ~fooled))
        self.tally.open[given_up] |= ~self.tally.found[given_up]
        if len(smaller):
            self.boxes.append(smaller)
        self.tally.spend(boxes.rows, time.perf_counter() - begin)
