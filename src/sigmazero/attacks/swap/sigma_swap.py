r"""σ-swap: σ-zero with whole new choices, then a search that exchanges changed sites, within a hard limit of queries.

The first phase finds a fair example soon (see opening), the second makes it sparser (see search). Measurements are in
docs/evidence/stronger.md.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("sigma-swap", queries=60).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0]), bool(result.forwards[0] + result.backwards[0] <= 60)
(2, True)
"""

from dataclasses import dataclass, fields, replace
from typing import Annotated, ClassVar

from sigmazero.attacks.exploring import Walker
from sigmazero.attacks.sigma_zero import SigmaZero
from sigmazero.attacks.swap.opening import Ladder, Opening, Rung
from sigmazero.attacks.swap.search import CHECKS, LongSearch, SwapSearch
from sigmazero.core.answers import STEPS_FACTOR
from sigmazero.core.attack import Attack, Fork
from sigmazero.core.parameters import Count, Kind, Share, Whole
from sigmazero.core.problem import Problem

MANY_SITES = 10_000  # a problem with more sites is hard
MAX_SHARE = {False: 1 / 2, True: 1}  # of the queries for the warm-up, in easy and in hard problems
MIN_STEPS = 30  # steps that the first phase gets before any search: from poorer examples the search does not get far
FEW_QUERIES = 250  # with fewer, a ladder is tried first
TRIAL_STEPS = 2  # of a ladder, the clean input and 16 sites, before it is trusted or not
SHORT = 140  # queries up to which σ-zero keeps its own schedule where gradients mislead
LADDER_SHARE, LADDER_STEPS = 0.3, 22  # of the queries for the rest of a trusted ladder, and its fewest steps
FIRST, FIRST_HARD = SigmaZero(step_size_end=1.0, beta2=0.99), SigmaZero()
SigmaZeroLike = Annotated[Attack, Kind(Walker, "sigma-zero or a variant of it")]


@dataclass(frozen=True, kw_only=True)
class SigmaSwap(SwapSearch):
    """Find a fair example by a short σ-zero. Then exchange changed sites for others, one change below the best, until
    the queries are spent.

    The limit `queries` includes the clean check and the verification; without it there are as many queries
    as σ-zero asks in `steps` steps. The first phase may take half of them, or 30 steps where that is more.

    With fewer than 32 steps in all, σ-zero finds no sparse example in time. Then whole choices of sites take its place
    (see `Ladder` in opening). Below 250 queries two steps of a ladder come first: a row goes on with the ladder, and
    then with the search, if a choice of 16 sites took an eighth of its margin. The others go on with σ-zero.

    A problem is hard if one class alone is the goal, or if the input is large. Then σ-zero needs more steps to come
    near the fewest changes, and whole choices pay at the beginning only. So `warm_up_hard` and `first_hard` apply, the
    opening may take all queries, and makes no whole choices.
    """

    name: str = "sigma-swap"
    steps: Count = 1000
    share: Annotated[Share, "part of the queries for the first phase"] = 0.2
    warm_up: Annotated[Whole, "fewest steps of the first phase"] = 50
    first: Annotated[SigmaZeroLike, "the σ-zero of the first phase"] = FIRST
    warm_up_hard: Annotated[Whole, "the same for hard problems: large inputs, or a target class"] = 250
    first_hard: Annotated[SigmaZeroLike, "the σ-zero of the first phase of hard problems"] = FIRST_HARD

    asks: ClassVar[str] = "at most `queries`, or 2 × steps"
    version: ClassVar[int] = 8
    paper: ClassVar[str] = "docs/evidence/stronger.md"
    takes: ClassVar[frozenset[str]] = frozenset()

    def __post_init__(self) -> None:
        """Refuse a σ-zero with another loss: both phases go by the margin, and its own would be ignored."""
        super().__post_init__()
        for name in ("first", "first_hard"):
            if (loss := getattr(self, name).loss) != "hinge":
                raise ValueError(f"{name} has loss={loss!r}; in {self.name} it must be 'hinge'")

    @property
    def limit(self) -> int:
        """Return the most queries of a sample."""
        return 2 * self.steps + CHECKS if self.queries is None else self.queries

    def phases(self, problem: Problem | None = None) -> tuple[Attack | Fork, ...]:
        """Return the opening and the search; with fewer queries a ladder, or a trial of one."""
        left = self.limit - (CHECKS if problem is None else problem.overhead)
        if problem is None or problem.goal.narrow or problem.domain.weighted or left >= FEW_QUERIES:
            return self._opened(left, problem)
        if left < 2 * (MIN_STEPS + TRIAL_STEPS):
            return (self._ladder(left // 2, problem),)
        if problem.domain.needs_exploring:
            return self._opened(left, problem)
        rest = left - 2 * TRIAL_STEPS
        opened = self._opened(rest, problem, hard=rest < SHORT, after=1)
        return self._ladder(TRIAL_STEPS, problem), Fork(Rung.misled, opened, self._climbed(rest, problem))

    def _climbed(self, left: int, problem: Problem) -> tuple[Attack, ...]:
        """Return the rest of the ladder, and the search."""
        searches = max(0, int(left - max(LADDER_SHARE * left, 2 * LADDER_STEPS)) // (self.proposals + 1))
        ladder = self._ladder((left - searches * (self.proposals + 1)) // 2, problem, after=TRIAL_STEPS)
        return (ladder, self._search(searches, problem)) if searches else (ladder,)

    def _opened(self, left: int, problem: Problem | None, hard: bool = False, after: int = 0) -> tuple[Attack, ...]:
        """Return the opening, which also gets the queries that do not fill a step of the search; then the search.

        σ-zero has taken `after` steps before.
        """
        hard = hard or (problem is not None and (problem.goal.narrow or problem.sites > MANY_SITES))
        warm_up = self.warm_up_hard if hard else self.warm_up
        share = max(self.share * left, min(2 * warm_up, max(MAX_SHARE[hard] * left, 2 * MIN_STEPS), left))
        searches = int(left - share) // (self.proposals + 1)
        steps = (left - (self.proposals + 1) * searches) // 2
        opening = Opening(
            walker=self._walker(self.first_hard if hard else self.first, steps + after),
            after=after,
            steps=steps,
            choices=0.0 if hard else self.choices,
            momentum=self.momentum,
            jitter=self.jitter,
            queries=self.limit,
        )
        return (opening, self._search(searches, problem)) if searches else (opening,)

    def _ladder(self, steps: int, problem: Problem, after: int = 0) -> Ladder:
        """Return a ladder; its σ-zero takes one step at the clean input, and those that the choices leave."""
        walker = self._walker(self.first, max(1, steps + after + 1 - Ladder.rungs(problem.domain)))
        return Ladder(walker=walker, steps=steps, after=after, queries=self.limit)

    def _walker(self, first: Attack, steps: int) -> Walker:
        """Return σ-zero with this number of steps."""
        walker = replace(first, steps=steps)
        assert isinstance(walker, Walker)  # as checked when this was made
        return walker

    def _search(self, steps: int, problem: Problem | None) -> SwapSearch:
        """Return a search of this number of steps; three times as many where repeated points cost nothing."""
        mine = {f.name: getattr(self, f.name) for f in fields(SwapSearch) if f.name != "name"}
        long = problem is not None and problem.domain.needs_exploring
        kind, times = (LongSearch, STEPS_FACTOR) if long else (SwapSearch, 1)
        return kind(**mine | {"steps": times * steps, "queries": self.limit})
