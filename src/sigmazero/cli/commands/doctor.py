"""`sigmazero doctor`: what would make an attack's numbers meaningless."""

from typing import Annotated

import typer

from sigmazero import models
from sigmazero.cli import options
from sigmazero.cli.allowed import allowed
from sigmazero.cli.console import say
from sigmazero.cli.findings import Claimed, claim
from sigmazero.cli.rows import load_rows
from sigmazero.core.findings import render
from sigmazero.models.doctor import examine


def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model, as for attack --model.")],
    data_name: Annotated[str, typer.Argument(metavar="DATA", help="A data set, as for attack --data.")],
    weights: options.WeightsFile = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    normalize: options.MeanAndStd = None,
    space: options.SpaceFile = None,
    bounds: options.BoxEnds = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    seed: options.Seed = None,
    device: options.DeviceName = "auto",
    claimed: Claimed = None,
) -> None:
    """Examine a model on a few rows; exit code 1 if an attack on it would mean nothing.

    \b
    Example:
      sigmazero doctor net.py:build mine.npz --weights net.pt
    """
    place = options.device(device)
    network = models.load(model, weights=weights, model_dir=model_dir, normalize=normalize, device=place)
    chosen = load_rows(data_name, rows, limit, seed, data_dir)
    may = allowed(chosen, space, bounds)
    images, labels = chosen.images.to(place), chosen.labels.to(place)
    findings = examine(network, images, labels, bounds=may.bounds, space=may.space, claimed=claim(model, claimed))
    say(render(findings))
    if any(finding.severity == "error" for finding in findings):
        raise typer.Exit(1)
