"""One case: run it, watch what it does to its caller, and have its claims judged by a process of their own."""

import os
import pickle
import random
import subprocess
import sys
import warnings
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import sigmazero as sz
from tests.helpers.cases import Case, Question, alike, fresh, make
from tests.helpers.judge import NAMES, AnyCase, Claims
from tests.helpers.spaces import SpaceCase, make_space

ROOT = Path(__file__).parents[2]
NIGHTLY = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


class Judge:
    """A process that has never heard of sigmazero."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.helpers.judge"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, *asked: Any) -> list[str]:
        """Return what is not true; the arguments are those of `tests.helpers.judge.judge`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        pickle.dump(asked, self.process.stdin)
        self.process.stdin.flush()
        return list(pickle.load(self.process.stdout))

    def close(self) -> None:
        """Let it end, and see that it ended well."""
        self.process.communicate()
        assert self.process.returncode == 0


class Count:
    """Counts the rows that pass a model, forwards and backwards, from outside; it has a copy of each."""

    def __init__(self, model: Any) -> None:
        self.shown, self.behind = list[Tensor](), list[Tensor]()
        self.model = model
        self.hook = model.register_forward_hook(self._passed) if isinstance(model, nn.Module) else None
        if isinstance(model, nn.Module):  # before the model is called, as it may write to its input
            model.register_forward_pre_hook(self._enters)

    def _enters(self, _: Any, inputs: tuple[Tensor, ...]) -> None:
        self.shown.append(inputs[0].detach().clone())

    def _passed(self, _: Any, inputs: tuple[Tensor, ...], logits: Tensor) -> None:
        if logits.requires_grad:
            last = inputs[0].detach().flatten(1)[:, -1].clone()
            logits.register_hook(lambda _: self.behind.append(last))

    def __call__(self, x: Tensor) -> Tensor:
        self._enters(None, (x,))
        logits: Tensor = self.model(x)
        self._passed(None, (x,), logits)
        return logits

    @property
    def forwards(self) -> int:
        """How many rows passed."""
        return sum(map(len, self.shown))

    @property
    def backwards(self) -> int:
        """How many rows went back; `behind` has the last feature of each."""
        return sum(map(len, self.behind))

    @property
    def asked(self) -> Any:
        """What is handed to the attack: the module itself, where its modes are to be seen."""
        return self.model if self.hook is not None else self


def fit(case: Case) -> Case:
    """The same, with a budget where the attack needs one, and no larger than a test can bear."""
    most = 100 if case.attack == "sparsefool-paper" else 1000  # it asks for the gradient of every class in every step
    budget = 4 if case.budget is None and sz.ATTACKS[case.attack].kind == "budget" else case.budget
    small = case.classes * prod(case.shape) <= 50_000
    return replace(case, budget=budget, classes=min(case.classes, most) if small else 10)


def refusal(case: Case, asked: Question) -> str | None:
    """What the error of a case that is refused must name; None for one that is not."""
    if case.unit == "pixel" and len(case.shape) < 2:
        return "unit='pixel'"
    if case.targeted and "targeted" not in sz.ATTACKS[case.attack].goals:
        return "targeted"
    if not case.rows:
        return None
    free = asked.mask is None or bool(asked.mask.any())  # what may not change needs no ends
    if free and sz.ATTACKS[case.attack].finite_box and case.box in ("infinite", "half open"):
        return "bounds"
    with torch.no_grad():
        logits = fresh(case)(asked.x.clone())
    return None if logits.isfinite().all(1).any() else "NaN"


def allowed(case: Case, raised: Exception, error: str | None) -> bool:
    """Whether an attack may refuse a case so."""
    if case.model == "no-gradient" and "gradient" in str(raised):  # a row without a start asks for none
        return sz.ATTACKS[case.attack].needs == "gradients"
    return too_short(case, raised) or (error is not None and error in str(raised))


def too_short(case: AnyCase, raised: Exception) -> bool:
    """Whether single changes cannot all be tried in the steps of a case."""
    return case.attack.startswith("corner") and "steps=" in str(raised)


def question(case: Case, asked: Question) -> dict[str, Any]:
    """What `Attack.run` and `sz.check` are asked alike."""
    same = {name: getattr(case, name) for name in ("unit", "budget", "targeted")}
    return {"bounds": asked.bounds, "mask": asked.mask, **same}


def small(case: AnyCase) -> sz.Attack:
    """The attack of a case, with few steps of every kind."""
    more = {"bb": {"directions": 20, "blends": 20}, "sparsefool": {"inner_steps": 9}}
    return sz.get(case.attack, steps=case.steps, **more.get(case.attack.removesuffix("-paper"), {}))


def attack(case: Case, asked: Question, model: Any) -> sz.Result:
    """The result of a case."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="SZ0(03|04|15)")  # models that are random, flat, or write to inputs
        return small(case).run(
            model, asked.x, asked.y, batch_size=case.batch_size, seed=case.seed, **question(case, asked)
        )


def surroundings(asked: Question) -> dict[str, Any]:
    """All that a run must leave as it was, as bytes and plain values."""
    given = {"x": asked.base, "y": asked.y, "mask": asked.mask, "lower": asked.bounds[0], "upper": asked.bounds[1]}
    seen: dict[str, Any] = {
        name: (value.numpy().tobytes(), value._version) for name, value in given.items() if isinstance(value, Tensor)
    }
    model = asked.model
    if isinstance(model, nn.Module):
        seen["modes"] = [module.training for module in model.modules()]
        seen["state"] = {n: v.numpy().tobytes() for n, v in model.state_dict().items() if n != "seen"}
        seen["needs"] = [parameter.requires_grad for parameter in model.parameters()]
        seen["grads"] = [None if p.grad is None else p.grad.numpy().tobytes() for p in model.parameters()]
    seen["torch"] = torch.random.get_rng_state().numpy().tobytes()
    seen["numpy"], seen["python"] = pickle.dumps(np.random.get_state()), random.getstate()
    flags = (torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads())
    seen["flags"] = (*flags, torch.are_deterministic_algorithms_enabled(), torch.is_autocast_enabled("cpu"))
    return seen


def claims_of(result: sz.Result) -> Claims:
    """What a result says, as arrays."""
    return {name: getattr(result, name).detach().contiguous().numpy().copy() for name in NAMES}


def differences(one: Claims, other: Claims) -> list[str]:
    """The names of what differs between two results, NaN being like itself."""
    return [name for name in one if not np.array_equal(one[name], other[name], equal_nan=one[name].dtype.kind == "f")]


def told_by(result: sz.Result) -> dict[str, float]:
    """The figures of a result by the judge's names."""
    s, ks = result.summary(), {0, 1, 3, torch.inf} | ({result.budget} if result.budget is not None else set())
    names = ("samples", "already_wrong", "mean_l0_found", "forwards", "backwards", "queries")
    return {
        **{name: s[name] for name in names},
        **{f"asr@{k:g}": result.asr(k) for k in ks},
        "median_l0": result.median_l0,
        "mean_l0": result.mean_l0,
    }


def limit_of(case: AnyCase) -> str | None:
    """In what an attack for a budget may never exceed it; the paper's PGD counts pixels, whatever the unit.

    There are points beyond it where rules of a space ask for more changes, and where no change at all is allowed.
    """
    ruled = isinstance(case, SpaceCase) and case.rules
    if sz.ATTACKS[case.attack].kind != "budget" or ruled or case.budget == 0:
        return None
    pixels = case.unit == "pixel" or (case.attack == "pgd-l0-paper" and isinstance(case, Case))
    return "l0_pixel" if pixels else "l0"


def judged(case: AnyCase, result: sz.Result, judge: Judge, shown: Any = None) -> list[str]:
    """What is not true of a result, and of the points that the method returns by its own rule."""
    wrong = judge(case, claims_of(result), limit_of(case), told_by(result) if len(result) else None, shown)
    if result.own is None:
        return wrong
    return wrong + [f"own {one}" for one in judge(case, claims_of(result.own), None, told_by(result.own))]


def checked(result: sz.Result, model: Any, x: Tensor, y: Tensor, **asked: Any) -> list[str]:
    """Where `sz.check` says something else of the points than the result; a failure may have any reason."""
    again = sz.check(model, x, y, result.x_adv.clone(), **asked)
    wrong = [
        f"check: {name}"
        for name in ("x_adv", "success", "l0", "l0_pixel", "cost", "prediction")
        if not torch.equal(getattr(again, name), getattr(result, name))
    ]
    held = result.l0.isfinite()
    if not torch.equal(again.outcome[held], result.outcome[held]):
        wrong.append(f"check: outcome {again.outcome[held]} of {result.outcome[held]}")
    return wrong


def trial(case: Case, judge: Judge, twice: bool = True) -> list[str]:
    """Everything that is wrong with an attack on a case; asked `twice`, it must find the same in another batch."""
    asked = make(case)
    error = refusal(case, asked)
    count = Count(asked.model)
    before = surroundings(asked)
    try:
        result = attack(case, asked, count.asked)
    except (ValueError, TypeError, RuntimeError) as raised:
        wrong = [] if allowed(case, raised, error) else [f"{type(raised).__name__}: {raised}"]
        return wrong + _touched(before, asked)
    if error is not None:
        return [f"it was not refused: {error}"]
    claims, wrong = claims_of(result), _touched(before, asked)
    for name, seen in (("forwards", count.forwards), ("backwards", count.backwards)):
        if claims[name].sum() != seen:
            wrong.append(f"{name}: {claims[name].sum()} in all, the model saw {seen}")
    known = case.rows == 1 or (case.rows > 1 and case.mask == "walls")  # whose points the model was shown
    wrong += judged(case, result, judge, torch.cat(count.shown).numpy() if known else None)
    again = make(case)
    wrong += checked(result, fresh(case), again.x, again.y, **question(case, again)) if case.rows else []
    plain = alike(case) or replace(case, batch_size=1)
    other = make(plain)
    if twice and (different := differences(claims, claims_of(attack(plain, other, other.model)))):
        wrong.append(f"{', '.join(different)}: not as for {plain}")
    return wrong


def space_trial(case: SpaceCase, judge: Judge) -> list[str]:
    """Everything that is wrong with an attack in a random space."""
    plain, x, y, net = make_space(case)
    space, count = plain.space(), Count(net)
    how: Any = {"budget": case.budget, "targeted": case.targeted}
    try:
        result = small(case).run(net, x, y, space=space, hardware=sz.Hardware(prepare="none"), **how)
    except ValueError as raised:
        if too_short(case, raised):
            return []
        raise
    shown = torch.cat(count.shown)
    wrong = [
        f"{name}: {getattr(result, name).tolist()}, the model saw {seen}"
        for name, rows in (("forwards", shown[:, -1]), ("backwards", torch.cat([shown[:0, -1], *count.behind])))
        if (seen := torch.bincount(rows.long(), minlength=len(x)).tolist()) != getattr(result, name).tolist()
    ]
    wrong += judged(case, result, judge, shown.numpy() if case.finite else None)
    return wrong + checked(result, net, x, y, space=space, **how)


def _touched(before: dict[str, Any], asked: Question) -> list[str]:
    after = surroundings(asked)
    return [f"{name} was changed" for name in before if before[name] != after[name]]
