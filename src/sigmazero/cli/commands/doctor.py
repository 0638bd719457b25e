"""`sigmazero doctor`: check a model before it is attacked."""

import typer

from sigmazero.cli import inputs, options, output
from sigmazero.cli.console import echo, warn


def doctor(
    model: options.ModelName,
    data: options.DataName,
    weights: options.Weights = None,
    normalize: options.Normalize = None,
    limit: options.Limit = None,
    space: options.SpaceFile = None,
    bounds: options.Bounds = None,
    device: options.Device = "auto",
    trust_code: options.TrustCode = False,
) -> None:
    """Check a model for problems that would make results meaningless.

    Exit code 3: the doctor found errors, so results of attacks would not be reliable.

    \b
    Example:
      sigmazero doctor net.py:build mine.npz --weights net.pt
    """
    from sigmazero.bench.constraints import Allowed
    from sigmazero.bench.loader import find_device
    from sigmazero.core.findings import gating, render
    from sigmazero.models.doctor import examine
    from sigmazero.models.wrapping import by_names
    from sigmazero.models.zoo import known_accuracy

    where = find_device(device)
    network = inputs.load_model(inputs.model_spec(model, weights, normalize, data, trust_code), device)
    chosen = by_names(inputs.load_rows(data, None, limit, bounds), network)
    allowed = Allowed(**inputs.constraints(space, bounds)).on(chosen)
    findings = examine(
        network,
        chosen.images.to(where),
        chosen.labels.to(where),
        bounds=allowed.bounds,
        space=allowed.space,
        claimed=known_accuracy(model),
        say=echo,
    )
    echo(render(findings))
    if gating(findings):
        warn("Results of attacks on this model would not be reliable.", style="red")
        raise typer.Exit(output.UNRELIABLE)
