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
from sigmazero.attacks.swap.opening import Ladder, Opening
from sigmazero.attacks.swap.search import CHECKS, STEPS_FACTOR, LongSearch, SwapSearch
from sigmazero.core.attack import Attack
from sigmazero.core.parameters import Count, Kind, Share, Whole
from sigmazero.core.problem import Problem

MANY_SITES = 10_000  # a problem with more sites is hard
MAX_SHARE = {False: 1 / 2, True: 1}  # of the queries for the warm-up, in easy and in hard problems
MIN_STEPS = 30  # steps that the first phase gets before any search: from poorer examples the search does not get far
FIRST, FIRST_HARD = SigmaZero(step_size_end=1.0, beta2=0.99), SigmaZero()
SigmaZeroLike = Annotated[Attack, Kind(Walker, "sigma-zero or a variant of it")]


@dataclass(frozen=True, kw_only=True)
class SigmaSwap(SwapSearch):
    """Find a fair example by a short σ-zero. Then exchange changed sites for others, one change below the best, until
    the queries are spent.

    The limit `queries` includes the clean check and the verification; without it there are as many queries
    as σ-zero asks in `steps` steps. The first phase may take half of them, or 30 steps where that is more.

    With fewer than 30 steps in all, σ-zero finds no sparse example in time. Then whole choices of sites take its place
    (see `Ladder` in opening).

    A problem is hard if one class alone is the goal, or if the input is large. Then σ-zero needs more steps to come
    near the fewest changes, and whole choices do not pay. So `warm_up_hard` and `first_hard` apply, the first phase may
    take all queries, and no whole choices are made.
    """

    name: str = "sigma-swap"
    steps: Count = 1000
    share: Annotated[Share, "part of the queries for the first phase"] = 0.2
    warm_up: Annotated[Whole, "fewest steps of the first phase"] = 50
    first: Annotated[SigmaZeroLike, "the σ-zero of the first phase"] = FIRST
    warm_up_hard: Annotated[Whole, "the same for hard problems: large inputs, or a target class"] = 250
    first_hard: Annotated[SigmaZeroLike, "the σ-zero of the first phase of hard problems"] = FIRST_HARD

    asks: ClassVar[str] = "at most `queries`, or 2 × steps"
    version: ClassVar[int] = 6
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

    def phases(self, problem: Problem | None = None) -> tuple[Attack, ...]:
        """Return the opening, which also gets the queries that do not fill a step of the search; then the search."""
        checks = CHECKS if problem is None else problem.overhead
        left, cost = self.limit - checks, self.proposals + 1
        hard = problem is not None and (problem.goal.narrow or problem.sites > MANY_SITES)
        warm_up = self.warm_up_hard if hard else self.warm_up
        share = max(self.share * left, min(2 * warm_up, max(MAX_SHARE[hard] * left, 2 * MIN_STEPS), left))
        searches = int(left - share) // cost
        steps = (left - cost * searches) // 2
        if problem is not None and steps < MIN_STEPS and not (problem.goal.narrow or problem.domain.weighted):
            walker = replace(self.first, steps=steps)
            assert isinstance(walker, Walker)  # as checked when this was made
            return (Ladder(walker=walker, steps=steps, queries=self.limit),)
        walker = replace(self.first_hard if hard else self.first, steps=steps)
        assert isinstance(walker, Walker)  # as checked when this was made
        opening = Opening(
            walker=walker,
            steps=steps,
            choices=0.0 if hard else self.choices,
            momentum=self.momentum,
            jitter=self.jitter,
            queries=self.limit,
        )
        if searches == 0:
            return (opening,)
        mine = {f.name: getattr(self, f.name) for f in fields(SwapSearch) if f.name != "name"}
        if problem is not None and problem.domain.needs_exploring:
            return opening, LongSearch(**mine | {"steps": STEPS_FACTOR * searches, "queries": self.limit})
        return opening, SwapSearch(**mine | {"steps": searches, "queries": self.limit})
