"""What attacks descend on: functions of logits, one number per sample, lower the nearer the goal, targeted or not.

A function marked with `@loss` is known by its name, underscores as hyphens: `sz.get("pgd-l0", loss="margin")`.

>>> sorted(LOSSES)
['cross-entropy', 'hinge', 'margin', 'probability']
"""

from collections.abc import Callable
from typing import Annotated

from torch import Tensor
from torch.nn import functional as F

from sigmazero.core.parameters import OneOf
from sigmazero.core.problem import Problem

Loss = Callable[[Tensor, Problem], Tensor]

LOSSES: dict[str, Loss] = {}
LossName = Annotated[str, OneOf(LOSSES)]


def loss(function: Loss) -> Loss:
    """Make a loss known by its name."""
    name = function.__name__.replace("_", "-")
    if name in LOSSES:
        raise ValueError(f"there is a loss called {name!r} already; give the function another name")
    LOSSES[name] = function
    return function


def named(name: str, problem: Problem) -> Callable[[Tensor], Tensor]:
    """A loss by name as a function of the logits alone, as `Oracle.value_and_grad` takes it."""
    function = LOSSES[name]
    return lambda logits: function(logits, problem)


@loss
def margin(logits: Tensor, problem: Problem) -> Tensor:
    """Own logit minus the best other one, or the reverse for a target; below 0 the goal is reached."""
    return problem.margin(logits)


@loss
def hinge(logits: Tensor, problem: Problem) -> Tensor:
    """The margin's positive part: 0 once the goal is reached."""
    return problem.margin(logits).relu()


@loss
def cross_entropy(logits: Tensor, problem: Problem) -> Tensor:
    """Logarithm of the probability of the true class, or minus that of the target."""
    return problem.downhill(-F.cross_entropy(logits, problem.y, reduction="none"))


@loss
def probability(logits: Tensor, problem: Problem) -> Tensor:
    """Probability of the true class, or minus that of the target."""
    return problem.downhill(logits.softmax(1).gather(1, problem.y[:, None]).squeeze(1))
