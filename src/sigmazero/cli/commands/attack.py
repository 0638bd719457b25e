"""`sigmazero attack`: any model, any data set, any attack."""

from typing import Any

from torch import Tensor

import sigmazero as sz
from sigmazero import data, models
from sigmazero.cli import options
from sigmazero.cli.console import tell
from sigmazero.cli.results import show_figures, show_findings, write_result
from sigmazero.cli.targets import away_from_target, targets_for
from sigmazero.models.doctor import examine


def attack(
    model: options.ModelName,
    data_name: options.DataName,
    weights: options.WeightsFile = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    normalize: options.MeanAndStd = None,
    attack_name: options.AttackName = "sigma-zero",
    steps: options.Steps = None,
    setting: options.Setting = None,
    budget: options.Budget = None,
    unit: options.UnitName = "feature",
    targeted: options.Targeted = False,
    target_class: options.TargetClass = None,
    targets: options.TargetsFile = None,
    limit: options.Limit = None,
    rows: options.RowNumbers = None,
    seed: options.Seed = None,
    batch_size: options.BatchSize = None,
    device: options.DeviceName = "auto",
    precision: options.PrecisionName = "fp32",
    fuse: options.Fuse = False,
    max_memory: options.MaxMemory = None,
    out: options.OutPath = None,
    no_doctor: options.NoDoctor = False,
) -> None:
    """Count how many input values must change before a model is wrong.

    \b
    Example:
      sigmazero attack --model net.py:build --weights net.pt --data mine.npz --out res/
      sigmazero attack --model M1 --data mnist --limit 500 --steps 100
    """
    method = sz.get(attack_name, **options.settings(attack_name, steps, setting or []))
    counted, path, place = options.unit(unit), options.destination(out), options.device(device)
    engine: Any = {"precision": options.precision(precision), "fuse": fuse, "max_memory": options.memory(max_memory)}
    network = models.load(model, weights=weights, model_dir=model_dir, normalize=normalize, device=place)
    chosen = data.load(data_name, rows=rows, limit=limit, seed=seed, data_dir=data_dir)
    chosen, goals = _with_goals(chosen, targets_for(chosen, targets, target_class, targeted))
    images, labels = chosen.images.to(place), chosen.labels.to(place)
    if not no_doctor:
        show_findings(examine(network, images, labels))
    y = labels if goals is None else goals.to(place)
    question: Any = {"targeted": goals is not None, "unit": counted, "budget": budget, "ids": chosen.ids}
    how: Any = {"batch_size": batch_size, "seed": seed or 0, "progress": True}
    result = method.run(network, images, y, **question, **how, **engine)
    title = f"{method.name} against {model} on {chosen.name}"
    show_figures(result, chosen, method.name, title)
    if path is not None:
        write_result(path, result, chosen, goals, title)


def _with_goals(chosen: data.Rows, goals: Tensor | None) -> tuple[data.Rows, Tensor | None]:
    """Leave out the rows that are of their target class already, and say how many."""
    if goals is None:
        return chosen, None
    kept, goals = away_from_target(chosen, goals)
    tell(f"{len(chosen) - len(kept)} of {len(chosen)} rows left out: they are of their target class")
    return kept, goals
