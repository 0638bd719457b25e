"""How far an attack is from the truth: bounds that are proved, optima that are known, and smoothed classifiers."""

__all__ = ["suite"]
