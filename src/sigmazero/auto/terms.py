"""What a gate asks of a model, and what follows from the figures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from sigmazero.core.findings import Finding, gating

GateOutcome = Literal["passed", "below", "findings", "measured"]
EXIT: dict[str, int] = {"passed": 0, "measured": 0, "below": 1, "findings": 3}  # 2 is misuse, as everywhere


@dataclass(frozen=True)
class GateTerms:
    """What must hold.

    at_least  the share of the rows that must stay right; None asks for nothing, and only measures
    allow     codes of findings that are known and accepted
    complete  run every member to its end, although it may be certain before that too few rows stay right
    """

    at_least: float | None = None
    allow: tuple[str, ...] = ()
    complete: bool = False

    def __post_init__(self) -> None:
        """Refuse what is no share, and codes that do not exist."""
        if self.at_least is not None and not 0 <= self.at_least <= 1:
            raise ValueError(f"at_least={self.at_least!r} must be a share from 0 to 1, such as 0.6")
        gating([], self.allow)

    def needed(self, rows: int) -> int:
        """How many of so many rows must stay right.

        >>> GateTerms(0.6).needed(10), GateTerms(0.605).needed(10), GateTerms(0.07).needed(100)
        (6, 7, 7)
        """
        # As the number is written: 0.07 * 100 is a little more than 7.
        return math.ceil(Fraction(str(self.at_least or 0)) * rows)

    def lost(self, at_most: int, rows: int) -> bool:
        """Whether it is certain that too few rows stay right, when at most so many do.

        Nothing else is certain before the end: as long as members search, a finding may come of it.

        >>> GateTerms(0.6).lost(6, 10), GateTerms(0.6).lost(5, 10), GateTerms().lost(0, 10)
        (False, True, False)
        """
        return at_most < self.needed(rows)

    def blocking(self, findings: Sequence[Finding]) -> list[Finding]:
        """The findings for which a figure cannot be believed, and that nobody has accepted."""
        return gating(findings, self.allow)

    def outcome(self, robust: int, rows: int, findings: Sequence[Finding]) -> GateOutcome:
        """What it comes to. Points that fool the model are facts, whatever else is wrong with it: they go first."""
        if self.lost(robust, rows):
            return "below"
        if self.blocking(findings):
            return "findings"
        return "measured" if self.at_least is None else "passed"
