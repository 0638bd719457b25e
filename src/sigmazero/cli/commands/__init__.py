"""One file per command, found by itself: `hello.py` with a function `hello` is `sigmazero hello`.

A command that has commands of its own, such as `list`, is a `typer.Typer` called `app` in its file.
"""

import pkgutil
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

# The order of `sigmazero --help`. Commands that are not named here come after these, by their names.
ORDER = (
    *("demo", "attack", "auto", "certify", "doctor", "space", "fetch", "list"),
    *("validate", "run", "status", "view", "merge", "verify", "export", "transfer", "report"),
    *("board", "docs"),
)


LISTS = ("--models", "--attacks")  # options that take several names, with spaces or commas between them


FIRST = ("--model", "--data")  # options that may be given by their place: `sigmazero auto M1 mnist`


class Lenient(TyperCommand):
    """A command whose options of several names take them as people write them: `--models M1 M2`.

    A command of one model and one data set takes these also as its first words.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; the words after such an option, up to the next option, belong to it."""
        args = self._named(args)
        listed = [name for name in LISTS if any(name in each.opts for each in self.params)]
        joined: list[str] = []
        taking = False
        for word in args:
            if taking and not word.startswith("-") and joined[-1] not in listed:
                joined[-1] += f",{word}"
                continue
            taking = word in listed or (taking and not word.startswith("-"))
            joined.append(word)
        return super().parse_args(ctx, joined)

    def _named(self, args: list[str]) -> list[str]:
        """The arguments with the names of the first two."""
        single = {name for each in self.params for name in each.opts if each.required and not each.multiple}
        if not single.issuperset(FIRST) or any(each.param_type_name == "argument" for each in self.params):
            return args
        count = next((k for k, word in enumerate(args) if word.startswith("-")), len(args))
        if count != len(FIRST):
            return args
        return [*(part for pair in zip(FIRST, args, strict=False) for part in pair), *args[count:]]


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
            app.command(name, cls=Lenient)(getattr(module, name))
        else:
            raise AttributeError(f"{module.__file__} has no function {name!r}; define one, or a typer.Typer named app")
