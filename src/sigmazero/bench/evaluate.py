"""Benchmarks from Python: `sz.evaluate(model, data, attacks=[...], store="runs/x.db")`."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn

from sigmazero.adapters.foreign import attack_of
from sigmazero.bench.allowed import Allowed, functions_of, space_key
from sigmazero.bench.allowed import keep as keep_tensors
from sigmazero.bench.cells import Loader, expand, without_target
from sigmazero.bench.inputs import GIVEN, keep
from sigmazero.bench.plan import BATCH_SIZE, PRECISIONS, DataSpec, ModelSpec, Question
from sigmazero.bench.run import execute
from sigmazero.bench.verify import Verification, verify
from sigmazero.core.ability import Ability, ability_of
from sigmazero.core.domain import Unit
from sigmazero.core.findings import Finding, render
from sigmazero.core.goal import GoalName
from sigmazero.core.inputs import Bounds, check_margin, hint
from sigmazero.core.layout import Order, channels_first, check_layout, facing
from sigmazero.core.problem import whole
from sigmazero.core.warn import warn_caller
from sigmazero.data import Rows, rows_of
from sigmazero.models.any import WrappedModel, understood, wrap
from sigmazero.report import doubts, measure
from sigmazero.report.tables.overview import store_rows
from sigmazero.report.tables.text import markdown
from sigmazero.spaces.space import Space
from sigmazero.store.facts import Facts
from sigmazero.store.store import Store

# The attack for a model of each ability, where nobody names one.
USUAL: dict[Ability, str] = {"gradients": "sigma-zero", "scores": "query-swap", "labels": "label-swap"}


@dataclass(frozen=True)
class Evaluation:
    """The cells that were asked for; every figure is read from the store when it is wanted."""

    store: Path
    keys: tuple[str, ...]
    failed: dict[str, str] = field(default_factory=dict)
    _loader: Loader | None = field(default=None, repr=False)

    def records(
        self, ks: Sequence[float] | None = None, level: float | None = None, over: str = "changes"
    ) -> list[measure.Record]:
        """One dict per cell, as `measure.table` makes them; over "cost", in what the changes cost."""
        with Store(self.store) as store:
            return measure.table(measure.over(measure.load(store, self.keys), over), ks, level=level)

    def rows(self, ks: Sequence[float] | None = None, level: float | None = None, over: str = "changes") -> Any:
        """The records as a pandas DataFrame, or as they are where pandas is not installed."""
        found = self.records(ks, level, over)
        if importlib.util.find_spec("pandas") is None:
            return found
        return importlib.import_module("pandas").DataFrame(found)

    def table(self, ks: Sequence[float] | None = None, over: str = "changes") -> str:
        """The figures as a Markdown table, which reads as text too, under a line with what is common to all cells."""
        caption, rows = store_rows(self.records(ks, over=over))
        return f"{caption}\n\n{markdown(rows)}" if rows else "no samples: nothing was finished"

    @property
    def findings(self) -> list[Finding]:
        """What makes these figures doubtful: what the doctor found, and what the facts say against themselves."""
        with Store(self.store) as store:
            return doubts.errors(doubts.findings(store, measure.load(store, self.keys)))

    def facts(self, key: str) -> Facts:
        """Per-sample facts of a cell, perturbations included."""
        with Store(self.store) as store:
            return store.facts(key)

    def verify(self) -> Verification:
        """Rebuild every adversarial example and ask the model again."""
        with Store(self.store) as store:
            return verify(store, self._loader or Loader(), keys=self.keys)

    def _repr_markdown_(self) -> str:
        """What a notebook shows of it: the same, as a table."""
        return str(self)

    def __str__(self) -> str:
        """The table, why attacks that failed are not in it, and what makes it doubtful."""
        failed = [f"failed: {error}" for error in dict.fromkeys(map(str, self.failed.values()))]
        return "\n\n".join([self.table(), *failed, *(render([each]) for each in self.findings)])


def evaluate(
    model: object,
    data: Any,
    attacks: Sequence[Any] | None = None,
    *,
    store: str | PathLike[str],
    limit: int | None = None,
    steps: int | None = None,
    budgets: Sequence[int] | None = None,
    unit: Unit = "feature",
    layout: Order | None = None,
    goal: GoalName = "untargeted",
    target: str | int | None = None,
    seed: int = 0,
    precision: str | None = None,
    margin: float = 0.0,
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    space: Space | None = None,
    batch_size: int = BATCH_SIZE,
    name: str | None = None,
    device: str | torch.device | None = None,
    keep_inputs: bool = True,
    progress: bool = False,
) -> Evaluation:
    """Run attacks against a model on some rows into a store, doing only what the store does not have yet.

    model        a module, a callable from inputs to logits, anything that `sz.wrap` knows, or a name or file as
                 `models.load` takes it
    data         a pair (inputs, labels) of tensors or arrays, a data set of such pairs (an ImageFolder, say), a
                 DataLoader, rows from `data.load`, or the name of a data set, a file or a folder of pictures
    attacks      names, also such as "foolbox:L0FMNAttack", or attacks with parameters of your own, or what `sz.foreign`
                 takes; by default one that the model allows: sigma-zero, query-swap for a model that gives scores
                 alone, label-swap for labels alone
    store        the file that keeps every sample's result; what it has already is not done again
    limit        at most so many rows, the first
    steps        of every attack; by default each has its own number
    budgets      numbers of changes, for attacks that need one
    layout       "NHWC" for tensors and a model with the channels last; the store has them first
    unit         "feature" counts every value, "pixel" a position once for all its channels
    target       for goal="targeted": "next", "random" or the number of a class
    precision    numbers of the search: None for those your process computes in, or "fp32", "tf32", "bf16", "fp64"
    margin       the least by which a success must hold in the logits
    bounds, mask, space  as for `Attack.run`: what may change; by default what the data says, else the box from 0 to 1
    name         what reports call the model
    progress     show a bar with speed and time left, on a terminal
    keep_inputs  put rows and tensors into the store, up to 64 MB, so that reports can show them
    """
    given = dict(locals())
    _check(attacks, goal, target, unit, batch_size, precision)
    check_margin(margin)
    return _evaluated(**given | {"margin": float(margin)})


def _evaluated(
    model: object,
    data: Any,
    attacks: Sequence[Any] | None,
    store: str | PathLike[str],
    limit: int | None,
    steps: int | None,
    budgets: Sequence[int] | None,
    layout: Order | None,
    name: str | None,
    device: str | torch.device | None,
    keep_inputs: bool,
    progress: bool,
    **how: Any,
) -> Evaluation:
    """What `evaluate` does once its arguments are known to be right; `how` are those that only questions know."""
    data = fspath(data) if isinstance(data, PathLike) else data
    loader = Loader(_device(model, device), trust=[each for each in (model, data) if isinstance(each, str)])
    spec = _model(model, name, loader, layout)
    methods = [attack_of(each) for each in (attacks or [USUAL[ability_of(loader.model(spec))]])]
    held = _data(data, limit, loader, layout, loader.model(spec))
    turned = None if layout != "NHWC" or isinstance(data, str | Rows) else loader.rows(held).images.ndim
    may = _allowed(turned, **{word: how.pop(word) for word in ("bounds", "mask", "space")})
    rows = loader.rows(held)
    may.on(rows).pose(rows.images, rows.labels, unit=how["unit"])  # refused here, and not once for each attack
    base = Question(model=spec, data=held, label="", attack=methods[0], allowed=may, **how)
    methods = [method if steps is None else replace(method, steps=steps) for method in methods]
    asked: Sequence[int | None] = budgets or [None]
    questions = [replace(base, label=each.name, attack=each, budget=budget) for each in methods for budget in asked]
    return _run(questions, Path(store), loader, keep_inputs and not isinstance(data, str), progress)


def _check(
    attacks: Sequence[Any] | None,
    goal: str,
    target: str | int | None,
    unit: str,
    batch_size: int,
    precision: str | None,
) -> None:
    """Refuse wrong arguments before a store is made."""
    if precision is not None and precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r} is not allowed; {hint(str(precision), PRECISIONS)}")
    names = {"goal": (goal, get_args(GoalName)), "unit": (unit, get_args(Unit))}
    for word, (given, allowed) in names.items():
        if given not in allowed:
            raise ValueError(f"{word}={given!r} is not allowed; {hint(str(given), allowed)}")
    if goal == "targeted" and target not in ("next", "random") and not (whole(target) and int(target or 0) >= 0):
        raise ValueError(f'goal="targeted" needs target="next", "random" or the number of a class, not {target!r}')
    if goal == "untargeted" and target is not None:
        raise ValueError(f'target={target!r} needs goal="targeted"')
    if not (whole(batch_size) and batch_size >= 1):
        raise ValueError(f"batch_size={batch_size!r} must be a whole number, 1 or more")
    if isinstance(attacks, str) or (attacks is not None and not attacks):
        raise ValueError(f'attacks={attacks!r} must be a list such as ["sigma-zero", "fmn"]')


def _run(questions: Sequence[Question], path: Path, loader: Loader, keeps: bool, progress: bool) -> Evaluation:
    cells, missing = expand(questions, loader)
    if missing:
        raise missing[0].error
    allowed = cells[0].question.allowed
    if allowed.space is not None and functions_of(allowed.space):
        loader.spaces[space_key(cells[0].info.identity["space"])] = allowed.space
    with Store(path, write=True) as store:
        keep_tensors(store, allowed)
        if keeps:
            keep(store, without_target(loader.rows(questions[0].data), questions[0].target))
        report = execute(cells, store, loader, title=questions[0].model.name, progress=progress)
        keys = tuple(dict.fromkeys(cell.info.key for cell in cells))
        found = doubts.errors(doubts.findings(store, measure.load(store, keys)))
    for each in found:
        warn_caller(render([each]))
    for key, error in report.failed.items():
        label = next(cell.info.attack for cell in cells if cell.info.key == key)
        warn_caller(f"{label} failed: {error}", RuntimeWarning)
    if report.interrupted:
        raise KeyboardInterrupt  # as Python code expects; the store keeps what is finished
    return Evaluation(path, keys, report.failed, loader)


def _allowed(turned: int | None, bounds: Bounds, mask: Tensor | None, space: Space | None) -> Allowed:
    """What may change, with the channels first as the store has them; `turned` counts the dimensions of inputs."""
    if turned is None:
        return Allowed(bounds, mask, space)
    if space is not None:
        raise ValueError("layout='NHWC' and space are both given; say in the space which features count together")
    lower, upper, free = (channels_first(each, turned) for each in (*bounds, mask))
    return Allowed((lower, upper), free)


def _called(model: object) -> str:
    """What reports call a model that has no name: by its class, or a function by its own name."""
    kind = model.kind.what if isinstance(model, WrappedModel) else None
    return kind or str(getattr(model, "__name__", type(model).__name__))


def _device(model: object, device: str | torch.device | None) -> str | torch.device:
    if device is not None:
        try:
            kind = torch.device(device).type
        except RuntimeError:
            raise ValueError(f"device={device!r} is no device; give 'cpu' or 'cuda', or leave it out") from None
        if kind == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"device={device!r}: torch sees no CUDA device here; give 'cpu', or leave it out")
        return device
    parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return "cpu" if parameter is None else parameter.device


def _model(model: Any, name: str | None, loader: Loader, layout: Order | None) -> ModelSpec:
    if isinstance(model, str):
        return ModelSpec(name or model, model)
    found = understood(model)
    network = found if isinstance(found, nn.Module) else wrap(found, takes="torch")
    spec = ModelSpec(name or _called(model), GIVEN)
    loader.give_model(spec, facing(network.to(loader.device), layout))
    return spec


def _data(data: Any, limit: int | None, loader: Loader, layout: Order | None, model: nn.Module) -> DataSpec:
    if isinstance(data, str):
        return DataSpec(data, data, limit=limit)
    rows = rows_of(data, limit=limit)
    check_layout(layout, tuple(rows.images.shape))
    if not isinstance(data, Rows) and layout == "NHWC":
        rows = replace(rows, images=channels_first(rows.images, rows.images.ndim).contiguous())
    if not isinstance(data, Rows):
        rows = _fitting(rows, model, isinstance(data, tuple) and isinstance(data[0], Tensor))
    spec = DataSpec(rows.name, GIVEN)
    loader.give_rows(spec, rows)
    return spec


def _fitting(rows: Rows, model: nn.Module, chosen: bool) -> Rows:
    """Rows in the number format of a network: arrays are float64 by habit, tensors by choice, which is said."""
    parameter = next((each for each in model.parameters() if each.is_floating_point()), None)
    own = isinstance(model, WrappedModel) or (parameter is not None and parameter.dtype == torch.float64)
    if rows.images.dtype != torch.float64 or own or (parameter is None and chosen):
        return rows
    if chosen:
        warn_caller("the inputs are float64 and the model float32: they are taken as float32")
    return replace(rows, images=rows.images.float())
