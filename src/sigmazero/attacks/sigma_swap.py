r"""σ-swap: σ-zero with whole new choices, then a swap search over the sites changed, within a hard limit of queries.

At equal queries it ends with fewer changes than σ-zero on every network tried (docs/stronger.md). The first phase finds
a fair example soon (see _opening), the second makes it sparser (see _swap).

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> result = sz.get("sigma-swap", queries=60).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> int(result.l0[0]), bool(result.forwards[0] + result.backwards[0] <= 60)
(2, True)
"""

from dataclasses import dataclass, fields, replace
from typing import ClassVar

from sigmazero.attack import Attack
from sigmazero.attacks._opening import Opening, Walker
from sigmazero.attacks._swap import SwapSearch

BESIDES = 1 + 2  # queries of the clean check and, at most, of the verification
FEWEST = 30  # steps of the first phase before any search: from poorer examples it does not get far


@dataclass(frozen=True, kw_only=True)
class SigmaSwap(SwapSearch):
    """σ-swap within a limit of queries; what is not listed here belongs to the search.

    queries  the most a sample may ask, forwards and backwards, clean check and verification included; None stands for
             what sigma-zero may ask in that many `steps`
    share    of the queries, for the first phase; more of few queries, until it has `warm_up` steps: half of them, or 30
             steps
    first    the σ-zero of the first phase; its steps are set from the share
    """

    name: str = "sigma-swap"
    steps: int = 1000
    share: float = 0.2
    warm_up: int = 50
    first: Attack

    paper: ClassVar[str] = "docs/stronger.md"

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ValueError(f"share={self.share!r} must be greater than 0 and at most 1")
        if not self.warm_up >= 0:
            raise ValueError(f"warm_up={self.warm_up!r} must be 0 or greater")
        if not isinstance(self.first, Walker):
            raise ValueError(f"first={self.first.name!r} must be sigma-zero or a variant of it")

    @property
    def limit(self) -> int:
        """The most queries of a sample."""
        return 2 * self.steps + BESIDES if self.queries is None else int(self.queries)

    @property
    def phases(self) -> tuple[Attack, ...]:
        """The opening for its share of the queries and what does not fill a step of the search; then the search."""
        left, cost = self.limit - BESIDES, self.proposals + 1
        share = max(self.share * left, min(2 * self.warm_up, max(left / 2, 2 * FEWEST), left))
        searches = int(left - share) // cost
        steps = (left - cost * searches) // 2
        walker = replace(self.first, steps=steps)
        assert isinstance(walker, Walker)  # as checked when this was made
        opening = Opening(
            walker=walker,
            steps=steps,
            choices=self.choices,
            memory=self.memory,
            jitter=self.jitter,
            queries=self.limit,
        )
        if searches == 0:
            return (opening,)
        mine = {f.name: getattr(self, f.name) for f in fields(SwapSearch) if f.name != "name"}
        return opening, SwapSearch(**mine | {"steps": searches, "queries": self.limit})
