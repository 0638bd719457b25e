"""Who looks on while a cascade runs: told of every member, asked after every batch whether that is enough."""

from collections.abc import Callable, Mapping

from torch import Tensor

from sigmazero.auto.progress import CascadeState, fewest
from sigmazero.core.attack import Attack
from sigmazero.run.progress import Advance, ignore


class Watch:
    """One who lets the cascade run to its end, and shows nothing."""

    def begin(self, member: Attack, rows: int) -> Advance:
        """A member begins on so many rows; what moves a bar as it gets on."""
        del member, rows
        return ignore

    def enough(self, progress: CascadeState) -> bool:
        """Whether nothing more need be known."""
        del progress
        return False


class GateWatch(Watch):
    """Moves one bar over all members, in queries, and ends the cascade as soon as its gate cannot be passed.

    advance  moves the bar
    most     the most queries that each member makes about a row, by its name
    rows     how many there are
    lost     whether it is certain that too few stay right, when at most so many do; None lets the cascade go on
    """

    def __init__(
        self,
        advance: Advance,
        most: Mapping[str, int],
        rows: int,
        eps: int | None,
        lost: Callable[[int], bool] | None = None,
    ) -> None:
        self._advance, self._eps, self._lost = advance, eps, lost
        self._most, self._left = most, float(rows * sum(most.values()))

    def begin(self, member: Attack, rows: int) -> Advance:
        """Rows that have left need no more queries."""
        names = list(self._most)
        coming = [self._most[name] for name in names[names.index(member.name) :]]
        self._move(self._left - rows * sum(coming))
        return lambda amount: self._move(amount * coming[0])

    def _move(self, queries: float) -> None:
        self._left -= queries
        self._advance(queries)

    def enough(self, progress: CascadeState) -> bool:
        """Whether it is certain that too few rows stay right."""
        if self._lost is None or self._eps is None:
            return False
        return self._lost(standing(progress.l0, progress.done, progress.clean_prediction, self._eps)[1])


def standing(l0: Tensor, done: Tensor, clean_prediction: Tensor, eps: int) -> tuple[int, int]:
    """How many rows stay right under eps changes: at least those that outlasted every member, at most all not lost.

    The tables have one row per member and one column per sample, as a cascade's state and its report have them. A row
    that no member has seen yet may still stay right.

    >>> import torch
    >>> l0 = torch.tensor([[2.0, torch.inf, torch.inf], [torch.inf, torch.inf, torch.inf]])
    >>> done = torch.tensor([[True, True, True], [False, True, False]])
    >>> standing(l0, done, torch.tensor([0, 1, 1]), eps=4)
    (1, 2)
    """
    kept = (fewest(l0) > eps) & (clean_prediction != -1)
    return int((kept & done[-1]).sum()), int(kept.sum())
