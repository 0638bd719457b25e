"""`sigmazero auto`: a cascade of attacks, for a figure one can rely on."""

import contextlib
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import sigmazero as sz
from sigmazero import data, models
from sigmazero.auto import CascadeReport
from sigmazero.cli import console, options
from sigmazero.cli.allowed import allowed, show_changes
from sigmazero.cli.results import show_findings, write_result
from sigmazero.core.metrics import median
from sigmazero.models.doctor import examine
from sigmazero.report.tables.text import number, rich_table

Eps = Annotated[int | None, typer.Option(metavar="K", help="Changes allowed; without it, as few as possible.")]
VersionName = Annotated[str, typer.Option("--version", metavar="NAME", help="standard or quick.")]
State = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep the evaluation in this file and go on where it stopped.")
]


def auto(
    model: options.ModelName,
    data_name: options.DataName,
    weights: options.WeightsFile = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    normalize: options.MeanAndStd = None,
    space: options.SpaceFile = None,
    bounds: options.BoxEnds = None,
    mask: options.MaskFile = None,
    eps: Eps = None,
    version: VersionName = "standard",
    unit: options.UnitName = "feature",
    limit: options.Limit = None,
    rows: options.RowNumbers = None,
    seed: options.Seed = None,
    batch_size: options.BatchSize = None,
    device: options.DeviceName = "auto",
    precision: options.PrecisionName = None,
    state: State = None,
    out: options.OutPath = None,
    no_doctor: options.NoDoctor = False,
) -> None:
    """Measure robust accuracy with several strong attacks, each on what the ones before it could not fool.

    \b
    Example:
      sigmazero auto --model net.py:build --weights net.pt --data mine.npz --eps 24
      sigmazero auto --model M1 --data mnist --limit 1000 --state m1.state
    """
    read = {"data": data_name, "weights": weights, "state": state, "model": options.code_file(model)}
    read |= {"space": space, "mask": mask}
    counted, path, place = options.unit(unit), options.destination(out, **read), options.device(device)
    network = models.load(model, weights=weights, model_dir=model_dir, normalize=normalize, device=place)
    chosen = data.load(data_name, rows=rows, limit=limit, seed=seed, data_dir=data_dir)
    may = allowed(chosen, space, bounds, mask)
    how: Any = {"device": place, "unit": counted, "precision": options.precision(precision)}
    how |= {"bounds": may.bounds, "mask": may.mask, "space": may.space}
    cascade = sz.SparseAutoAttack(network, "L0", eps, seed, version=version, **how)
    if may.space is not None:  # an input outside its space is an error at once, in one line
        may.pose(chosen.images, chosen.labels, unit=counted)
    if not no_doctor:
        images, labels = chosen.images.to(place), chosen.labels.to(place)
        show_findings(examine(network, images, labels, bounds=may.bounds, space=may.space))
    # The lines of the members are not the result: they go where progress goes.
    with contextlib.redirect_stdout(console.Aside()), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="SZ")  # shown below
        size = 250 if batch_size is None else batch_size
        try:
            cascade.run_standard_evaluation(chosen.images, chosen.labels, bs=size, state_path=state)
        except KeyboardInterrupt:
            kept = "--state FILE would have kept it" if state is None else f"in {state}. To go on: {console.again()}"
            console.tell(f"stopped; what is finished: {kept}")
            raise
    title = f"SparseAutoAttack against {model} on {chosen.name}"
    written = write_result(path, replace(cascade.report.result, ids=chosen.ids), chosen, None, title)
    _show(cascade.report, title)
    show_changes(cascade.report.result, chosen, may.space)
    for file in written:
        console.show_path(file)


def _show(report: CascadeReport, title: str) -> None:
    console.say(title, style="bold")
    console.say(report.headline)
    console.out().print(rich_table(report.rows(), down=True))
    if report.eps is None:
        console.say(f"median l0 {number(report.result.median_l0, 1)}")
        if report.cost is not None:
            console.say(f"median cost {number(median(report.result.cost.double().numpy()), 2)}")
    show_findings(list(report.findings))
