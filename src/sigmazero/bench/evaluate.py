"""Evaluate a model with several attacks: `sz.evaluate(model, (x, y), ["sigma-zero", "fmn"])`."""

from __future__ import annotations

import copy
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sigmazero.adapters.foreign import attack_of
from sigmazero.attacks import get as get_attack
from sigmazero.bench.cells import expand
from sigmazero.bench.constraints import Allowed, functions_of, space_key
from sigmazero.bench.constraints import keep as keep_tensors
from sigmazero.bench.loader import (
    GIVEN,
    Loader,
    clean_rows,
    find_device,
    keep,
    source_of,
    surrogate_spec,
    without_target,
)
from sigmazero.bench.plan import BATCH_SIZE, DataSpec, ModelSpec, Question
from sigmazero.bench.reuse import reuse
from sigmazero.bench.run import execute
from sigmazero.bench.verify import Verification, verify
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.extras import require
from sigmazero.core.files import replacing, same_file
from sigmazero.core.findings import Finding, render
from sigmazero.core.hardware import Hardware
from sigmazero.core.inputs import Array, Bounds, hint
from sigmazero.core.messages import warn_caller
from sigmazero.core.model import Ability, ability_of
from sigmazero.core.result import Result
from sigmazero.data import Rows, rows_of
from sigmazero.models.wrapping import ArrayModel, LimitedModel, by_names, for_data, understood, wrap
from sigmazero.report import findings as report_findings
from sigmazero.report import runs as reported
from sigmazero.report import table as tables
from sigmazero.report.figures import curves
from sigmazero.report.formats import escape_markdown, rows, to_markdown
from sigmazero.report.notebook import draw_result, show_html
from sigmazero.report.runs import TRANSFER, Record, Run
from sigmazero.report.sentence import sentences
from sigmazero.spaces.space import Space
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.merge import merge
from sigmazero.store.store import Store, StoreError

# The attack for a model of each ability, where none is named.
DEFAULT_ATTACK: dict[Ability, str] = {"gradients": "sigma-zero", "scores": "query-swap", "labels": "label-swap"}
NOTHING = "no samples: no attack finished"


class _Scratch:
    """A temporary folder, removed with the last object that refers to it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="sigmazero-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class Evaluation:
    """Hold what several attacks found on one model; made by `sz.evaluate`, read from a file by `Evaluation.load`.

    `print(evaluation)` says how many changes fool half of the samples, and shows a table. `evaluation["fmn"]` is the
    `Result` of one attack, and `for name in evaluation` goes through their names. All figures are read from the file
    `store`, which is temporary unless you named one. `keys` are the cells in it, `failed` says why a cell failed, and
    `fresh` counts the samples that were attacked now: the others were in the file.
    """

    store: Path
    keys: tuple[str, ...]
    failed: dict[str, str] = field(default_factory=dict)
    fresh: int = field(default=0, compare=False)
    _loader: Loader = field(default_factory=Loader, repr=False, compare=False)
    _scratch: _Scratch | None = field(default=None, repr=False, compare=False)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Evaluation:
        """Read an evaluation that `save` wrote, or all that a store holds."""
        with Store(path) as store:
            keys = tuple(info.key for info in store.cells() if TRANSFER not in info.origin)
            return cls(Path(path), keys, {each.key: each.error for each in store.failures()})

    def save(self, path: str | PathLike[str]) -> Path:
        """Write these attacks to a file, in place of an older one; `Evaluation.load` and `sigmazero report` read it."""
        if same_file(self.store, Path(path)):
            raise ValueError(f"{path} is the file that this evaluation is in already; name another one")
        scratch = _Scratch()
        merge([self.store], scratch.path / "saved.db", keys=self.keys)
        with replacing(Path(path)) as part:
            shutil.copyfile(scratch.path / "saved.db", part)
        return Path(path)

    def __getitem__(self, name: str) -> Result:
        """Return what one attack found, sample by sample; its tensors are on the CPU."""
        with Store(self.store) as store:
            infos = {label: info for info, label in self._labels(store)}
            known = {_plain(label): info for label, info in infos.items()}
            if _plain(name) not in known:
                raise KeyError(f"no attack {name!r} in this evaluation; {hint(name, infos)}")
            return self._result(store, known[_plain(name)])

    def _result(self, store: Store, info: CellInfo) -> Result:
        facts = store.facts(info.key)
        if not len(facts):
            raise KeyError(f"{info.attack!r} has no samples: {self.failed.get(info.key, 'it was not run')}")
        x = clean_rows(store, info, self._loader).images[torch.from_numpy(store.positions(info.key))]
        found = report_findings.errors(report_findings.findings(store, reported.load(store, [info.key])))
        result = facts.to_result(x.double() if info.precision == "fp64" else x, info)
        classes, names = (tuple(info.about.get(word, ())) or None for word in ("classes", "names"))
        return replace(result, x=x, classes=classes, names=names, findings=tuple(found))

    def __iter__(self) -> Iterator[str]:
        """Go through the names that `evaluation[name]` takes."""
        with Store(self.store) as store:
            return iter([label for _, label in self._labels(store)])

    def __len__(self) -> int:
        """Return the number of attacks, one with several budgets counted for each."""
        return len(self.keys)

    def _labels(self, store: Store) -> list[tuple[CellInfo, str]]:
        """Name every cell: by its attack, and by what sets it apart from others with that name."""
        stored = {info.key: info for info in store.cells()}
        infos = [stored[key] for key in self.keys]
        names = reported.names(infos)
        return [
            (info, f"{name} within {info.budget}" if names.count(name) > 1 else name)
            for info, name in zip(infos, names, strict=True)
        ]

    def records(
        self, ks: Sequence[float] | None = None, level: float | None = None, over: str = "changes"
    ) -> list[Record]:
        """Return the figures as one dictionary per attack.

        ks      numbers of changes to give the success rate at
        level   such as 0.95: add the ends of confidence intervals
        over    "changes", or "cost" where the space has costs
        """
        return reported.records(self._runs(over), ks, level=level)

    def to_pandas(self, ks: Sequence[float] | None = None, level: float | None = None, over: str = "changes") -> Any:
        """Return the records as a data frame with a line per attack; `evaluation[name].to_pandas()` has the samples."""
        return require("pandas", "data", "Evaluation.to_pandas").DataFrame(self.records(ks, level, over))

    def table(self, ks: Sequence[float] | None = None, over: str = "changes") -> str:
        """Return the figures as Markdown: a table of the runs without a budget, and one of those with."""
        return _markdown(self._runs(over), ks)

    def _runs(self, over: str = "changes") -> list[Run]:
        if over not in ("changes", reported.COST):
            raise ValueError(f"over={over!r}: choose changes or {reported.COST}")
        with Store(self.store) as store:
            found = reported.load(store, self.keys)
        return found if over == "changes" else reported.by_cost(found)

    def plot(self) -> Any:
        """Draw the success rate over the number of changes, a line per attack; return matplotlib's figure."""
        return curves.draw(reported.groups(self._runs()))

    @property
    def findings(self) -> list[Finding]:
        """Return the errors that make these figures doubtful: in the model, or between the attacks."""
        with Store(self.store) as store:
            return report_findings.errors(report_findings.findings(store, reported.load(store, self.keys)))

    def facts(self, key: str) -> Facts:
        """Return the stored facts of a cell, one entry per sample."""
        with Store(self.store) as store:
            return store.facts(key)

    def verify(self) -> Verification:
        """Rebuild every adversarial example and ask the model again."""
        with Store(self.store) as store:
            return verify(store, self._loader, keys=self.keys)

    def __repr__(self) -> str:
        """Return one line: the attacks, the samples, and the file."""
        where = f"in {self.store}" if self._scratch is None else "in a temporary file"
        try:
            with Store(self.store) as store:
                labels = self._labels(store)
        except (OSError, StoreError):
            return f"<Evaluation {where}, which cannot be read>"
        words = ", ".join(name for _, name in labels) or "no attacks"
        rows = " or ".join(str(number) for number in sorted({info.rows for info, _ in labels})) or "no"
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return f"<Evaluation of {words}: {rows} sample{'' if rows == '1' else 's'}{failed}, {where}>"

    def _repr_html_(self) -> str:
        """Show sentences, tables and, of images, some samples of the best attack in a notebook."""
        found = self._runs()
        parts = [rows(table) for table in _tables(found)]
        return show_html(" ".join(sentences(found, mix=True)) or NOTHING, parts, self._pictures(found), self._remarks())

    def _pictures(self, found: Sequence[Run]) -> list[Any]:
        """Draw some samples of the strongest attack; nothing where the inputs or matplotlib are not there."""
        if not found:
            return []
        try:
            with Store(self.store) as store:
                result = self._result(store, reported.groups(found)[0].strongest.info)
        except (OSError, ImportError, ValueError, LookupError):  # the clean inputs cannot be read here
            return []
        return [] if result.x is None else [draw_result(result, result.x)]

    def _remarks(self) -> list[str]:
        """Return why attacks failed, and what makes the figures doubtful."""
        failed = [f"failed: {error}" for error in dict.fromkeys(map(str, self.failed.values()))]
        return [*failed, *(render([each]) for each in self.findings)]

    def _repr_markdown_(self) -> str:
        """Show the same as text in a notebook."""
        return self._text(escape_markdown)

    def __str__(self) -> str:
        """Say what the best attack did; then the tables, why attacks failed, and what makes the figures doubtful."""
        return self._text(str)

    def _text(self, escape: Callable[[str], str]) -> str:
        found = self._runs()
        first = "\n".join(map(escape, sentences(found, mix=True))) or NOTHING
        table = [_markdown(found, escape=escape)] if found else []
        return "\n\n".join([first, *table, *map(escape, self._remarks())])


def _tables(found: Sequence[Run], ks: Sequence[float] | None = None) -> list[tables.Table]:
    return [tables.build(name, found, ks) for name in tables.kinds(found)]


def _markdown(
    found: Sequence[Run], ks: Sequence[float] | None = None, escape: Callable[[str], str] = escape_markdown
) -> str:
    return "\n".join(to_markdown(each, False, escape) for each in _tables(found, ks)).rstrip() or NOTHING


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-")


def evaluate(
    model: object,
    data: Any,
    attacks: str | Attack | Sequence[Any] | None = None,
    *,
    store: str | PathLike[str] | None = None,
    limit: int | None = None,
    steps: int | None = None,
    budgets: Sequence[int] | None = None,
    unit: Unit = "feature",
    target: str | int | None = None,
    seed: int = 0,
    margin: float = 0.0,
    bounds: Bounds = (0.0, 1.0),
    mask: Array | None = None,
    space: Space | None = None,
    batch_size: int = BATCH_SIZE,
    name: str | None = None,
    device: str | torch.device | None = None,
    hardware: Hardware | None = None,
    double: bool = False,
    keep_inputs: bool = True,
    progress: bool = False,
    anew: bool = False,
) -> Evaluation:
    """Attack a model with several attacks and compare them.

    model        a module, a function from inputs to logits, a model that `sz.wrap` knows, or a name or file as
                 `sz.models.load` takes it: "M1", "torchvision:resnet50", "net.py:build"; a `bench.ModelSpec` has
                 weights and a normalization too
    data         a pair (inputs, labels) of tensors, NumPy arrays or lists; a data set of such pairs; a DataLoader; a
                 `Table`; rows from `sz.data.load`; or the name of a data set, a file or a folder of pictures; a
                 `bench.DataSpec` chooses rows of it
    attacks      a name, an attack, or a list of them; names of other libraries too ("foolbox:L0FMNAttack"), and what
                 `sz.foreign` takes. By default sigma-zero; query-swap for a model that gives scores alone, label-swap
                 for one that gives labels alone
    store        a file that keeps every sample's result; run again, only what it lacks is done. Without it the results
                 live as long as the `Evaluation`
    limit        use at most this many samples: a fixed choice, with each class in its share
    steps        of every attack; by default each has its own number
    budgets      numbers of changes: each attack runs once for each, and succeeds within it
    unit         "feature" counts every value, "pixel" a position once for all its channels
    target       None to reach any wrong class; or the class to reach: "next" (the one after the label), "random", or
                 its number
    seed         of the random numbers
    margin       the least lead in the logits that a success must have
    bounds, mask, space  what may change, as for `Attack.run`; by default what the data says, else the box from 0 to 1
    batch_size   samples in one batch
    name         what reports call the model
    device       where to compute; by default where the model is. The model itself stays where it is
    hardware     `sz.Hardware(precision=..., prepare=...)`: what makes the search faster, as for `Attack.run`
    double       attack the model in double precision: a float64 copy of it, and float64 inputs
    keep_inputs  keep inputs given as tensors in the store, up to 64 MB, so that reports can show them
    progress     show a bar with speed and time left, and what the doctor saw of the model: accuracy, classes, gradients
    anew         replace stored results that the present model contradicts, instead of raising an error
    """
    hardware = Hardware() if hardware is None else hardware
    if hardware.capture is not None:
        raise ValueError(f"capture={hardware.capture!r} is for Attack.run: evaluate captures wherever it can")
    if double and hardware.precision is not None:
        raise ValueError(f"double=True and precision={hardware.precision!r} are both given; leave one of them out")
    if isinstance(attacks, Sequence) and not attacks:
        raise ValueError(f'attacks={attacks!r} names no attack; give a list such as ["sigma-zero", "fmn"]')
    question = Question(  # made before anything is loaded, since it refuses wrong values
        ModelSpec("", ""),
        DataSpec("", ""),
        "",
        get_attack("sigma-zero"),
        unit=unit,
        goal="untargeted" if target is None else "targeted",
        target=target,
        seed=seed,
        precision="fp64" if double else hardware.precision,
        margin=margin,
        batch_size=batch_size,
        prepare=hardware.prepare,
    )
    question = replace(question, margin=float(margin))  # 1 and 1.0 are one question
    data = fspath(data) if isinstance(data, PathLike) else data
    model = fspath(model) if isinstance(model, PathLike) else model
    model, data = for_data(model, data)
    where = _device(model, device)
    if isinstance(model, str):
        model = ModelSpec(model, model)
    if isinstance(data, str):
        data = DataSpec(data, data)
    loader = Loader(where, trust=_named(model, data))
    spec = _model(model, name, loader)
    given = [attacks] if isinstance(attacks, str | Attack) else attacks
    methods = [attack_of(each) for each in given or [DEFAULT_ATTACK[ability_of(loader.model(spec))]]]
    methods = [method if steps is None else replace(method, steps=steps) for method in methods]
    loader.trust = _named(model, data, *map(surrogate_spec, methods))
    source = _data(data, limit, bounds, loader, loader.model(spec))
    rows = loader.rows(source)
    lower, upper = bounds
    allowed = Allowed((_tensor(lower), _tensor(upper)), _tensor(mask), space)
    allowed.on(rows).pose(rows.images, rows.labels, unit=unit)  # refuse bad inputs here, not once for each attack
    questions = [
        replace(question, model=spec, data=source, label=method.name, attack=method, budget=budget, allowed=allowed)
        for method in methods
        for budget in (budgets if budgets is not None and len(budgets) else [None])
    ]
    scratch = _Scratch() if store is None else None
    path = Path(store or "") if scratch is None else scratch.path / "evaluation.db"
    done = _run(questions, path, loader, keep_inputs and not isinstance(data, DataSpec), progress, anew)
    return replace(done, _scratch=scratch)


def _run(
    questions: Sequence[Question], path: Path, loader: Loader, keeps: bool, progress: bool, anew: bool
) -> Evaluation:
    """Run what the store at `path` lacks. With `keeps` it stores the inputs too."""
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
        cells, _ = reuse(cells, store, loader, anew)
        report = execute(cells, store, loader, title=questions[0].model.name, progress=progress)
        keys = tuple(dict.fromkeys(cell.info.key for cell in cells))
        found = report_findings.errors(report_findings.findings(store, reported.load(store, keys)))
    for line in report.seen if progress else ():
        sys.stderr.write(f"{line}\n")
    for each in found:
        warn_caller(render([each]))
    for key, error in report.failed.items():
        label = next(cell.info.attack for cell in cells if cell.info.key == key)
        warn_caller(f"{label} failed: {error}", RuntimeWarning)
    if report.interrupted:
        raise KeyboardInterrupt  # as Python code expects; what is finished stays in the store
    return Evaluation(path, keys, report.failed, report.rows, loader)


def _tensor(values: Any) -> Any:
    """Return arrays and lists as tensors; numbers, tensors and None as they are."""
    return torch.as_tensor(np.asarray(values)) if isinstance(values, np.ndarray | list | tuple) else values


def _named(*given: Any) -> list[str]:
    """Return the models and data that the caller names: naming code in Python is consent to run it."""
    return [source_of(each) for each in given if isinstance(each, ModelSpec | DataSpec)]


def _device(model: object, device: str | torch.device | None) -> torch.device:
    if device is None:
        parameter = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        return torch.device("cpu") if parameter is None else parameter.device
    return find_device(device)


def _model(model: Any, name: str | None, loader: Loader) -> ModelSpec:
    """Give the loader the model; one on another device is copied, so that the caller's stays where it is."""
    if isinstance(model, ModelSpec):
        return model if name is None else replace(model, name=name)
    found = understood(model)
    network = found if isinstance(found, nn.Module) else wrap(found, kind="torch")
    devices = {tensor.device for tensor in (*network.parameters(), *network.buffers())}
    if any(d.type != loader.device.type or loader.device.index not in (None, d.index) for d in devices):
        network = copy.deepcopy(network).to(loader.device)
    title = model.title if isinstance(model, ArrayModel) else None
    spec = ModelSpec(name or title or str(getattr(model, "__name__", type(model).__name__)), GIVEN)
    loader.give_model(spec, network)
    return spec


def _data(data: Any, limit: int | None, bounds: Bounds, loader: Loader, model: nn.Module) -> DataSpec:
    if isinstance(data, DataSpec):
        return data.limited(limit).within(bounds)
    rows = by_names(rows_of(data, limit=limit, bounds=bounds), model)
    if not isinstance(data, Rows):
        rows = _converted(rows, model, isinstance(data, tuple) and isinstance(data[0], Tensor))
    spec = DataSpec(rows.name, GIVEN)
    loader.give_rows(spec, rows)
    return spec


def _converted(rows: Rows, model: nn.Module, tensors: bool) -> Rows:
    """Convert float64 rows for a float32 model. Arrays are float64 by habit, so only tensors give a warning."""
    parameter = next((each for each in model.parameters() if each.is_floating_point()), None)
    own = isinstance(model, ArrayModel | LimitedModel) or (parameter is not None and parameter.dtype == torch.float64)
    if rows.images.dtype != torch.float64 or own or (parameter is None and tensors):
        return rows
    if tensors:
        warn_caller("the inputs are float64 and the model float32: they are taken as float32")
    return replace(rows, images=rows.images.float())
