r"""σ-swap: a short σ-zero, then a swap search over the sites it changed, within a hard limit of queries.

At equal queries it ends with fewer changes than σ-zero on every network tried (docs/stronger.md). The first phase is
σ-zero with a constant step size, which finds a fair example soon; the second makes it sparser (see _swap).

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
from sigmazero.attacks._swap import COST, SwapSearch

BESIDES = 1 + 2  # queries of the clean check and, at most, of the verification


@dataclass(frozen=True, kw_only=True)
class SigmaSwap(SwapSearch):
    """σ-swap within a limit of queries; what is not listed here belongs to the search.

    queries  the most a sample may ask, forwards and backwards, clean check and verification included; None stands for
             what sigma-zero may ask in that many `steps`
    share    of the queries, for the first phase; more of few queries, half at most, until it has `warm_up` steps
    first    the attack of the first phase; its steps are set from the share
    goes_on  whether the first phase's attack takes further steps inside the search, as often as they serve
    """

    name: str = "sigma-swap"
    steps: int = 1000
    share: float = 0.25
    warm_up: int = 40
    goes_on: bool = True
    first: Attack

    paper: ClassVar[str] = "docs/stronger.md"

    def __post_init__(self) -> None:
        """Refuse values outside their range."""
        super().__post_init__()
        if not 0 < self.share <= 1:
            raise ValueError(f"share={self.share!r} must be greater than 0 and at most 1")
        if not self.warm_up >= 0:
            raise ValueError(f"warm_up={self.warm_up!r} must be 0 or greater")

    @property
    def limit(self) -> int:
        """The most queries of a sample."""
        return 2 * self.steps + BESIDES if self.queries is None else int(self.queries)

    @property
    def phases(self) -> tuple[Attack, ...]:
        """σ-zero for its share of the queries and what does not fill a step of the search; then the search."""
        left = self.limit - BESIDES
        beginning = 2  # the search asks once about its starting point and its gradient
        share = max(self.share * left, min(2 * self.warm_up, left / 2))
        searches = int(left - share - beginning) // COST
        if searches < 1:
            return (replace(self.first, steps=left // 2),)
        steps = (left - beginning - COST * searches) // 2
        mine = {f.name: getattr(self, f.name) for f in fields(SwapSearch) if f.name != "name"}
        first = replace(self.first, steps=steps)
        mine |= {"steps": searches, "queries": self.limit, "walker": first if self.goes_on else None}
        return first, SwapSearch(**mine)
