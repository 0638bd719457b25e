"""Every registered attack with few steps, the options it needs, and whether two results are equal."""

from dataclasses import fields
from typing import Any

import torch

import sigmazero as sz

EVERY = sorted(sz.ATTACKS)
COSTLY = ("bb", "ead", "genetic")  # a step solves a problem, is taken again in each of nine rounds, or asks 50 times


def small(name: str) -> sz.Attack:
    """The attack with as few steps as show its behaviour."""
    return _at_most(name, 8, 24)


def longer(name: str) -> sz.Attack:
    """The attack with so many steps that rows leave on the way."""
    return _at_most(name, 12, 40)


def _at_most(name: str, costly: int, others: int) -> sz.Attack:
    return sz.get(name, steps=min(sz.ATTACKS[name].steps, costly if name.startswith(COSTLY) else others))


def how(attack: sz.Attack, **options: Any) -> dict[str, Any]:
    """Options of a run, with the budget that fixed-budget attacks need."""
    return ({"budget": 12} if attack.kind == "budget" else {}) | options


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
