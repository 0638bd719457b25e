"""Arguments and options that several commands share, each with one meaning."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sigmazero.cli.inputs import allowed_codes

# Options by the panel of the help that shows them.
about_data, about_attack, about_changes, about_run, about_gate = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Model and data", "Attack", "What may change", "Running", "Gate")
)
GROUP: Any = {"add_completion": False, "no_args_is_help": True}  # settings of a command that has commands

ModelName = Annotated[
    str, typer.Argument(metavar="MODEL", help="A code such as M1, file.py:build, package.module:build, .onnx or .pt2.")
]
DataName = Annotated[
    str, typer.Argument(metavar="DATA", help="A name, an .npz of images and labels, a table, or a folder of pictures.")
]
StoreFile = Annotated[Path, typer.Argument(metavar="STORE", help="A store, such as runs/small.db.")]

Weights = Annotated[Path | None, about_data(metavar="FILE", help="State dict for the model (.pt or .safetensors).")]
Normalize = Annotated[
    str | None,
    about_data(metavar="MEAN,STD", help="Normalise inputs before the model: 0.5,0.25, or mnist, cifar10, imagenet."),
]
RowNumbers = Annotated[str | None, about_data(metavar="ROWS", help="Use these rows: 0:100, or 5,7,9, or 0:100,250.")]
Limit = Annotated[
    int | None, about_data(metavar="N", help="Use at most N rows: a fixed sample with each class in its share.")
]

UnitName = Annotated[
    Literal["feature", "pixel"],
    about_attack(help="What counts as one change: a value, or a pixel with all its channels."),
]
Seed = Annotated[int, about_attack(metavar="N", help="Seed of the attack's random numbers.")]
UpTo = Annotated[int, about_attack(metavar="N", help="Try to prove robustness against up to N changes.")]
TimeLimit = Annotated[
    float | None,
    about_attack(metavar="SECONDS", help="Stop the proof of one row after this time; attacks are not counted."),
]

SpaceFile = Annotated[
    Path | None,
    about_changes(metavar="FILE", help="A constraint file (TOML): what may change, to which values, at what cost."),
]
Bounds = Annotated[
    tuple[float, float] | None,
    about_changes(metavar="LOW HIGH", help="Range of the input values; 0 and 1 by default."),
]

BatchSize = Annotated[int | None, about_run(metavar="N", help="Rows in a batch.")]
Device = Annotated[str, about_run(metavar="NAME", help="cpu, cuda, cuda:1, or auto: cuda if there is one.")]
KeepIn = Annotated[
    Path | None,
    about_run(metavar="FILE", help="Keep the results in this file; the same command then runs only what is missing."),
]
Allow = Annotated[
    list[str] | None,
    about_run(
        metavar="CODE", callback=allowed_codes, help="Accept this finding instead of exiting with 3 (repeatable)."
    ),
]
TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="Run Python code that a plan, a store, a card or a pickle names.")
]
Ks = Annotated[
    list[str] | None, typer.Option("--k", metavar="K", help="Show success rates at K changes: 24,50 (repeatable).")
]
Cost = Annotated[bool, typer.Option("--cost", help="Count the cost of changes instead of their number.")]
Mix = Annotated[bool, typer.Option("--mix", help="Allow runs with different settings side by side.")]
