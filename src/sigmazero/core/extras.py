"""Optional packages: imported where they are used; an error names the extra that installs a missing one."""

import importlib
from typing import Any


class MissingExtra(ImportError):
    """An optional package is needed and cannot be imported."""


def require(module: str, extra: str, purpose: str, instead: str = "") -> Any:
    """Import an optional package; the error names the extra that installs it, and `instead` an alternative.

    >>> require("no_such_package", "data", "the data set 'x'")
    Traceback (most recent call last):
    ...
    sigmazero.core.extras.MissingExtra: the data set 'x' needs the package 'no_such_package', which cannot be imported \
(ModuleNotFoundError: No module named 'no_such_package'); install it with: pip install 'sigmazero[data]'
    """
    try:
        return importlib.import_module(module)
    except Exception as error:  # a broken installation fails in many ways besides ImportError
        raise MissingExtra(
            f"{purpose} needs the package {module.partition('.')[0]!r}, which cannot be imported "
            f"({type(error).__name__}: {error}); install it with: pip install 'sigmazero[{extra}]'{instead}"
        ) from error
