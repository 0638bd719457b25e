"""Every registered attack with few steps, the options it needs, and whether two results are equal."""

from dataclasses import fields
from typing import Any

import torch

import sigmazero as sz

EVERY = sorted(sz.ATTACKS)
COSTLY = ("bb", "ead", "genetic")  # a step solves a problem, is taken again in each of nine rounds, or asks 50 times


def small(name: str) -> sz.Attack:
    """The attack with as few steps as show its behaviour."""
    return short(name, 8 if name.startswith(COSTLY) else 20)


def longer(name: str) -> sz.Attack:
    """The attack with so many steps that rows leave on the way."""
    return short(name, 10 if name.startswith(COSTLY) else 28)


def short(name: str, steps: int) -> sz.Attack:
    """The attack with at most so many steps, and few tries to find a start."""
    more: dict[str, Any] = {"directions": 20, "blends": 20} if name.startswith("bb") else {}
    return sz.get(name, steps=min(sz.ATTACKS[name].steps, steps), **more)


def how(attack: sz.Attack, budget: int = 12, **options: Any) -> dict[str, Any]:
    """Options of a run, with the budget that fixed-budget attacks need, and they alone get."""
    return options | ({"budget": budget} if attack.kind == "budget" else {})


def same(a: sz.Result, b: sz.Result) -> None:
    """Check that two results agree in every tensor, to the bit."""
    for field in fields(a):
        one, two = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, torch.Tensor):
            assert one.dtype == two.dtype, field.name
            assert torch.equal(one, two), field.name
    assert (a.own is None) == (b.own is None)
    if a.own is not None and b.own is not None:
        same(a.own, b.own)
