"""Some of a plan's questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sigmazero.bench.plan import Plan
from sigmazero.core.inputs import hint


def some_of(plan: Plan, models: Sequence[str] = (), attacks: Sequence[str] = ()) -> Plan:
    """The questions about these models and attacks alone; all of them where none is named."""
    for kind, wanted, held in (
        ("model", models, [question.model.name for question in plan.questions]),
        ("attack", attacks, [question.label for question in plan.questions]),
    ):
        for name in wanted:
            if name not in held:
                raise ValueError(f"the plan {plan.name!r} has no {kind} {name!r}; {hint(name, dict.fromkeys(held))}")
    kept = [
        question
        for question in plan.questions
        if (not models or question.model.name in models) and (not attacks or question.label in attacks)
    ]
    if not kept:
        raise ValueError(f"the plan {plan.name!r} asks nothing of these models and attacks together")
    return replace(plan, questions=tuple(kept))
