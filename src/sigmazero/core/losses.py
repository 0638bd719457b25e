"""Losses: functions of logits, one number per sample, that fall towards the goal, targeted or not.

A function marked with `@loss` is registered under its name, underscores as hyphens: `sz.get("pgd-l0", loss="margin")`.

>>> sorted(LOSSES)
['cross-entropy', 'hinge', 'margin', 'probability']
"""

from collections.abc import Callable
from typing import Annotated

from torch import Tensor
from torch.nn import functional as F

from sigmazero.core.goal import Goal
from sigmazero.core.parameters import OneOf

Loss = Callable[[Tensor, Goal], Tensor]

LOSSES: dict[str, Loss] = {}
LossName = Annotated[str, OneOf(LOSSES), "what the attack descends on"]


def loss(function: Loss) -> Loss:
    """Register a loss under its name."""
    name = function.__name__.replace("_", "-")
    if name in LOSSES:
        raise ValueError(f"there is a loss {name!r} already; give the function another name")
    LOSSES[name] = function
    return function


def get(name: str, goal: Goal) -> Callable[[Tensor], Tensor]:
    """Return a loss by name as a function of the logits alone, as `Oracle.value_and_grad` takes it."""
    function = LOSSES[name]
    return lambda logits: function(logits, goal)


@loss
def margin(logits: Tensor, goal: Goal) -> Tensor:
    """Return the class's logit minus the best other one, or the reverse for a target; below 0 the goal is reached."""
    return goal.margin(logits)


@loss
def hinge(logits: Tensor, goal: Goal) -> Tensor:
    """Return the positive part of the margin: 0 once the goal is reached."""
    return goal.margin(logits).relu()


@loss
def cross_entropy(logits: Tensor, goal: Goal) -> Tensor:
    """Return the logarithm of the probability of the true class, or minus that of the target."""
    return goal.downhill(-F.cross_entropy(logits, goal.y, reduction="none"))


@loss
def probability(logits: Tensor, goal: Goal) -> Tensor:
    """Return the probability of the true class, or minus that of the target."""
    return goal.downhill(logits.softmax(1).gather(1, goal.y[:, None]).squeeze(1))
