"""`sigmazero smooth`: certify the smoothed classifier of a model, by randomized ablation."""

from typing import Annotated, cast

import typer

from sigmazero import data, models
from sigmazero.certifier.ablation import Blank
from sigmazero.certifier.ablation import smooth as certified
from sigmazero.certifier.smoothed import Smoothed
from sigmazero.cli import options
from sigmazero.cli.console import out, say
from sigmazero.report.formats import rich_table

SHOWN = 12  # lines of a curve

Keep = Annotated[int, typer.Option(metavar="K", help="How many random features (or pixels) each copy shows.")]
Copies = Annotated[int, typer.Option(metavar="N", help="How many copies of each row are asked about.")]
Confidence = Annotated[float, typer.Option(metavar="P", help="With which a row's radius holds.")]
BlankName = Annotated[
    str,
    typer.Option("--blank", metavar="KIND", help="value, or doubled: the network takes x and 1 - x, both 0 if blank."),
]
Null = Annotated[float, typer.Option(metavar="V", help="The value of what is not shown.")]


def smooth(
    model: options.ModelName,
    data_name: options.DataName,
    keep: Keep,
    draws: Copies = 1000,
    confidence: Confidence = 0.999,
    unit: options.UnitName = "feature",
    blank: BlankName = "value",
    null: Null = 0.0,
    weights: options.WeightsFile = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    normalize: options.MeanAndStd = None,
    rows: options.RowNumbers = None,
    limit: options.Limit = None,
    seed: options.Seed = None,
    batch_size: options.BatchSize = None,
    device: options.DeviceName = "auto",
) -> None:
    """Certify a model's smoothed classifier: how many changes its class stands, whatever they are.

    It shows the model copies of an input with few features each and takes the class met most often (randomized
    ablation). The certificate is about that vote, never about the model itself.

    \b
    Example:
      sigmazero smooth demo mnist-5k-heldout --keep 200 --limit 20
    """
    place = options.device(device)
    network = models.load(model, weights=weights, model_dir=model_dir, normalize=normalize, device=place)
    chosen = data.load(data_name, rows=rows, limit=limit, seed=seed, data_dir=data_dir)
    found = certified(
        network,
        chosen.images.to(place),
        chosen.labels.to(place),
        keep=keep,
        draws=draws,
        confidence=confidence,
        unit=options.unit(unit),
        blank=cast(Blank, blank),
        null=null,
        seed=seed or 0,
        ids=chosen.ids,
        batch_size=batch_size,
        progress=True,
    )
    say(f"the smoothed classifier of {model} on {chosen.name}", style="bold")
    out().print(rich_table(_figures(found), down=True))
    say(f"proved of the vote over copies that show {keep} of {found.sites} {found.unit}s, not of {model} itself")


def _figures(found: Smoothed) -> list[dict[str, str]]:
    """One row: what one wants to know first, and the curve at some numbers of changes."""
    curve = found.curve()
    step = max(1, -(-len(curve) // SHOWN))
    return [
        {
            "samples": str(len(found)),
            "draws": f"{found.draws}",
            "confidence": f"{found.confidence:g}",
            "abstained %": f"{100 * found.abstained.double().mean():.1f}",
            "median radius": f"{found.median_radius:g}",
            **{f"right at {changes} %": f"{100 * share:.1f}" for changes, share in curve[::step]},
        }
    ]
