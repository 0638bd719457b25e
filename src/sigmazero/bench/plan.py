"""Plans: which attacks are to be run against which models on which rows, read from TOML.

    steps = 1000                          # settings at the top hold for the whole plan
    batch_size = 32

    [data.mnist]                          # rows of a data set; a name alone needs no table
    limit = 500
    seed = 0

    [attacks.no-projection]               # an attack with other parameters; a registered name needs no table
    attack = "sigma-zero"
    parameters = { projection = false }

    [[grid]]                              # every model × data × attack × budget of a grid is one cell
    models = ["M1", "M2"]
    data = ["mnist"]
    attacks = ["sigma-zero", "no-projection"]

`attack = "foolbox:L0FMNAttack"` is one of another library (docs/bridges.md), told `parameters` as its options.

An attack's settings win over those of the grid, those over the ones at the top. `precision` ("fp32", "tf32", "bf16" or
"fp64") forces the numbers of the search, which are otherwise those of the process; with `margin = 0.5` a success must
hold by that much in the logits. `sweep = { threshold = [0.1, 0.3] }`
in an attack's table makes one attack of each combination. `trace = true` there keeps every point that the attack asked
about; its rows then run one at a time, so its seconds are no measure. Paths are relative to the current folder.
`[space]` says what may change (bench.plan_space).
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import get_args

from sigmazero import models
from sigmazero.bench import plan_words
from sigmazero.bench.allowed import Allowed
from sigmazero.bench.plan_attacks import attacks_of, setting
from sigmazero.bench.plan_space import space_of
from sigmazero.bench.toml import LENGTH, Lines, PlanError, TomlTable, brief, read_toml
from sigmazero.core.attack import Attack, Precision, Prepare
from sigmazero.core.domain import Unit
from sigmazero.core.goal import GoalName
from sigmazero.core.inputs import hint
from sigmazero.data import DATASETS, is_data_file, is_folder

PRECISIONS = (*get_args(Precision), "fp64")
TARGETS = "next (the class after the true one), random (another class, drawn by the seed) or the number of a class"
BATCH_SIZE = 64
CELLS = 10_000


@dataclass(frozen=True)
class ModelSpec:
    """A model by name or file, as `models.load` takes it."""

    name: str
    spec: str
    weights: str | None = None
    normalize: str | None = None


@dataclass(frozen=True)
class DataSpec:
    """Rows of a data set, as `data.load` takes them."""

    name: str
    source: str
    rows: str | tuple[int, ...] | None = None
    limit: int | None = None
    seed: int | None = None

    def limited(self, limit: int | None) -> DataSpec:
        """The same rows, but at most `limit`; a smaller limit of its own stays."""
        known = [n for n in (self.limit, limit) if n is not None]
        return replace(self, limit=min(known, default=None))


@dataclass(frozen=True)
class Question:
    """One cell before its model and rows are loaded; `label` is what reports call the attack.

    Without a `precision` the search computes as the process does; with a `margin` successes must hold by that much.
    What is `allowed` to change is what the data says, unless something is said here.
    """

    model: ModelSpec
    data: DataSpec
    label: str
    attack: Attack
    unit: Unit = "feature"
    goal: GoalName = "untargeted"
    target: str | int | None = None
    budget: int | None = None
    seed: int = 0
    precision: str | None = None
    margin: float = 0.0
    batch_size: int = BATCH_SIZE
    prepare: Prepare = "fold"  # not "auto", which may compile in mid-run: a run that goes on shall have the same bits
    trace: bool = False
    allowed: Allowed = field(default=Allowed(), repr=False)


@dataclass(frozen=True)
class Plan:
    """A name and the questions, in the order of the file."""

    name: str
    description: str
    questions: tuple[Question, ...]

    @property
    def digest(self) -> str:
        """SHA-256 of what is asked, whatever the plan is called and however it is computed."""
        plain = [replace(question, batch_size=1, prepare="fold") for question in self.questions]
        asked = sorted(f"{each!r}{each.allowed.words}" for each in plain)
        return hashlib.sha256("\n".join(asked).encode()).hexdigest()

    def override(
        self,
        *,
        limit: int | None = None,
        batch_size: int | None = None,
        precision: str | None = None,
        prepare: Prepare | None = None,
    ) -> Plan:
        """The same plan with these values instead of its own; a limit never raises the plan's."""
        if precision is not None and precision not in PRECISIONS:
            raise ValueError(f"precision {precision!r} is not allowed; {hint(precision, PRECISIONS)}")
        for name, value in (("limit", limit), ("batch size", batch_size)):
            if value is not None and value < 1:
                raise ValueError(f"a {name} of {value} makes no sense; give 1 or more")
        changed = [
            replace(
                q,
                data=q.data.limited(limit),
                batch_size=batch_size or q.batch_size,
                precision=precision or q.precision,
                prepare=prepare or q.prepare,
            )
            for q in self.questions
        ]
        return replace(self, questions=tuple(changed))


def read_plan(path: str | PathLike[str]) -> Plan:
    """Read and check a plan; nothing is loaded yet."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no plan {file}; experiments/small.toml is one to begin with")
    if (size := file.stat().st_size) > LENGTH:
        raise PlanError(f"{path}: has {size} bytes, and a plan has {LENGTH} at most; write several smaller ones")
    try:
        return parse_plan(file.read_text(encoding="utf-8-sig"), str(path), file.stem)
    except UnicodeDecodeError as error:
        raise PlanError(
            f"{path}: not a text in UTF-8 ({error.reason} at byte {error.start}); save it as such"
        ) from None


def parse_plan(text: str, file: str = "plan", name: str = "plan") -> Plan:
    """A plan from TOML text; `file` is what errors call it."""
    values = read_toml(text, file)
    top = TomlTable(values, file, Lines(text))
    top.only(tuple(plan_words.PLAN))
    grids = top.each("grid")
    if not grids:
        raise top.error("there is no [[grid]]; write one with models = [...], data = [...] and attacks = [...]")
    for grid in grids:
        grid.only(tuple(plan_words.GRID))
    _refuse_too_many(top, grids)
    made = [(q, grid) for grid in grids for q in _questions(top, grid)]
    _refuse_unused(top, grids)
    seen: dict[Question, TomlTable] = {}
    for question, grid in made:
        same = replace(
            question,
            model=replace(question.model, name=""),
            data=replace(question.data, name=""),
            label="",
            attack=replace(question.attack, name=""),
            batch_size=1,
            trace=False,
        )
        if same in seen:
            what = f"{question.label} against {question.model.name} on {question.data.name}"
            raise grid.error(f"{what} is asked twice, here and in line {seen[same].lines.of(*seen[same].path)}")
        seen[same] = grid
    return Plan(_name(top, name), top.text("description") or "", tuple(q for q, _ in made))


def _name(top: TomlTable, default: str) -> str:
    """The plan's name, which is also that of its store's file."""
    name = top.text("name") or default
    if not name.strip(". ") or any(mark in "/\\:" or not mark.isprintable() for mark in name):
        raise top.error(f"name = {name!r} is no name for a file; write one without slashes, such as 'small'", "name")
    return name


def _refuse_unused(top: TomlTable, grids: list[TomlTable]) -> None:
    """Refuse a table that no grid names: it is a slip, and what it sets would do nothing."""
    for key in ("models", "data", "attacks"):
        named = [grid.texts(key) for grid in grids]
        if None in named:
            continue  # a grid without the key takes all of them
        used = {name for names in named for name in names or ()}
        for name in top.below(key).values:
            if name not in used:
                raise top.error(f"[{key}.{name}] is used by no grid; {hint(name, sorted(used))}", key, name)


def _refuse_too_many(top: TomlTable, grids: list[TomlTable]) -> None:
    """Count the cells before any is made: a sweep over three lists of 400 values has 64 million."""
    total = 0
    for grid in grids:
        attacks, pairs = 0, len(_models(grid)) * len(_names(top, grid, "data"))
        for name in _names(top, grid, "attacks"):
            table = top.below("attacks").below(name)
            swept = [len(values) for values in table.below("sweep").values.values() if isinstance(values, list)]
            budgets = setting([table, grid, top], "budgets", lambda t: t.values["budgets"])
            attacks += math.prod(swept) * (len(budgets) if isinstance(budgets, list) else 1)
        total += attacks * pairs
        if total > CELLS:
            raise grid.error(f"the plan asks for {total} cells and {CELLS} are allowed; write several smaller plans")


def _questions(top: TomlTable, grid: TomlTable) -> Iterator[Question]:
    """Every cell of one grid."""
    networks = [_model(top, grid, name) for name in _models(grid)]
    rows = [_data(top, grid, name) for name in _names(top, grid, "data")]
    methods = [each for name in _names(top, grid, "attacks") for each in attacks_of(top, grid, name)]
    spaces = {data.name: space_of(top.below("data").below(data.name), grid, top) for data in rows}
    for data, network, (table, label, attack) in itertools.product(rows, networks, methods):
        levels = [table, grid, top]
        goal, target = _goal(levels, attack, label)
        for budget in _budgets(levels, attack, label):
            yield Question(
                model=network,
                data=data,
                label=label,
                attack=attack,
                unit=setting(levels, "unit", lambda t: t.choice("unit", get_args(Unit))) or "feature",
                goal=goal,
                target=target,
                budget=budget,
                seed=setting(levels, "seed", lambda t: t.whole("seed", 0)) or 0,
                precision=setting(levels, "precision", lambda t: t.choice("precision", PRECISIONS)),
                margin=setting(levels, "margin", lambda t: t.number("margin", 0)) or 0.0,
                batch_size=setting([grid, top], "batch_size", lambda t: t.whole("batch_size", 1)) or BATCH_SIZE,
                trace=table.flag("trace"),
                allowed=Allowed(space=spaces[data.name]),
            )


def _models(grid: TomlTable) -> list[str]:
    names = grid.texts("models")
    if names is None:
        raise grid.error("a grid needs models = [...]")
    return names


def _names(top: TomlTable, grid: TomlTable, key: str) -> list[str]:
    names = grid.texts(key) or list(top.below(key).values)
    if not names:
        raise grid.error(f"a grid needs {key} = [...]", key)
    return names


def _model(top: TomlTable, grid: TomlTable, name: str) -> ModelSpec:
    if name not in top.below("models"):
        if models.find(name) is None and ":" not in name and not name.endswith((".pt2", ".onnx")):
            known = [*top.below("models").values, *models.entries()]
            raise grid.error(f"unknown model {name!r}; {hint(name, known)}, or file.py:build", "models")
        return ModelSpec(name, name)
    table = top.below("models").below(name)
    table.only(tuple(plan_words.MODEL))
    return ModelSpec(name, table.text("spec") or name, table.text("weights"), table.text("normalize"))


def _data(top: TomlTable, grid: TomlTable, name: str) -> DataSpec:
    if name not in top.below("data"):
        if name not in DATASETS and not (is_data_file(name) or is_folder(name)):
            known = [*top.below("data").values, *DATASETS]
            raise grid.error(f"unknown data {name!r}; {hint(name, known)}, or a path ending in .npz or .csv", "data")
        return DataSpec(name, name)
    table = top.below("data").below(name)
    table.only(tuple(plan_words.DATA))
    source = table.text("source") or name
    if source not in DATASETS and not (is_data_file(source) or is_folder(source) or is_code(source)):
        raise table.error(
            f"source {source!r} is no data set; {hint(source, DATASETS)}, a path ending in .npz or .csv, "
            "or module:function",
            "source",
        )
    rows = table.wholes("rows", 0) if isinstance(table.values.get("rows"), list) else table.text("rows")
    return DataSpec(
        name, source, tuple(rows) if isinstance(rows, list) else rows, table.whole("limit", 1), table.whole("seed", 0)
    )


def is_code(source: str) -> bool:
    """Whether rows come from a function of a Python module.

    >>> is_code("package.module:rows"), is_code("mnist"), is_code("C:/rows.npz")
    (True, False, False)
    """
    place, colon, name = source.rpartition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in place.split("."))


def _goal(levels: list[TomlTable], attack: Attack, label: str) -> tuple[GoalName, str | int | None]:
    goal: GoalName = setting(levels, "goal", lambda t: t.choice("goal", get_args(GoalName))) or "untargeted"
    if goal not in attack.goals:
        raise levels[0].error(f"{label} has no {goal} form; allowed: {', '.join(attack.goals)}", "goal")
    at = next((table for table in levels if "target" in table), None)
    if at is not None and not any("goal" in table for table in levels):
        raise at.error('target needs goal = "targeted" beside it', "target")
    if goal == "untargeted":
        return goal, None
    if at is None:
        raise levels[1].error(f"a targeted goal needs target = {TARGETS}", "goal")
    target = at.values["target"]
    if target not in ("next", "random") and (isinstance(target, bool) or not isinstance(target, int) or target < 0):
        raise at.error(f"target = {brief(target)} is not allowed; allowed: {TARGETS}", "target")
    return goal, target


def _budgets(levels: list[TomlTable], attack: Attack, label: str) -> list[int] | list[None]:
    found: list[int] | None = setting(levels, "budgets", lambda t: t.wholes("budgets", 0))
    if found is None and attack.kind == "budget":
        raise levels[1].error(f"{label} searches within a fixed budget; write budgets = [...], such as [24, 50]")
    return [None] if found is None else found
