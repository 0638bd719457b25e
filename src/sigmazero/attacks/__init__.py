"""Attacks: one file for each paper, and the registry of their names."""

from sigmazero.attacks.registry import ATTACKS, get, register

__all__ = ["ATTACKS", "get", "register"]
