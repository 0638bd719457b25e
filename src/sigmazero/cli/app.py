"""The top of the command line: version, help, and what an error looks like."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from sigmazero.cli import console
from sigmazero.cli.commands import names
from sigmazero.cli.console import INTERRUPTED, say, tell
from sigmazero.core.messages import visible
from sigmazero.data import MissingData, MissingNotes
from sigmazero.models import MissingWeights
from sigmazero.report.runs import MixtureError

# What a user can cause and mend. Torch reports wrong shapes and full devices as RuntimeError.
MENDABLE = (ValueError, LookupError, TypeError, OSError, ImportError, MemoryError, RuntimeError)
# What a user's model may raise besides; the texts of these say little without their kind.
FOREIGN = (ArithmeticError, AssertionError, AttributeError, NameError, SyntaxError)


class Guarded(TyperGroup):
    """Turns errors of users into one message and exit code 2, and Ctrl-C into exit code 130."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The commands in their declared order; typer would put those with commands of their own last."""
        return [name for name in names() if name in self.commands]

    def main(self, *arguments: Any, **options: Any) -> Any:
        """Read the command line and run it, with streams that print whatever comes."""
        console.prepare()
        return super().main(*arguments, **options)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Read the options that come before the command."""
        with _readable():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; what it could not print is told by the exit code."""
        with _readable():
            result = self._invoke(ctx)
        if code := console.failure():
            raise typer.Exit(code)
        return result

    def _invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            tell("interrupted")
            raise typer.Exit(INTERRUPTED) from None
        except (typer.Exit, typer.Abort):  # typer knows what to do with these
            raise
        except (*MENDABLE, *FOREIGN) as error:
            if ctx.params.get("debug") or os.environ.get("SIGMAZERO_DEBUG", "0") not in ("", "0"):
                raise
            tell(f"error: {message(error)}", style="red")
            raise typer.Exit(2) from None


@contextmanager
def _readable() -> Iterator[None]:
    """Spell out control characters in what typer says about arguments, which it prints itself."""
    try:
        yield
    except Exception as error:
        if isinstance(said := getattr(error, "message", None), str):
            error.message = visible(said)  # type: ignore[attr-defined]
        raise


def message(error: BaseException) -> str:
    """The text of an error; a KeyError would show its own in quotes."""
    text = str(error.args[0]) if isinstance(error, KeyError) and error.args else str(error)
    if isinstance(error, FOREIGN):
        text = f"{type(error).__name__}: {text}"
    return (text or type(error).__name__) + hint(error)


def hint(error: BaseException) -> str:
    """What the library cannot say, since it does not know the command line: which command or option helps."""
    match error:
        case MissingWeights(fetch=str(code)):
            return f" (on the command line: sigmazero fetch {code})"
        case MissingNotes(table=str(table), notes=str(notes)):
            return f" (on the command line: sigmazero space draft {Path(table).name} > {notes})"
        case MissingData():
            return " (on the command line: --data-dir names a folder, sigmazero list datasets shows the data sets)"
        case MixtureError():
            return " (on the command line: --mix)"
    return " (sigmazero --debug ... shows where)" if isinstance(error, FOREIGN) else ""


def _version(wanted: bool) -> None:
    if wanted:
        import sigmazero

        say(f"sigmazero {sigmazero.__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Guarded,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show where an error came from (or set SIGMAZERO_DEBUG=1).")
    ] = False,
) -> None:
    """How many input values must change before this model is wrong?

    \b
    Example:
      sigmazero demo
    """
    del version, debug  # acted upon by the callback and by the group
