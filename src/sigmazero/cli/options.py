"""Options that several commands share. Each has one meaning, whatever the command."""

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

# Options by the panel of the help that they are in.
about_data, about_attack, about_changes, about_run, about_gate = (
    partial(typer.Option, rich_help_panel=panel)
    for panel in ("Model and data", "Attack", "What may change", "Running", "Gate")
)
GROUP: Any = {"add_completion": False, "no_args_is_help": True}  # settings of a command that has commands

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A code such as M1, file.py:build, package.module:build, or an .onnx or .pt2 file."
    ),
]
DataName = Annotated[
    str,
    typer.Argument(
        metavar="DATA", help="A data set's name, an .npz file of images and labels, a table, or a folder of pictures."
    ),
]
StoreFile = Annotated[Path, typer.Argument(metavar="STORE", help="A store, such as runs/small.db.")]

Weights = Annotated[
    Path | None,
    about_data(metavar="FILE", help="State dict for the model (.pt or .safetensors)."),
]
Normalize = Annotated[
    str | None,
    about_data(metavar="MEAN,STD", help="Normalise inputs before the network: 0.5,0.25 or mnist, cifar10, imagenet."),
]
RowNumbers = Annotated[
    str | None,
    about_data(metavar="ROWS", help="Use these rows: 0:100, or 5,7,9, or 0:100,250."),
]
Limit = Annotated[
    int | None,
    about_data(metavar="N", help="Use at most N rows: a fixed sample with each class in its share."),
]
Shuffle = Annotated[
    int | None,
    about_data(metavar="N", help="Draw the rows of --limit at random, by this seed."),
]

Steps = Annotated[int | None, about_attack(metavar="N", help="Steps of the attack; its own number by default.")]
UnitName = Annotated[
    Literal["feature", "pixel"],
    about_attack("--unit", help="What counts as one change: a value, or a pixel with all its channels."),
]
Seed = Annotated[int, about_attack(metavar="N", help="Seed of the attack's random numbers.")]

SpaceFile = Annotated[
    Path | None,
    about_changes("--space", metavar="FILE", help="A TOML file: what may change, to which values, at what cost."),
]
Bounds = Annotated[
    tuple[float, float] | None,
    about_changes("--bounds", metavar="LOW HIGH", help="The ends of every input value; 0 and 1 by default."),
]
MaskFile = Annotated[
    Path | None,
    about_changes("--mask", metavar="FILE", help="Booleans as .npy: true where a value may change."),
]

BatchSize = Annotated[int | None, about_run(metavar="N", help="Rows in one batch.")]
Device = Annotated[
    str,
    about_run(metavar="NAME", help="cpu, cuda, cuda:1, or auto: cuda where there is one."),
]
Precision = Annotated[
    Literal["fp32", "tf32", "bf16"] | None,
    about_run(help="Number format of the search; by default as torch computes."),
]
KeepIn = Annotated[
    Path | None,
    about_run(
        "--store", metavar="FILE", help="Keep results in this file; the same command then does only what is missing."
    ),
]
Allow = Annotated[
    list[str] | None,
    about_run(metavar="CODE", help="Accept this finding instead of exiting with 3 (repeatable)."),
]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Run the Python code that a file names or holds.")]
Ks = Annotated[
    list[str] | None, typer.Option("--k", metavar="K", help="Changes to give success rates at: 24,50 or repeated.")
]
Cost = Annotated[bool, typer.Option("--cost", help="Count what changes cost instead of their number.")]
Mix = Annotated[bool, typer.Option("--mix", help="Allow runs with different settings side by side.")]
