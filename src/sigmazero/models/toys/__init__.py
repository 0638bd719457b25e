"""Small problems made in code, for trials without downloads."""
