"""Warnings that point at the user's own line, however deep in this package they are given."""

import sys
import warnings


def warn_caller(text: str, kind: type[Warning] = UserWarning) -> None:
    """Warn, naming the innermost line that is not of this package."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, kind, stacklevel=level)
