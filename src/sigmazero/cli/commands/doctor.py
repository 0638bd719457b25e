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
    trust_code: options.TrustCode = False,
) -> None:
    """Check a model for problems that would make results meaningless.

    Exit code 3: an attack on this model would mean nothing.

    \b
    Example:
      sigmazero doctor net.py:build mine.npz --weights net.pt
    """
    from sigmazero.bench.constraints import Allowed
    from sigmazero.core.findings import render
    from sigmazero.models.doctor import examine
    from sigmazero.models.wrapping import by_names

    where, codes = inputs.device(device), inputs.allowed_codes(allow)
    network = inputs.load_model(inputs.model_spec(model, weights, normalize, data, trust_code), where)
    chosen = by_names(inputs.load_rows(data, rows, limit, shuffle, bounds), network)
    may = Allowed(**inputs.constraints(space, bounds)).on(chosen)
    images, labels = chosen.images.to(where), chosen.labels.to(where)
    expected = inputs.accuracy(model, claimed)
    findings = examine(network, images, labels, bounds=may.bounds, space=may.space, claimed=expected, say=echo)
    echo(render(findings))
    output.end(findings, codes)
