"""One file per command, found by itself: `hello.py` with a function `hello` is `sigmazero hello`.

A command that has commands of its own, such as `list`, is a `typer.Typer` called `app` in its file.
"""

import pkgutil
from importlib import import_module

import typer

# The order of `sigmazero --help`. Commands that are not named here come after these, by their names.
ORDER = (
    *("demo", "attack", "auto", "doctor", "fetch", "list"),
    *("validate", "run", "submit", "status", "view", "merge", "verify", "repair", "export", "report", "docs"),
)


def names() -> list[str]:
    """The files in this folder, in the order of the help."""
    found = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    return sorted(found, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))


def add_all(app: typer.Typer) -> None:
    """Give the command line every command there is."""
    for name in names():
        module = import_module(f"{__name__}.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        elif hasattr(module, name):
            app.command(name)(getattr(module, name))
        else:
            raise AttributeError(f"{module.__file__} has no function {name!r}; define one, or a typer.Typer named app")
