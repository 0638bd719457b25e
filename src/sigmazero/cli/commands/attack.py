"""`sigmazero attack`: any model, any data set, any attack."""

import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import typer
from torch import Tensor

import sigmazero as sz
from sigmazero import data, models
from sigmazero.bench.constraints import Allowed
from sigmazero.bench.plan import ModelSpec
from sigmazero.cli import findings, options
from sigmazero.cli.allowed import allowed, show_changes
from sigmazero.cli.console import INTERRUPTED, show_path, tell
from sigmazero.cli.results import show_figures, show_findings, write_result
from sigmazero.cli.rows import load_rows
from sigmazero.cli.targets import away_from_target, targets_for
from sigmazero.cli.unfinished import BATCH_SIZE, Keeper
from sigmazero.core.findings import Finding, gating
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem
from sigmazero.models.doctor import examine
from sigmazero.run import Session
from sigmazero.run.memory import at_most


def attack(
    model: options.ModelName,
    data_name: options.DataName,
    weights: options.WeightsFile = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    normalize: options.MeanAndStd = None,
    space: options.SpaceFile = None,
    bounds: options.BoxEnds = None,
    mask: options.MaskFile = None,
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
    margin: options.Margin = 0.0,
    precision: options.PrecisionName = None,
    prepare: options.PrepareName = "auto",
    out: options.OutPath = None,
    no_doctor: options.NoDoctor = False,
    claimed: findings.Claimed = None,
    allow: findings.Allow = None,
) -> None:
    """Count how many input values must change before a model is wrong.

    After Ctrl-C the file of --out has what is finished, and the same command goes on. Exit code 3 for doubtful figures.

    \b
    Example:
      sigmazero attack --model net.py:build --weights net.pt --data mine.npz --out res/
      sigmazero attack --model net.py:build --data adult.npz --space adult.toml --attack sigma-swap
    """
    method = options.attack(attack_name, steps, setting or [])
    read: dict[str, Any] = {"data": data_name, "weights": weights, "targets": targets, "space": space, "mask": mask}
    path = options.destination(out, **read, model=options.code_file(model))
    counted, place = options.unit(unit), options.device(device)
    hardware = options.hardware(precision, prepare)
    network = models.load(model, weights=weights, model_dir=model_dir, normalize=normalize, device=place)
    method = options.with_surrogate(method, model_dir, place)
    chosen, goals = _with_goals(load_rows(data_name, rows, limit, seed, data_dir), targets, target_class, targeted)
    may = allowed(chosen, space, bounds, mask)
    how: Any = {"unit": counted, "budget": budget, "seed": seed or 0, "ids": chosen.ids, "margin": margin}
    how |= {"doctor": not no_doctor, "claimed": findings.claim(model, claimed)}
    problem, found = _posed(network, chosen, goals, may, place, **how)
    size = at_most(network, BATCH_SIZE) if (batch_size, place) == (None, "cpu") and path is not None else batch_size
    keeper = None if path is None else Keeper(path, ModelSpec(model, model, normalize=normalize), chosen, goals, may)
    result = _searched(Session(method, network, hardware, batch_size=size), problem, keeper, chosen, found)
    _tell(path, goals, result, chosen, method, problem, may.space, f"{method.name} against {model} on {chosen.name}")
    findings.end(found, allow)


def _searched(
    session: Session,
    problem: Problem,
    keeper: Keeper | None,
    chosen: data.Rows,
    found: list[Finding],
) -> sz.Result:
    """The result of the search, with names and findings; after Ctrl-C what is finished is kept, and there is none."""
    with session:
        result = _warned(session, problem) if keeper is None else keeper.run(session, problem)
    if result is None:
        raise typer.Exit(INTERRUPTED)
    return replace(result, classes=chosen.classes, names=chosen.names, findings=tuple(gating(found)))


def _warned(session: Session, problem: Problem) -> sz.Result:
    """The result; what a script would be warned of is told in a line."""
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", RuntimeWarning)
        result = session.run(problem, progress=True)
    for note in notes:
        tell(f"warning: {note.message}", style="yellow")
    return result


def _tell(
    path: Path | None,
    goals: Tensor | None,
    result: sz.Result,
    chosen: data.Rows,
    method: sz.Attack,
    problem: Problem,
    space: sz.Space | None,
    title: str,
) -> None:
    """Write the result first, then show it: a terminal that is gone must not cost it.

    Figures are those of the rows that were done; where the model stopped before the others, the command fails.
    """
    written = write_result(path, result, chosen, goals, title)
    done = (result.outcome != sz.Outcome.STOPPED).cpu()
    if len(done) and not bool(done.any()):
        raise typer.Exit(1)  # why, a warning has said
    result, chosen = result.take(done.to(result.outcome.device)), chosen.select(done.nonzero().squeeze(1))
    show_figures(result, chosen, method, title, problem)
    show_changes(result, chosen, space)
    for file in written:
        show_path(file)
    if not bool(done.all()):
        raise typer.Exit(1)


def _posed(
    network: Model,
    chosen: data.Rows,
    goals: Tensor | None,
    may: Allowed,
    place: str,
    *,
    doctor: bool,
    claimed: float | None,
    **how: Any,
) -> tuple[Problem, list[Finding]]:
    """The question, and what the doctor says; an input outside its space is an error before that, in one line."""
    images, labels = chosen.images.to(place), chosen.labels.to(place)
    pose = partial(may.pose, images, labels if goals is None else goals.to(place), targeted=goals is not None, **how)
    problem = None if may.space is None else pose()
    found: list[Finding] = []
    if doctor:
        found = examine(network, images, labels, bounds=may.bounds, space=may.space, claimed=claimed)
        show_findings(found)
    return pose() if problem is None else problem, found


def _with_goals(
    chosen: data.Rows, file: Path | None, single: str | None, targeted: bool
) -> tuple[data.Rows, Tensor | None]:
    """The classes to reach. Rows that are of their target class already are left out, and it is said how many."""
    goals = targets_for(chosen, file, single, targeted)
    if goals is None:
        return chosen, None
    kept, goals = away_from_target(chosen, goals)
    tell(f"{len(chosen) - len(kept)} of {len(chosen)} rows left out: they are of their target class")
    return kept, goals
