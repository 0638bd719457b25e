"""Proved lower bounds (`certify`), networks with proved optima (`suite`), and smoothed classifiers (`smoothing`)."""

__all__ = ["suite"]
