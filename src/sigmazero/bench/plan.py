"""Plans: which attacks run against which models on which rows. `bench.plan_file` reads them from TOML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from sigmazero.bench.constraints import DEFAULT_BOUNDS, Allowed
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.goal import GoalName
from sigmazero.core.hardware import Precision, Prepare
from sigmazero.core.inputs import check_margin, hint
from sigmazero.core.problem import whole
from sigmazero.data import is_data_file, is_folder
from sigmazero.data.table import is_table
from sigmazero.models.load import is_pickle

PRECISIONS = (*get_args(Precision), "fp64")
BATCH_SIZE = 64


@dataclass(frozen=True)
class ModelSpec:
    """A model by name or file, as `models.load` takes it.

    table  for an estimator: the table that the rows come from
    """

    name: str
    spec: str
    weights: str | None = None
    normalize: str | None = None
    table: str | None = None

    def on(self, data: DataSpec) -> ModelSpec:
        """Return the model for these rows."""
        may_fit = is_table(data.source) and (":" in self.spec or is_pickle(self.spec))
        return replace(self, table=data.source) if may_fit and self.table is None else self


@dataclass(frozen=True)
class DataSpec:
    """Rows of a data set, as `data.load` takes them.

    bounds  of the values in a user's own file, if they are not 0 and 1
    """

    name: str
    source: str
    rows: str | tuple[int, ...] | None = None
    limit: int | None = None
    seed: int | None = None
    bounds: tuple[float, float] | None = None

    def within(self, bounds: tuple[Any, Any]) -> DataSpec:
        """Return the same rows, read in the units that these bounds have."""
        own = is_data_file(self.source) or is_folder(self.source)
        plain = all(isinstance(each, int | float) for each in bounds) and tuple(bounds) != DEFAULT_BOUNDS
        return replace(self, bounds=(float(bounds[0]), float(bounds[1]))) if own and plain else self

    def limited(self, limit: int | None) -> DataSpec:
        """Return the same rows, but at most `limit`; a smaller limit of its own stays."""
        known = [n for n in (self.limit, limit) if n is not None]
        return replace(self, limit=min(known, default=None))


@dataclass(frozen=True)
class Question:
    """One cell before its model and rows are loaded; `label` is the attack's name in reports.

    precision   number format of the search; None for that of the process
    margin      least margin in the logits by which a success must hold
    allowed     the constraints; those of the data unless some are given here
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
    prepare: Prepare = "auto"
    trace: bool = False
    allowed: Allowed = field(default=Allowed(), repr=False)

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        choices = {
            "unit": (self.unit, get_args(Unit)),
            "goal": (self.goal, get_args(GoalName)),
            "precision": (self.precision or "fp32", PRECISIONS),
            "prepare": (self.prepare, get_args(Prepare)),
        }
        for name, (value, known) in choices.items():
            if value not in known:
                raise ValueError(f"{name}={value!r} is not allowed; {hint(str(value), known)}")
        if self.goal == "untargeted" and self.target is not None:
            raise ValueError(f'target={self.target!r} needs goal="targeted"')
        number = whole(self.target) and isinstance(self.target, int) and self.target >= 0
        if self.goal == "targeted" and self.target not in ("next", "random") and not number:
            what = f'target={self.target!r} is not allowed with goal="targeted"'
            raise ValueError(f'{what}; give "next", "random" or a class number')
        if not (whole(self.batch_size) and self.batch_size >= 1):
            raise ValueError(f"batch_size={self.batch_size!r} must be a whole number, 1 or more")
        check_margin(self.margin)
        object.__setattr__(self, "data", self.data.within(self.allowed.bounds))
        object.__setattr__(self, "model", self.model.on(self.data))


@dataclass(frozen=True)
class Plan:
    """A plan's name and its questions, in the order of the file."""

    name: str
    description: str
    questions: tuple[Question, ...]

    def select(self, models: Sequence[str] = (), attacks: Sequence[str] = ()) -> Plan:
        """Return the questions about these models and attacks; all where none is named."""
        known = {"model": [q.model.name for q in self.questions], "attack": [q.label for q in self.questions]}
        for kind, names in (("model", models), ("attack", attacks)):
            for name in names:
                if name not in known[kind]:
                    few = dict.fromkeys(known[kind])
                    raise ValueError(f"plan {self.name!r} has no {kind} {name!r}; {hint(name, few)}")
        chosen = [
            q for q in self.questions if (not models or q.model.name in models) and (not attacks or q.label in attacks)
        ]
        if not chosen:
            raise ValueError(f"plan {self.name!r} has no question about these models and attacks together")
        return replace(self, questions=tuple(chosen))

    def override(self, *, limit: int | None = None, precision: str | None = None) -> Plan:
        """Return the same plan with these values instead of its own; a limit never raises the plan's."""
        if limit is not None and limit < 1:
            raise ValueError(f"limit={limit} must be 1 or more")
        changed = (replace(q, data=q.data.limited(limit), precision=precision or q.precision) for q in self.questions)
        return replace(self, questions=tuple(changed))


def is_code(source: str) -> bool:
    """Return whether rows come from a function of a Python module.

    >>> is_code("package.module:rows"), is_code("mnist"), is_code("C:/rows.npz")
    (True, False, False)
    """
    module, colon, name = source.rpartition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))
