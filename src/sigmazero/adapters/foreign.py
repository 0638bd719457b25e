"""Attacks of other libraries, and functions of your own, as attacks of ours.

    sz.foreign("foolbox:L0FMNAttack", steps=100)            a name and options, as plans have them
    sz.foreign(foolbox.attacks.L0FMNAttack(steps=100))      an attack of foolbox, torchattacks or ART
    sz.foreign(adv_lib.attacks.fmn, norm=0)                 a function (model, inputs, labels) -> inputs
    sz.foreign(x_adv)                                       points found elsewhere, by the numbers of their rows

It runs wherever an attack of ours does: `run`, `sz.evaluate`, plans. The result is the best point that the attack
tried, `result.own` the one that it returned; both are verified.

>>> import torch, sigmazero as sz
>>> model = torch.nn.Linear(4, 2).requires_grad_(False)
>>> _ = model.weight.copy_(torch.tensor([[4., 3., 2., 1.], [0., 0., 0., 0.]])), model.bias.copy_(torch.tensor([0., 3.]))
>>> def darken(model, x, y):
...     return torch.stack([row if model(row[None]).argmax() != label else 0 * row for row, label in zip(x, y)])
>>> result = sz.foreign(darken).run(model, torch.full((1, 4), 0.5), torch.tensor([0]))
>>> result.own.l0.tolist(), result.forwards.tolist()  # the clean input; its question, its answer; two checks of both
([4.0], [7])
"""

import hashlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from sigmazero.adapters._callers import Caller, as_setting, find, recognise
from sigmazero.adapters._callers import is_foreign as is_foreign  # plans and the command line ask it too
from sigmazero.adapters.proxy_model import Enough, ProxyModel
from sigmazero.attacks import get
from sigmazero.core import noise
from sigmazero.core.attack import Attack
from sigmazero.core.extras import MissingExtra
from sigmazero.core.inputs import check_inputs
from sigmazero.core.model import Ability, ability_of, working
from sigmazero.core.oracle import Oracle
from sigmazero.core.parameters import Count
from sigmazero.core.problem import Problem

WRITERS = {"summary_writer", "tensorboard"}
__all__ = ["Foreign", "foreign"]


@dataclass
class State:
    """One row per sample: its point, and whether it is done."""

    own: Tensor
    done: Tensor


@dataclass(frozen=True, kw_only=True)
class Foreign(Attack):
    """An attack of another library, or a function.

    peer         the library: foolbox, torchattacks, art, adv-lib; "" for a function of your own
    release      its version
    method       the attack's name there
    options      its options, by name
    steps        its number of steps, if it has one (see `Caller.steps_of`)
    rows         inputs that it gets at once. One by one nothing depends on the batch, and every query belongs to its
                 sample. More is faster on a device; then a point belongs to the nearest input
    max_queries  the most queries of a sample, forwards, backwards and checks; then it is stopped
    """

    name: str
    steps: Count = 1
    peer: str = ""
    release: str = ""
    method: str = ""
    options: Any = ()
    rows: Count = 1
    max_queries: Count | None = None
    caller: Any = field(default=None, compare=False, repr=False)  # where the name alone does not lead to it
    objects: Any = field(default=None, compare=False, repr=False)  # the options, where a text cannot hold them

    capturable: ClassVar[bool] = False
    keeps_own: ClassVar[bool] = True
    borrowed: ClassVar[bool] = True
    finite_box: ClassVar[bool] = True
    needs: ClassVar[Ability] = "labels"  # only the attack knows whether it needs more, so it is tried
    paper: ClassVar[str] = "docs/bridges.md"

    @property
    def iterations(self) -> int:
        """Return 1: the whole attack is one step of ours."""
        return 1

    @property
    def limit(self) -> int | None:
        """Return the most queries of a sample, forwards and backwards, checks included; None for no limit."""
        return self.max_queries

    def parameters(self) -> dict[str, Any]:
        """Return what identifies it; a function of your own is known by the hash of its code (see `bench.identity`)."""
        return {name: value for name, value in super().parameters().items() if name not in ("caller", "objects")}

    @property
    def code(self) -> tuple[Callable[..., Any], ...]:
        """Return the user's own code that runs."""
        return () if self.peer else (self._caller.thing,)

    @property
    def _caller(self) -> Caller:
        return self.caller if isinstance(self.caller, Caller) else find(self.peer, self.method)

    def check(self, problem: Problem) -> None:
        """Refuse a question that it does not answer."""
        super().check(problem)
        least = problem.clean + _reserved(problem) + 1
        if self.max_queries is not None and self.max_queries < least:
            raise ValueError(
                f"max_queries={self.max_queries} are too few: pass {least}, as checks may take {least - 1}"
            )
        caller = self._caller
        caller.check_goal(self.name, problem.goal.narrow)
        if caller.made and caller.steps_of({}) != self.steps:
            raise ValueError(f"{self.name} was made already; give steps={self.steps} when you make it")

    def init(self, oracle: Oracle) -> State:
        """Return the clean inputs: nothing is found yet."""
        return State(oracle.domain.x.clone(), torch.zeros_like(oracle.incumbents.alive))

    def step(self, i: Tensor, state: State, oracle: Oracle) -> State:
        """Let it attack all samples, a few at a time."""
        del i
        own = state.own.clone()
        for rows in torch.split(torch.arange(len(own), device=own.device), self.rows):
            own[rows] = self._attacked(oracle, rows)
        return State(own, torch.ones_like(state.done))

    def _attacked(self, oracle: Oracle, rows: Tensor) -> Tensor:
        problem = oracle.problem.take(rows)
        x, caller = problem.domain.x, self._caller
        most = None if self.max_queries is None else self.max_queries - _reserved(problem)
        proxy = ProxyModel(oracle, rows, most).eval()
        try:
            with _seeded(problem), torch.enable_grad():
                options = {} if caller.made else dict(self.options if self.objects is None else self.objects)
                if caller.steps_name is not None:
                    options[caller.steps_name] = self.steps
                found = caller.points(proxy, x.clone(), problem.y.clone(), problem.goal.narrow, options)
        except Enough:
            return oracle.incumbents.best[rows]
        except ModuleNotFoundError as error:  # which some libraries say when an attack begins, and do not require
            raise MissingExtra(f"{self.name} needs {error.name}: pip install {error.name}") from error
        except RuntimeError as error:
            if proxy.dead_end and "grad" in str(error):
                has = ability_of(oracle.model)
                works = " or ".join(working("scores" if has == "gradients" else has))
                raise TypeError(f"{self.name} needs gradients, and this model has none; use {works}") from error
            raise
        if tuple(found.shape) != tuple(x.shape):
            shapes = f"{tuple(found.shape)}, expected {tuple(x.shape)}"
            raise ValueError(f"{self.name} returned inputs of shape {shapes}: one for each it was given")
        return proxy.returned(found.detach().to(x))


def _reserved(problem: Problem) -> int:
    """Return the queries of a sample that come after the attack: the checks of what was found and of its own answer."""
    return problem.reserve + problem.checks


@dataclass(frozen=True, kw_only=True)
class Points(Attack):
    """One point for each row number; `digest` is the hash of both, by which a store knows them."""

    name: str = "points"
    steps: Count = 1
    digest: str
    points: Any = field(compare=False, repr=False)
    numbers: Any = field(compare=False, repr=False)

    needs: ClassVar[Ability] = "labels"
    capturable: ClassVar[bool] = False
    paper: ClassVar[str] = "docs/bridges.md"
    version: ClassVar[int] = 2

    @classmethod
    def of(cls, points: Tensor, ids: Tensor | Sequence[int] | None, name: str) -> "Points":
        """Make the attack from points and the numbers of their rows: 0, 1, 2, ... unless others are given."""
        check_inputs(points)
        numbers = torch.arange(len(points)) if ids is None else torch.as_tensor(ids)
        if numbers.shape != points.shape[:1] or len(set(numbers.tolist())) < len(numbers):
            raise ValueError(f"ids of shape {tuple(numbers.shape)}: give {len(points)} row numbers, each once")
        points, numbers = points.detach().cpu().contiguous(), numbers.cpu().long()
        whole = hashlib.sha256(f"{points.dtype} {tuple(points.shape)}\n".encode())
        whole.update(points.numpy().tobytes())
        whole.update(numbers.numpy().tobytes())
        return cls(name=name, digest=whole.hexdigest(), points=points, numbers=numbers)

    def parameters(self) -> dict[str, Any]:
        """Return what identifies it."""
        return {"steps": self.steps, "digest": self.digest}

    def check(self, problem: Problem) -> None:
        """Refuse rows without a point."""
        super().check(problem)
        missing = ~torch.isin(problem.ids.cpu(), self.numbers)
        if bool(missing.any()):
            row = int(problem.ids.cpu()[missing][0])
            raise ValueError(f"{self.name} has no point for row {row}; give ids=, the numbers of all rows")
        if self.points.shape[1:] != problem.x.shape[1:]:
            shapes = f"{tuple(self.points.shape[1:])}, and inputs {tuple(problem.x.shape[1:])}"
            raise ValueError(f"{self.name} has points of shape {shapes}")

    def init(self, oracle: Oracle) -> State:
        """Claim every point that is allowed; the claims are verified like those of a search."""
        domain, incumbents = oracle.domain, oracle.incumbents
        order = self.numbers.argsort()
        places = order[torch.searchsorted(self.numbers[order], oracle.problem.ids.cpu())]
        found = domain.from_user(self.points[places].to(domain.x))
        count = domain.l0(found)
        good = domain.inside(found) & (count > 0)
        incumbents.push(good, found, count, oracle.worth(found), torch.zeros_like(count))
        return State(found, torch.zeros_like(incumbents.alive))

    def step(self, i: Tensor, state: State, oracle: Oracle) -> State:
        """Search nothing."""
        del i, oracle
        return State(state.own, torch.ones_like(state.done))


@contextmanager
def _seeded(problem: Problem) -> Iterator[None]:
    """Let random numbers depend on the seed and the row alone; afterwards put the caller's back."""
    seed = int(noise.bits(problem.seed, problem.ids[:1], 0, (1,))) % 2**32
    states = random.getstate(), np.random.get_state()
    devices = [problem.x.device] if problem.x.is_cuda else []
    with torch.random.fork_rng(devices):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


def foreign(
    attack: Any,
    *,
    name: str | None = None,
    rows: int = 1,
    max_queries: int | None = None,
    ids: Tensor | Sequence[int] | None = None,
    **options: Any,
) -> Attack:
    """Return an attack of another library, a function, or points found elsewhere, as an attack of ours.

    attack       "library:name" (foolbox, torchattacks, art, adv-lib), an attack object or class of theirs, a function
                 (model, inputs, labels) -> inputs, or a tensor of points
    name         what reports call it
    rows         inputs that it gets at once; with more than 1 its results may depend on the batch
    max_queries  the most queries of a sample, forwards, backwards and checks; then it is stopped
    ids          of points: the numbers of their rows, if they are not 0, 1, 2, ...
    options      its options; an attack object has its own already
    """
    if isinstance(attack, Tensor):
        if options:
            raise TypeError(f"points take no options, got {', '.join(options)}")
        return Points.of(attack, ids, name or "points")
    caller, given = recognise(attack, options)
    steps = caller.steps_of(given)
    texts = {key: as_setting(value) for key, value in (caller.settings() if caller.made else given).items()}
    return Foreign(
        name=name or caller.title,
        steps=steps,
        peer=caller.peer,
        release=caller.release,
        method=caller.method,
        options=tuple(sorted(texts.items())),
        rows=rows,
        max_queries=max_queries,
        caller=None if isinstance(attack, str) else caller,
        objects=None if texts == given else given,
    )


def attack_of(given: Any) -> Attack:
    """Return an attack of ours by its name or as it is, and anything else through `foreign`.

    >>> attack_of("sigma-zero").name, attack_of(lambda model, x, y: x).name
    ('sigma-zero', '<lambda>')
    """
    if isinstance(given, Attack):
        return given
    return get(given) if isinstance(given, str) and not is_foreign(given) else foreign(given)


def planned(
    attack: str, name: str, options: dict[str, Any], steps: int | None, wrong: Callable[[str], Exception]
) -> Attack:
    """Return the attack that a plan names; `steps` goes to an attack that takes such a number.

    wrong  makes the error that says where in the plan something is wrong
    """
    try:
        if writes := sorted(WRITERS & options.keys()):  # people send each other plans
            raise ValueError(f"{writes[0]} makes the attack write files, which a plan may not ask for; leave it out")
        made = foreign(attack, name=name, **options)
        return made if steps is None else replace(made, steps=steps)
    except (TypeError, ValueError, ImportError) as error:
        raise wrong(str(error)) from None
