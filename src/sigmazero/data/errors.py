"""What can go wrong with data, as exceptions whose text says what to do next."""

from __future__ import annotations

import importlib
from types import ModuleType


class DataError(ValueError):
    """Data that cannot be used as it is: wrong format, damaged, or asked for wrongly."""


class MissingData(DataError, FileNotFoundError):
    """Files that are in none of the searched folders."""


class MissingExtra(DataError, ImportError):
    """A data set that needs an optional package."""


def optional(module: str, package: str) -> ModuleType:
    """Import an optional module, or say which extra brings it.

    >>> optional("no_such_module", "no-such-package")
    Traceback (most recent call last):
    ...
    sigmazero.data.errors.MissingExtra: this needs no-such-package; run: pip install 'sigmazero[data]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # A package that is present but lacks one of its own parts must not be reported as absent.
        if error.name is None or module.split(".")[0] != error.name.split(".")[0]:
            raise
        raise MissingExtra(f"this needs {package}; run: pip install 'sigmazero[data]'") from error
