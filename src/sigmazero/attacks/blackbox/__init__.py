"""Attacks on models that give scores, or labels alone."""
