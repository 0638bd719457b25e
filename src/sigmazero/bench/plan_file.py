"""Read plan files: TOML tables that become questions. `scripts/pages.py` makes the page about them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from sigmazero import attacks as registry
from sigmazero import models
from sigmazero.adapters.foreign import is_foreign, planned
from sigmazero.bench.constraints import DEFAULT_BOUNDS, Allowed
from sigmazero.bench.plan import BATCH_SIZE, DataSpec, ModelSpec, Plan, Question, is_code
from sigmazero.core import toml
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.goal import GoalName
from sigmazero.core.inputs import hint
from sigmazero.core.parameters import NamedModel, checked, takes_model
from sigmazero.core.toml import Count, KeyPath, Names, Number, Table, Text, TomlError, Whole, Wholes
from sigmazero.data import DATASETS, is_data_file, is_folder
from sigmazero.spaces import file as space_file
from sigmazero.spaces.space import Space

TARGETS = '"next" (the class after the true one), "random" (another class, drawn by the seed) or a class number'


class Settings(Table):
    """Settings of the whole plan, a grid or an attack; the nearest one wins."""

    steps: Count | None = Field(default=None, description="steps of the attacks; each has its own default")
    budgets: Wholes | None = Field(
        default=None, description="numbers of changes: a cell for each; budget attacks need them"
    )
    unit: Unit | None = Field(default=None, description='`"feature"` counts every value, `"pixel"` every position')
    goal: GoalName | None = Field(default=None, description='`"untargeted"` or `"targeted"`')
    target: Literal["next", "random"] | Whole | None = Field(
        default=None,
        description='for targeted attacks: `"next"` (the class after the true one), `"random"`, or a class number',
    )
    seed: Whole | None = Field(default=None, description="for attacks that draw random numbers; 0 by default")
    margin: Number | None = Field(default=None, description="least margin of a success in the logits; 0 by default")
    precision: Literal["fp32", "tf32", "bf16", "fp64"] | None = Field(
        default=None,
        description='number format of the search: `"fp32"`, `"tf32"`, `"bf16"`, `"fp64"`; torch\'s by default',
    )


class SpaceTable(space_file.SpaceFile):
    """`[space]`: a file, or the tables of one."""

    file: Text | None = Field(default=None, description="a space file; or instead of it what such a file holds")


class ModelTable(Table):
    """`[models.NAME]`."""

    spec: Text | None = Field(
        default=None,
        description="what to load: a zoo code, `file.py:build`, `package.module:build`, a `.pt2` or `.onnx` file",
    )
    weights: Text | None = Field(default=None, description="a state dict for it, also as safetensors")
    normalize: Text | None = Field(default=None, description="`MEAN,STD`, or `mnist`, `cifar10`, `imagenet`")


class DataTable(Table):
    """`[data.NAME]`."""

    source: Text | None = Field(
        default=None,
        description="a data set's name, an `.npz` file, a table, a folder ending in `/`, or `module:function`",
    )
    rows: Text | Wholes | None = Field(default=None, description='`"0:100"`, `"5,7,9"`, or a list of numbers')
    limit: Count | None = Field(
        default=None,
        description="at most this many rows, with each class in its share, or drawn if a seed is given",
    )
    seed: Whole | None = Field(default=None, description="for that choice")
    bounds: list[float] | None = Field(
        default=None,
        min_length=2,
        max_length=2,
        description="the ends of every value in a file of your own, such as `[0, 255]`; 0 and 1 by default",
    )
    space: SpaceTable | None = Field(default=None, description="what may change in these rows")


class AttackTable(Settings):
    """`[attacks.NAME]`."""

    attack: Text | None = Field(
        default=None, description='the registered attack; `"foolbox:L0FMNAttack"` is one of another library'
    )
    parameters: dict[str, Any] = Field(default={}, description="its parameters, such as `{ threshold = 0.2 }`")
    sweep: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        default={}, description="lists of values, such as `{ threshold = [0.1, 0.3] }`: one attack for each combination"
    )
    trace: bool = Field(default=False, description="`true` stores every query; rows then run one at a time")


class Grid(Settings):
    """`[[grid]]`: every model × data × attack × budget is one cell."""

    models: Names = Field(description="names: of the zoo, `file.py:build`, or of tables `[models.NAME]`")
    data: Names = Field(
        default=[], description="data sets, files, folders, or tables `[data.NAME]`; by default all of these"
    )
    attacks: Names = Field(
        default=[], description="registered names, `library:name`, or tables `[attacks.NAME]`; by default all of these"
    )
    space: SpaceTable | None = Field(default=None, description="what may change in this grid")
    batch_size: Count | None = Field(default=None, description="rows searched together; no result depends on it")


def _file_name(name: str) -> str:
    """Refuse a name that would lead to another folder."""
    if not name.strip(". ") or not name.isprintable() or set(name) & set("/\\:"):
        raise ValueError("must be the name of a file, without a folder")
    return name


class PlanFile(Settings):
    """The whole file."""

    name: Annotated[str, AfterValidator(_file_name)] | None = Field(
        default=None, description="the plan's name, and that of its store; the file's name by default"
    )
    description: str = Field(default="", description="a line for people")
    batch_size: Count = Field(default=BATCH_SIZE, description="rows searched together; no result depends on it")
    models: dict[str, ModelTable] = Field(default={}, description="tables `[models.NAME]`")
    data: dict[str, DataTable] = Field(default={}, description="tables `[data.NAME]`")
    attacks: dict[str, AttackTable] = Field(default={}, description="tables `[attacks.NAME]`")
    space: SpaceTable | None = Field(default=None, description="a table `[space]`: what may change")
    grid: Annotated[list[Grid], Field(min_length=1)] = Field(description="one table `[[grid]]` or more")


def read_plan(path: str | PathLike[str]) -> Plan:
    """Read and check a plan; nothing is loaded yet."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"there is no plan {file}; experiments/small.toml is one to begin with")
    return parse_plan(toml.read(file), str(path), file.stem)


def parse_plan(text: str, file: str = "plan", name: str = "plan") -> Plan:
    """Return the plan in a TOML text; `file` is its name in errors, `name` the plan's where it gives none."""
    plan = toml.parse(text, PlanFile, file)
    return Plan(plan.name or name, plan.description, tuple(_Builder(plan, text, file).questions()))


class _Builder:
    """Turn the tables of a plan into questions."""

    def __init__(self, plan: PlanFile, text: str, file: str) -> None:
        self.plan, self.text, self.file = plan, text, file

    def error(self, message: str, *path: str | int) -> TomlError:
        """Return an error at the line of a key."""
        return toml.error(self.text, self.file, message, *path)

    def questions(self) -> list[Question]:
        """Return every cell of every grid; one that is asked twice is a mistake."""
        found: list[Question] = []
        grids: dict[Question, int] = {}
        for index, grid in enumerate(self.plan.grid):
            for question in self._grid(index, grid):
                same = replace(  # names do not matter
                    question,
                    model=replace(question.model, name=""),
                    data=replace(question.data, name=""),
                    label="",
                    attack=replace(question.attack, name=""),
                    batch_size=1,
                    trace=False,
                )
                if same in grids:
                    what = f"{question.label} against {question.model.name} on {question.data.name}"
                    first = toml.line_of(self.text, ("grid", grids[same]))
                    raise self.error(f"{what} is asked twice, here and in line {first}", "grid", index)
                grids[same] = index
                found.append(question)
        self._refuse_unused()
        return found

    def _refuse_unused(self) -> None:
        """Refuse a table that no grid names: it is a typing error, and its settings would be ignored."""
        for kind in ("models", "data", "attacks"):
            lists = [getattr(grid, kind) for grid in self.plan.grid]
            used = {name for names in lists for name in names}
            for name in getattr(self.plan, kind):
                if all(lists) and name not in used:  # a grid without names takes all tables
                    raise self.error(f"[{kind}.{name}] is used by no grid; {hint(name, sorted(used))}", kind, name)

    def _grid(self, index: int, grid: Grid) -> Iterator[Question]:
        """Yield every cell of one grid."""
        plan, at = self.plan, ("grid", index)
        for key in ("data", "attacks"):
            if not (getattr(grid, key) or getattr(plan, key)):
                raise self.error(f"a grid needs {key} = [...]", *at)
        networks = [self._model(name, index) for name in grid.models]
        rows = [self._data(name, index) for name in grid.data or plan.data]
        methods = [each for name in grid.attacks or plan.attacks for each in self._attacks(name, index)]
        spaces = {data.name: self._space(data.name, index) for data in rows}
        boxes = {data.name: data.bounds or DEFAULT_BOUNDS for data in rows}
        allowed = {name: Allowed(space=space) if space else Allowed(boxes[name]) for name, space in spaces.items()}
        for data, network, (name, attack) in itertools.product(rows, networks, methods):
            table = plan.attacks.get(name, AttackTable())
            levels: Levels = [(("attacks", name), table), (at, grid), ((), plan)]
            settings = {key: _setting(levels, key) for key in ("unit", "seed", "precision", "margin")}
            goal, target = self._goal(levels, attack)
            budgets = _setting(levels, "budgets") or [None]
            if budgets == [None] and attack.kind == "budget":
                what = f"{attack.name} searches within a fixed budget; write budgets = [...], as [24, 50]"
                raise self.error(what, *at)
            for budget in budgets:
                yield Question(
                    model=network,
                    data=data,
                    label=attack.name,
                    attack=attack,
                    goal=goal,
                    target=target,
                    budget=budget,
                    batch_size=grid.batch_size or plan.batch_size,
                    trace=table.trace,
                    allowed=allowed[data.name],
                    **{key: value for key, value in settings.items() if value is not None},
                )

    def _goal(self, levels: Levels, attack: Attack) -> tuple[GoalName, str | int | None]:
        goal, target = _setting(levels, "goal"), _setting(levels, "target")
        if goal is None and target is not None:
            raise self.error('target needs goal = "targeted" beside it', *_path(levels, "target"))
        goal = goal or "untargeted"
        if goal not in attack.goals:
            allowed = ", ".join(attack.goals)
            raise self.error(f"{attack.name} has no {goal} form; allowed: {allowed}", *levels[0][0], "goal")
        if goal == "targeted" and target is None:
            raise self.error(f"a targeted goal needs target = {TARGETS}", *_path(levels, "goal"))
        return goal, target if goal == "targeted" else None

    def _model(self, name: str, index: int) -> ModelSpec:
        known = name in self.plan.models or ":" in name or name.endswith((".pt2", ".onnx")) or models.find(name)
        if not known:
            near = hint(name, [*self.plan.models, *models.entries()])
            raise self.error(f"unknown model {name!r}; {near}, or file.py:build", "grid", index, "models")
        table = self.plan.models.get(name, ModelTable())
        return ModelSpec(name, table.spec or name, table.weights, table.normalize)

    def _data(self, name: str, index: int) -> DataSpec:
        table, described = self.plan.data.get(name, DataTable()), name in self.plan.data
        source = table.source or name
        known = source in DATASETS or is_data_file(source) or is_folder(source) or (described and is_code(source))
        if not known:
            at = ("data", name, "source") if described else ("grid", index, "data")
            near = hint(source, DATASETS if described else [*self.plan.data, *DATASETS])
            raise self.error(f"{source!r} is no data set; {near}, or a path ending in .npz or .csv", *at)
        rows = tuple(table.rows) if isinstance(table.rows, list) else table.rows
        bounds = None if table.bounds is None else (table.bounds[0], table.bounds[1])
        return DataSpec(name, source, rows, table.limit, table.seed, bounds)

    def _space(self, data: str, index: int) -> Space | None:
        """Return the grid's own space, that of the data's table, or the plan's."""
        table = self.plan.data.get(data, DataTable())
        given: dict[KeyPath, SpaceTable | None] = {
            ("grid", index, "space"): self.plan.grid[index].space,
            ("data", data, "space"): table.space,
            ("space",): self.plan.space,
        }
        path, space = next(((path, space) for path, space in given.items() if space is not None), ((), None))
        if space is None:
            return None
        if space.file is not None and space.model_fields_set != {"file"}:
            raise self.error("a space has either file = ... or the tables of such a file", *path)
        try:
            return space_file.build(space) if space.file is None else space_file.read(space.file)
        except TomlError:
            raise  # in the file that the plan names
        except ValueError as error:
            raise self.error(str(error).removeprefix("space: "), *path) from None

    def _attacks(self, name: str, index: int) -> Iterator[tuple[str, Attack]]:
        """Yield the attack of a name, or one for each combination of its sweep."""
        table = self.plan.attacks.get(name, AttackTable())
        base = table.attack or name
        if base not in registry.ATTACKS and not is_foreign(base):
            at = ("attacks", name, "attack") if name in self.plan.attacks else ("grid", index, "attacks")
            known = registry.ATTACKS if table.attack else [*self.plan.attacks, *registry.ATTACKS]
            raise self.error(f"unknown attack {base!r}; {hint(base, known)}", *at)
        steps = next((t.steps for t in (table, self.plan.grid[index], self.plan) if t.steps is not None), None)
        for values in itertools.product(*table.sweep.values()):
            swept = dict(zip(table.sweep, values, strict=True))
            label = " ".join([name, *(f"{key}={value}" for key, value in swept.items())])
            given, where = {**table.parameters, **swept}, ("attacks", name, "parameters")
            if is_foreign(base):
                yield name, planned(base, label, given, steps, lambda what, at=where: self.error(what, *at))  # type: ignore[misc]
                continue
            if "steps" in given:
                raise self.error("write steps beside parameters, not among them", *where)
            attack = registry.get(base)
            chosen: dict[str, Any] = {} if steps is None else {"steps": steps}
            for key, value in given.items():
                try:
                    chosen[key] = parameter(attack, key, value)
                except ValueError as error:
                    kind = "sweep" if key in swept else "parameters"
                    raise self.error(str(error), "attacks", name, kind, key) from None
            try:
                yield name, replace(registry.get(base, **chosen), name=label)
            except (TypeError, ValueError) as error:
                raise self.error(f"{base}: {error}", *where) from None


Levels = list[tuple[KeyPath, Settings]]  # tables and their paths: of the attack, of the grid, of the plan


def _setting(levels: Levels, key: str) -> Any:
    """Return a setting from the nearest table that has it."""
    return next((value for _, table in levels if (value := getattr(table, key)) is not None), None)


def _path(levels: Levels, key: str) -> KeyPath:
    """Return the path of that setting."""
    return next(((*path, key) for path, table in levels if getattr(table, key) is not None), ())


def parameter(attack: Attack, key: str, value: Any) -> Any:
    """Return the value of a parameter of an attack; a text may name a network or another attack."""
    known = attack.parameters()
    if key not in known:
        raise ValueError(f"{attack.name} has no parameter {key!r}; {hint(key, [k for k in known if k != 'steps'])}")
    if isinstance(value, str) and takes_model(type(attack), key):
        return NamedModel(value)
    if isinstance(value, str) and isinstance(known[key], Attack):
        if value not in registry.ATTACKS:
            raise ValueError(f"{key} = {value!r} is no attack; {hint(value, registry.ATTACKS)}")
        return registry.get(value)
    return checked(type(attack), key, tuple(value) if isinstance(value, list) else value)
