"""`sigmazero doctor`: what would make an attack's numbers meaningless."""

from typing import Annotated

import typer

from sigmazero.cli import inputs, options, output
from sigmazero.cli.console import echo

Claimed = Annotated[
    float | None,
    typer.Option("--claimed", metavar="PERCENT", help="Accuracy the model should have; the zoo's by default."),
]


def doctor(
    model: options.ModelName,
    data: options.DataName,
    weights: options.Weights = None,
    normalize: options.Normalize = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    shuffle: options.Shuffle = None,
    claimed: Claimed = None,
    space: options.SpaceFile = None,
    bounds: options.Bounds = None,
    device: options.Device = "auto",
    allow: options.Allow = None,
) -> None:
    """Check a model for problems that would make results meaningless.

    Exit code 3: an attack on this model would mean nothing.

    \b
    Example:
      sigmazero doctor net.py:build mine.npz --weights net.pt
    """
    from sigmazero import models
    from sigmazero.bench.constraints import Allowed
    from sigmazero.core.findings import render
    from sigmazero.models.doctor import examine

    where, codes = inputs.device(device), inputs.allowed_codes(allow)
    network = models.load(model, weights=weights, normalize=normalize, device=where)
    chosen = inputs.load_rows(data, rows, limit, shuffle, bounds)
    may = Allowed(**inputs.constraints(space, bounds)).on(chosen)
    images, labels = chosen.images.to(where), chosen.labels.to(where)
    expected = inputs.accuracy(model, claimed)
    findings = examine(network, images, labels, bounds=may.bounds, space=may.space, claimed=expected)
    echo(render(findings))
    output.end(findings, codes)
