"""The top of the command line: the list of commands, the errors, and the exit codes.

0    success
1    a check failed, or work is left
2    wrong input, or an error
3    findings make the numbers unreliable
130  interrupted by Ctrl-C
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from sigmazero.cli import console
from sigmazero.core.messages import describe

PANELS = {
    "Measure a model": ("demo", "attack", "auto", "certify", "doctor"),
    "Run a benchmark": ("run", "status", "merge", "verify", "transfer", "export"),
    "Look at results": ("report", "plot", "view"),
    "Models, data, constraints": ("list", "fetch", "space"),
    "Leaderboard": ("board",),
}
NAMES = tuple(name for names in PANELS.values() for name in names)
SETTINGS: Any = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": "rich",
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Commands(Mapping[str, Any]):
    """Commands by name; the file of a command is imported when it is used."""

    def __getitem__(self, name: str) -> Any:
        """Import a command."""
        if name not in NAMES:
            raise KeyError(name)
        module = import_module(f"sigmazero.cli.commands.{name}")
        made = getattr(module, "app", None)
        if made is None:
            made = typer.Typer(**SETTINGS)
            made.command(name)(getattr(module, name))
        command: Any = get_command(made)
        command.name = name
        for each in (command, *getattr(command, "commands", {}).values()):
            each.help = "\n\n".join(map(_joined, (each.help or "").split("\n\n")))
        command.rich_help_panel = next(panel for panel, names in PANELS.items() if name in names)
        return command

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names in the order of the help."""
        return iter(NAMES)

    def __len__(self) -> int:
        """Return the number of commands."""
        return len(NAMES)


def _joined(paragraph: str) -> str:
    """Join the lines of a paragraph, which typer would break where the source does; not those of an example."""
    return paragraph if "\b" in paragraph else paragraph.replace("\n", " ")


class App(TyperGroup):
    """Run a command; print an error as one line on stderr and exit with its code."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = Commands()  # type: ignore[assignment]

    def main(self, args: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """Run the command line and exit. `--debug` may come anywhere."""
        words = [str(word) for word in (sys.argv[1:] if args is None else args)]
        debug = "--debug" in words or os.environ.get("SIGMAZERO_DEBUG", "0") not in ("", "0")
        console.prepare()
        code = 2
        try:
            options["standalone_mode"] = False
            code = super().main([word for word in words if word != "--debug"], **options) or 0
        except Exception as error:
            if debug and not hasattr(error, "format_message"):
                raise
            if type(error).__name__ == "NoArgsIsHelpError":
                error.ctx.get_help()  # type: ignore[attr-defined]
            else:
                console.warn(f"error: {message(error, words)}", style="red")
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; for these two exceptions typer has other exit codes."""
        try:
            done = super().invoke(ctx)
            sys.stdout.flush()
            return done
        except KeyboardInterrupt:
            console.warn("interrupted")
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of our output has gone, as `head` does
            console.discard()
            raise typer.Exit(141) from None


def message(error: Exception, words: Sequence[str] = ()) -> str:
    """Return an error as one line, with a command or option that helps."""
    if hasattr(error, "format_message"):  # of the parser
        text = str(error.format_message()).replace("Value error, ", "").strip(" .")
        context, param = getattr(error, "ctx", None), getattr(error, "param", None)
        for word, value in pairwise([*words, ""]):
            if param is not None and word in param.opts and value not in text:
                text += f" ({value!r} was given)"
        return text.replace("\n", " ") + (f"; see {context.command_path} --help" if context else "")
    return describe(error) + hint(error)


def hint(error: Exception) -> str:
    """Name the command or option that helps; the library does not know the command line.

    >>> hint(ValueError("give bounds=(0, 255)"))
    ' (on the command line: --bounds 0 255)'
    """
    from sigmazero.data import MissingData, MissingNotes
    from sigmazero.models import MissingWeights
    from sigmazero.report.runs import MixtureError

    match error:
        case MissingWeights(fetch=str(code)):
            return f" (on the command line: sigmazero fetch {code})"
        case MissingNotes(table=str(table), notes=str(notes)):
            return f" (on the command line: sigmazero space draft {Path(table).name} > {notes})"
        case MissingData():
            return " (on the command line: sigmazero list datasets)"
        case MixtureError():
            return " (on the command line: --mix)"
        case ValueError() if found := re.search(r"\bbounds=\(([^\s,]+), ([^\s,]+)\)", str(error)):
            return f" (on the command line: --bounds {found[1]} {found[2]})"
    return ""


def _version(wanted: bool) -> None:
    if wanted:
        import sigmazero

        console.echo(f"sigmazero {sigmazero.__version__}")
        raise typer.Exit


app = typer.Typer(cls=App, no_args_is_help=True, **SETTINGS | {"add_completion": True})


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error (or set SIGMAZERO_DEBUG=1).")
    ] = False,
) -> None:
    """How many input values must change before this model is wrong?

    Weights and data are read from the folder SIGMAZERO_HOME, then from the cache of your system.

    \b
    Example:
      sigmazero demo
    """
    del version, debug  # handled by the callback and by the group
