"""Spaces: what may change in an input, to which values, at what cost."""
