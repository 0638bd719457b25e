"""The contract of attacks: a frozen dataclass of hyper-parameters with `init` and `step`."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypedDict, Unpack, cast

from torch import Tensor, nn

from sigmazero.core.domain import Unit
from sigmazero.core.findings import render
from sigmazero.core.goal import GoalName
from sigmazero.core.hardware import Hardware
from sigmazero.core.inputs import Array, Bounds, as_inputs, follow, hint, make_problem
from sigmazero.core.messages import warn_caller
from sigmazero.core.model import TAKES, Ability
from sigmazero.core.oracle import Model, Oracle
from sigmazero.core.parameters import Count, checked
from sigmazero.core.problem import Problem
from sigmazero.core.result import Outcome, Result

if TYPE_CHECKING:
    from sigmazero.spaces.space import Space


class RunOptions(TypedDict, total=False):
    """The options of `Attack.run`, which functions such as `sz.sigma_zero` take too."""

    targeted: bool
    bounds: Bounds
    unit: Unit
    mask: Array | None
    space: "Space | None"
    budget: int | None
    seed: int
    batch_size: int | None
    progress: bool
    margin: float
    start: Array | None
    pool: Array | None
    ids: Array | None
    hardware: Hardware | None


# What adv-lib and the authors of σ-zero call what every attack has.
ALIASES = {"num_steps": "steps", "max_iter": "steps", "epsilon_budget": "budget", "verbose": "progress"}


@dataclass(frozen=True, kw_only=True)
class Attack(ABC):
    """A method: each step takes a state and returns a new one, and asks the model through the oracle alone.

    A state is a dataclass of tensors whose first dimension is the batch (fields may be None). Two field names mean
    something to the driver: rows marked in `done` leave; `own` is the point the method would return by its own rule
    where that is not the sparsest adversarial point it queried, which the oracle keeps anyway.
    A step may not read a tensor's value on the host, unless the class says `capturable = False`.
    An attack made of several phases lists them in `phases`; then their steps are taken, not its own.
    """

    name: str
    steps: Annotated[Count, "most steps of a sample"]

    kind: ClassVar[Literal["minimum-norm", "budget"]] = "minimum-norm"
    goals: ClassVar[tuple[GoalName, ...]] = ("untargeted", "targeted")
    needs: ClassVar[Ability] = "gradients"  # the least that a model must give it
    capturable: ClassVar[bool] = True
    keeps_own: ClassVar[bool] = False
    borrowed: ClassVar[bool] = False  # whether it is another library's, which may fail silently
    finite_box: ClassVar[bool] = False  # whether it needs finite ends: it moves features there, or draws between them
    spaces: ClassVar[bool] = True  # whether it works where the oracle asks about the nearest legal point
    remembers: ClassVar[bool] = False  # whether it asks about no point of a row twice in a box; in a space all do so
    takes: ClassVar[frozenset[str]] = frozenset()  # which of `start` and `pool` it uses; others are refused
    unroll: ClassVar[int] = 5  # steps captured together: they share a launch and its copies
    asks: ClassVar[str] = ""  # how many queries a step costs, in words
    paper: ClassVar[str]
    version: ClassVar[int] = 1
    aliases: ClassVar[dict[str, str]] = {}  # what other libraries call its parameters; sz.NAME(...) takes these names

    if not TYPE_CHECKING:  # type checkers know that dataclasses with keywords alone refuse this

        def __new__(cls, *given, **parameters):
            """Refuse a model here, where other libraries take it, and unknown parameters; say what to write."""
            name = cls.__name__
            where = f"the model goes into the call: {name}(steps=...)(model, x, y); in sigmazero.adapters.torchattacks "
            where += f"and sigmazero.adapters.art there is a {name} that takes the model first"
            if given:
                raise TypeError(f"{name} takes its parameters by name, and got a {type(given[0]).__name__}; {where}")
            for unknown in sorted(parameters.keys() - {f.name for f in fields(cls)}):
                if unknown in ("model", "estimator", "classifier"):
                    raise TypeError(f"{name} takes no {unknown}=; {where}")
                raise no_parameter(cls, name, unknown)
            return super().__new__(cls)

    def __post_init__(self) -> None:
        """Refuse values that the types of the fields do not allow."""
        for name, value in self.parameters().items():
            object.__setattr__(self, name, checked(type(self), name, value))

    def run(
        self,
        model: object,
        x: Array,
        y: Array,
        *,
        targeted: bool = False,
        bounds: Bounds = (0.0, 1.0),
        unit: Unit = "feature",
        mask: Array | None = None,
        space: "Space | None" = None,
        budget: int | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        progress: bool = False,
        margin: float = 0.0,
        start: Array | None = None,
        pool: Array | None = None,
        ids: Array | None = None,
        hardware: Hardware | None = None,
    ) -> Result:
        """Attack every row of x and return what was found for each.

        model      a callable from inputs to logits, or what `sz.wrap` knows; a module is put in eval mode and restored
        x, y       tensors, NumPy arrays or lists; y are the true classes, or the classes to reach if `targeted`
        bounds     the box: scalars, or tensors that broadcast to one sample; the search scales it to [0, 1]
        unit       "feature" counts every scalar, "pixel" a position once for all its channels
        mask       True where a feature may change; for one sample or for all
        space      what may change, to which values, at what cost (docs/spaces.md); instead of bounds; experimental
        budget     the most changes, in the unit, that a success may have; a sample stops at its first such point
        seed       random numbers depend on it, on `ids` and on the step alone, not on the batch
        batch_size None picks one; it is halved when memory runs out
        progress   show a bar with speed and time left, on a terminal
        margin     the least by which a success must hold in the logits
        start      a starting point per sample, for attacks that begin at one: bb, label-swap, swap-search
        pool       inputs that bb and label-swap may start from; all of x if None
        ids        a number for each sample, by which its random numbers are drawn; 0, 1, 2, … if None
        hardware   how to use the machine: `sz.Hardware(precision=..., prepare=..., capture=...)`

        The search runs where the model is: x moves to its device, and the result comes back as tensors on the device
        of x. Tensors keep their number format; arrays and lists take the model's.
        """
        # The contract does not depend on its driver, which is loaded when a run begins.
        from sigmazero.run import Session

        network = as_model(model, x)
        given = as_inputs(x, network, bounds)
        problem = make_problem(
            follow(given, network),
            y,
            targeted=targeted,
            bounds=bounds,
            unit=unit,
            mask=mask,
            space=space,
            budget=budget,
            seed=seed,
            ids=ids,
            start=start,
            pool=pool,
            margin=margin,
        )
        with Session(self, network, hardware, batch_size=batch_size) as session:
            result = session.run(problem, progress=progress)
            result = replace(result.to(given.device), findings=session.findings(), x=given, classes=_class_names(model))
        for each in result.findings:
            warn_caller(render([each]))
        if targeted and len(result) > 1 and bool((result.outcome == Outcome.ALREADY).all()):
            advice = "with targeted=True pass the classes to reach"
            warn_caller(f"all targets equal the prediction, so nothing was searched; {advice}")
        return replace(result, names=None if space is None else space.names)

    def __call__(self, model: object, x: Array, y: Array, **options: Unpack[RunOptions]) -> Result:
        """Call `run`."""
        for unknown in sorted(options.keys() - RunOptions.__annotations__.keys()):
            advice = "give the most changes as budget=k" if unknown in ("eps", "epsilon", "epsilons") else None
            raise TypeError(f"{self.name} takes no {unknown}=; {advice or hint(unknown, RunOptions.__annotations__)}")
        return self.run(model, x, y, **options)

    def check(self, problem: Problem) -> None:
        """Refuse a question that this attack does not answer."""
        for argument, given in (("start", problem.start is not None), ("pool", problem.pool_given)):
            if given and argument not in self.takes:
                takers = ", ".join(sorted(name for name, taken in TAKES.items() if argument in taken))
                raise ValueError(
                    f"{self.name} does not use {argument}=; leave it out, or choose one that does: {takers}"
                )
        if problem.goal.name not in self.goals:
            raise ValueError(f"{self.name} has no {problem.goal.name} form; it supports: {', '.join(self.goals)}")
        if self.kind == "budget" and problem.budget is None:
            raise ValueError(f"{self.name} searches within a fixed budget; pass budget=k")
        if self.finite_box and len(problem) and not problem.domain.bounded:
            raise ValueError(f"{self.name} moves features to the ends of the box: it needs finite bounds")
        if not self.spaces and problem.domain.snaps:
            raise ValueError(
                f"{self.name} cannot honour a space that is more than a box; use sigma-zero or sigma-swap instead"
            )

    def parameters(self) -> dict[str, Any]:
        """Return the hyper-parameters by name, without the attack's own name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "name"}

    # Authors of attacks write these, and the driver calls them.

    @property
    def iterations(self) -> int:
        """Return how often `step` is called at most."""
        return self.steps

    @property
    def limit(self) -> int | None:
        """Return the most queries of a sample, forwards and backwards, checks included; None for no limit.

        It is the parameter `queries`, where there is one.
        """
        queries: int | None = getattr(self, "queries", None)
        return queries

    @property
    def step_cost(self) -> int:
        """Return the most queries of one step, where there is a limit."""
        return 1

    def phases(self, problem: Problem | None = None) -> "tuple[Attack | Fork, ...]":
        """Return the parts of the attack, each of which begins where the one before ended; a fork comes last."""
        del problem
        return (self,)

    @abstractmethod
    def init(self, oracle: Oracle) -> Any:
        """Return the state before the first step."""

    def follow(self, oracle: Oracle, before: Any) -> Any:
        """Return the state before the first step of a phase; the phase before it ended in the state `before`."""
        del before
        return self.init(oracle)

    @abstractmethod
    def step(self, i: Tensor, state: Any, oracle: Oracle) -> Any:
        """Ask the oracle and return the new state. `i`, the number of the step, is a scalar tensor on the device."""


@dataclass(frozen=True)
class Fork:
    """Two ways on from a phase, each a sequence of phases: one for the rows that `chosen` marks by the state of that
    phase, one for the others.
    """

    chosen: Callable[[Any], Tensor]
    then: Sequence[Any]
    otherwise: Sequence[Any]

    @property
    def ways(self) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return both ways."""
        return self.then, self.otherwise


def no_parameter(kind: type[Attack], title: str, name: str, also: Iterable[str] = ()) -> TypeError:
    """Return the error about a parameter that an attack does not have, with what it is called here.

    >>> from sigmazero.attacks.fmn import FMN
    >>> no_parameter(FMN, "fmn", "γ_init")
    TypeError("fmn has no parameter 'γ_init'; here it is called 'budget_rate'")
    """
    here = (ALIASES | kind.aliases).get(name)
    known = [*(f.name for f in fields(kind) if f.name != "name"), *also]
    advice = f"here it is called {here!r}" if here else hint(name, known)
    return TypeError(f"{title} has no parameter {name!r}; {advice}")


def _class_names(model: object) -> tuple[str, ...] | None:
    """Return the names of a model's classes, where it has them as an estimator does."""
    classes = getattr(model, "classes", None) if isinstance(model, nn.Module) else getattr(model, "classes_", None)
    if isinstance(classes, Tensor | nn.Module | str) or not hasattr(classes, "__len__"):
        return None
    return tuple(map(str, cast(Any, classes))) or None


def as_model(model: object, x: object = None) -> Model:
    """Return a model as attacks ask it; a model given by its name is loaded onto the device of x."""
    keras = any(kind.__module__.partition(".")[0] == "keras" for kind in type(model).__mro__)  # modules of torch too
    if keras or not isinstance(model, nn.Module):
        from sigmazero.models.wrapping import understood  # loads other libraries

        model = understood(model, x.device if isinstance(x, Tensor) else "cpu")
    return cast(Model, model)
