"""Our attacks in AttackBench: `attackbench.run_attack(model, loader, sigma_zero, "l0")`.

AttackBench wraps the model, counts its queries, and gives made-up answers beyond a limit, 2000 for each sample by
default. Every attack here stays within it, the clean check and the verification included: those with a limit of their
own take it, those with a forward and a backward pass a step make fewer steps, all others are stopped shortly before it.
Its package is not imported here.
"""

from dataclasses import replace
from typing import Any

from torch import Tensor

from sigmazero.adapters._natives import Configured, Natives, configure, function_name, simple
from sigmazero.adapters.foreign import foreign
from sigmazero.core.attack import Attack
from sigmazero.core.hardware import Hardware
from sigmazero.core.oracle import Model

__all__ = ["run"]

CHECKS = 3  # queries for the clean input and for at most two points that were found
STOPPED_CHECKS = 6  # the same where an attack is stopped: what it returns is asked about and checked as well
PAIRS = ("SigmaZero", "FMN", "PDPGD")  # every step of these is one forward and one backward pass
UNCOPIED = Hardware(prepare="none")  # a copy of the model would not be counted
INSIDE = ("unit", "mask", "seed", "budget")  # options that an attack needs where it is stopped, too


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
    """Return adversarial inputs, found within the limit of queries of AttackBench's model."""
    norms = {str(threat_model), str(options.pop("norm", "l0"))}  # AttackBench uses either name
    if norms != {"l0"}:
        raise ValueError(f"threat_model={max(norms)!r}: these attacks keep the number of changes small, 'l0'")
    goal = targets if targeted and targets is not None else labels
    configured = configure(attack, {"hardware": UNCOPIED, **options})
    limit = getattr(model, "num_max_propagations", None)
    if limit is not None:
        configured = within(configured, int(limit))
    return configured.inputs(model, inputs, goal, targeted=targeted)


def within(configured: Configured, limit: int) -> Configured:
    """Return an attack that makes at most `limit` queries, forwards and backwards, for each sample.

    >>> [within(configure(name, {}), 2000).attack for name in ("sigma-zero", "sigma-swap")][0].steps
    998
    """
    attack = configured.attack
    if "queries" in attack.parameters():
        least = limit if attack.limit is None else min(limit, attack.limit)
        return configured._replace(attack=configure(attack, {"queries": least}).attack)
    most = max(1, limit - STOPPED_CHECKS)
    if type(attack).__name__ in PAIRS:
        return configured._replace(attack=replace(attack, steps=max(1, min(attack.steps, (limit - CHECKS) // 2))))
    if attack.iterations > attack.steps:  # several rounds of all steps: let them all begin
        queries = attack.iterations * (2 if attack.needs == "gradients" else 1)
        attack = replace(attack, steps=max(1, min(attack.steps, attack.steps * most // queries)))
    inside = {name: value for name, value in configured.how.items() if name in INSIDE}

    def stopped(model: Any, x: Tensor, y: Tensor, targeted: bool) -> Tensor:
        return attack.run(model, x, y, targeted=targeted, hardware=UNCOPIED, **inside).x_adv

    return configured._replace(attack=foreign(stopped, name=attack.name, max_queries=limit))


def _made(attack: Attack) -> Any:
    made = simple(run, attack, __name__)
    made._attackbench_name, made._attackbench_lib = function_name(attack.name), "sigmazero"  # type: ignore[attr-defined]
    return made


__getattr__ = Natives(__name__, _made, __all__, function_name)
__dir__ = __getattr__.names
