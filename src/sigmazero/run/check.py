"""Check points from anywhere as the points of our own attacks are checked.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> x, x_adv = torch.full((2, 4), 0.5), torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.4, 0.5, 0.5, 0.5]])
>>> result = sz.check(model, x, torch.tensor([0, 0]), x_adv)
>>> result.l0.tolist(), result.success.tolist()
([2.0, inf], [True, False])
"""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from sigmazero.core.attack import as_model
from sigmazero.core.domain import Unit
from sigmazero.core.incumbents import Incumbents
from sigmazero.core.inputs import Array, Bounds, as_inputs, follow, make_problem
from sigmazero.core.messages import warn_caller
from sigmazero.core.ops import take
from sigmazero.core.problem import RECORDS, Problem, integer
from sigmazero.core.result import Result
from sigmazero.run.precision import Numbers, turn
from sigmazero.run.verify import Verifier, check_logits

if TYPE_CHECKING:
    from sigmazero.spaces.space import Space

ROWS = 256


def check(
    model: object,
    x: Array,
    y: Array,
    x_adv: Array,
    *,
    targeted: bool = False,
    bounds: Bounds = (0.0, 1.0),
    unit: Unit = "feature",
    mask: Array | None = None,
    space: "Space | None" = None,
    budget: int | None = None,
    ids: Array | None = None,
    margin: float = 0.0,
    batch_size: int = ROWS,
) -> Result:
    """Report which given points fool the model, and how many features each changes.

    Every point is verified as `Attack.run` verifies its own: in strict fp32 and in your process's settings, inside the
    box, the mask and the space, by at least `margin`. A point that does not hold is a failure (l0 infinite). So is a
    point that leaves the box, by however little; a warning counts such points. A point with more changes than `budget`
    is found, but is no success. The other arguments are those of `Attack.run`.
    To compare points with attacks in a store, give `sz.foreign(x_adv)` to `sz.evaluate`.
    """
    if not (integer(batch_size) and batch_size >= 1):
        raise ValueError(f"batch_size={batch_size!r} must be a whole number, 1 or more")
    network = as_model(model, x)
    given, points = as_inputs(x, network, bounds), as_inputs(x_adv, network, bounds)
    if points.shape != given.shape:
        raise ValueError(
            f"x_adv has shape {tuple(points.shape)}, expected {tuple(given.shape)}: one point for each input"
        )
    problem = make_problem(
        follow(given, network),
        y,
        targeted=targeted,
        bounds=bounds,
        unit=unit,
        mask=mask,
        space=space,
        budget=budget,
        ids=ids,
        start=points,
        margin=margin,
    )
    return check_start(network, problem, batch_size).to(given.device)


def check_start(model: object, problem: Problem, batch_size: int = ROWS) -> Result:
    """Check the starting points of a problem, as `check` does."""
    began = time.perf_counter()
    network, numbers = as_model(model, problem.x), Numbers.around(problem.x)
    verifier = Verifier(network, numbers)
    problem = replace(problem, clean=verifier.checks, checks=verifier.checks)
    assert problem.start is not None  # as both callers give one
    if outside := int((~problem.domain.within(problem.start)).sum()):
        rule = "the box" if problem.domain.free is None else "the box or the mask"
        warn_caller(
            f"{outside} of {len(problem)} points leave {rule} and count as failures; clip them, or pass bounds="
        )
    parts = torch.split(torch.arange(len(problem), device=problem.x.device), batch_size)
    with turn(network, problem.x.device, numbers):
        found = Result.join([_checked(verifier, problem.take(rows)) for rows in parts])
    return replace(found, seconds=time.perf_counter() - began)


@torch.inference_mode(False)
def _checked(verifier: Verifier, problem: Problem) -> Result:
    """Report some rows. A clean input that is wrong already needs no change, whatever was found for it."""
    assert problem.start is not None
    given = verifier.ask(problem.x.clone()) if len(problem) else [problem.x.new_zeros(0, 2)]
    answers = torch.stack([check_logits(each, problem) for each in given], 1)
    clean, finite = answers[:, 0], answers.isfinite().flatten(1).all(1)
    already = torch.stack([problem.goal.reached(each) for each in answers.unbind(1)]).all(0) & finite
    # In the user's units, as the verifier takes them.
    incumbents = replace(Incumbents.start(problem), points=torch.stack([problem.x] * RECORDS, 1), broken=~finite)
    changes = problem.domain.count(problem.start).sites
    claimed = ~already & problem.domain.within(problem.start) & (changes > 0) & finite
    incumbents.push(claimed, problem.start, changes, changes, torch.zeros_like(changes))
    incumbents.push(already, problem.x, *[torch.zeros_like(changes)] * 3)
    ways = {True: already.nonzero().squeeze(1), False: (~already).nonzero().squeeze(1)}
    parts = [
        verifier.report(problem.take(rows), take(incumbents, rows), clean[rows], settled=settled)
        for settled, rows in ways.items()
    ]
    return Result.join(parts).take(torch.cat([*ways.values()]).argsort())
