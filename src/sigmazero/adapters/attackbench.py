"""Our attacks in AttackBench: `attackbench.run_attack(model, loader, sigma_zero, "l0")`.

AttackBench wraps the model, counts what passes and ends a sample's queries at a limit, 2000 by default. After that it
gives made-up answers. Our attacks ask about the clean input before and check what they found after; without queries
kept back for that, a search that uses up the limit has its finds refuted by made-up answers. So the attacks here read
the limit from the model they are given and spend at most so much, checks included:

    an attack with a limit of its own (sigma-swap, swap-search)     queries = the limit
    one that asks forwards and backwards once a step                steps = (limit − 3) / 2, if it has more

Others keep the number of steps that they are told. AttackBench tells whose query it is by the nearest input: to have
its counts per sample agree with ours, use a loader with batches of one. AttackBench itself is not imported here.
"""

from typing import Any

from torch import Tensor

from sigmazero.adapters._natives import Natives, Told, function_name, simple, told
from sigmazero.core.attack import Attack
from sigmazero.core.hardware import Hardware
from sigmazero.core.oracle import Model

__all__ = ["run"]

CHECKS = 3  # the clean input, and at most two finds
PAIRS = ("SigmaZero", "FMN", "PDPGD")  # classes of attacks whose every step is one forward and one backward pass


def run(
    attack: str | Attack,
    model: Model,
    inputs: Tensor,
    labels: Tensor,
    targeted: bool = False,
    targets: Tensor | None = None,
    threat_model: str = "l0",
    **options: Any,
) -> Tensor:
    """Adversarial inputs, within the limit of queries that AttackBench's model has."""
    norms = {str(threat_model), str(options.pop("norm", "l0"))}  # it may say it by either name
    if norms != {"l0"}:
        raise ValueError(f"threat_model={max(norms)!r}: these attacks keep the number of changes small, 'l0'")
    goal = targets if targeted and targets is not None else labels
    # A copy made for speed would pass by what counts the queries.
    options.setdefault("hardware", Hardware(prepare="none"))
    return within(told(attack, options), limit_of(model)).inputs(model, inputs, goal, targeted=targeted)


def limit_of(model: Model) -> int | None:
    """The most forwards and backwards that AttackBench allows a sample; None for any number, or another model."""
    limit = getattr(model, "num_max_propagations", None)
    return None if limit is None else int(limit)


def within(asked: Told, limit: int | None) -> Told:
    """The same attack, asking no more than a limit.

    >>> within(told("sigma-zero", {}), 2000).attack.steps, within(told("sigma-swap", {}), 2000).attack.limit
    (998, 2000)
    """
    attack = asked.attack
    if limit is None:
        return asked
    if "queries" in attack.parameters():
        least = limit if attack.limit is None else min(limit, attack.limit)
        return Told(told(attack, {"queries": least}).attack, asked.how)
    if type(attack).__name__ in PAIRS:
        steps = min(attack.steps, max(1, (limit - CHECKS) // 2))
        return Told(told(attack, {"steps": steps}).attack, asked.how)
    return asked


def _made(attack: Attack) -> Any:
    made = simple(run, attack, __name__)
    made._attackbench_name, made._attackbench_lib = function_name(attack.name), "sigmazero"  # type: ignore[attr-defined]
    return made


_natives = Natives(__name__, _made, function_name)
__getattr__ = _natives


def __dir__() -> list[str]:
    return [*_natives.names(), *__all__]
