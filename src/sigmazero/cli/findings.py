"""What commands do about findings: say at the end which of them make the figures doubtful, and exit with 3."""

from collections.abc import Collection, Sequence
from typing import Annotated

import typer

from sigmazero import models
from sigmazero.cli.console import tell
from sigmazero.core.findings import Finding, gating

DOUBTFUL = 3  # exit code: there are figures, and a finding says that they may mean nothing


def allowed_codes(codes: list[str] | None) -> list[str]:
    """The codes that --allow names, commas between some of them or not; an unknown one is refused at once.

    >>> allowed_codes(["sz003,SZ004"]), allowed_codes(None)
    (['SZ003', 'SZ004'], [])
    """
    found = [code.strip().upper() for text in codes or () for code in text.split(",") if code.strip()]
    gating([], found)
    return found


Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="CODE",
        help="A finding that is no reason for exit code 3; may be repeated.",
        callback=allowed_codes,
    ),
]
Claimed = Annotated[
    float | None,
    typer.Option("--claimed", metavar="PERCENT", help="Accuracy the model is known to have; the zoo's by default."),
]


def claim(model: str, said: float | None) -> float | None:
    """The accuracy that a model is known to have, in percent: what the user says, else what the zoo knows."""
    if said is not None and not 0 <= said <= 100:
        raise ValueError(f"--claimed {said:g} must be a percentage, 0 to 100")
    entry = models.find(model)
    known = None if entry is None else entry.clean_accuracy or entry.implied_accuracy
    return known if said is None else said


def end(findings: Sequence[Finding], allow: Collection[str] | None) -> None:
    """The last word of a command whose figures are printed: exit code 3 if a finding makes them doubtful."""
    errors = gating(findings, allow or ())
    for finding in errors:
        tell(f"error: {finding.code}: {finding.title}. {finding.detail}", style="red")
    if errors:
        codes = " ".join(f"--allow {code}" for code in sorted({finding.code for finding in errors}))
        tell(f"these figures may mean nothing. If you know why they do, say {codes}")
        raise typer.Exit(DOUBTFUL)
