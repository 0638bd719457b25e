"""Bounds that are proved, optima that are known, and smoothed classifiers: how far an attack is from the truth."""

__all__ = ["suite"]
