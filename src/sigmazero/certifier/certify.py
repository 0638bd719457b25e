"""`sz.certify`: how many changes a network is proved to withstand, and where an attack meets the proof."""

import hashlib
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.certifier.bounds import Bounder
from sigmazero.certifier.certificates import Certificates
from sigmazero.certifier.graph import Layered, trace
from sigmazero.certifier.inquiry import Inquiry
from sigmazero.certifier.search import Search, Spending
from sigmazero.certifier.suite import check_kind, fitted
from sigmazero.certifier.tactics import Tactics
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.hardware import Hardware
from sigmazero.core.inputs import Bounds, make_problem
from sigmazero.core.problem import Problem, integer
from sigmazero.models.wrapping import understood
from sigmazero.run.progress import Advance, bar

QUERIES = 300  # of the attack that goes before, by default
BLOCK = {"cpu": 10, "cuda": 256}  # inputs that are searched together, and stored together
PLAIN: dict[str, Any] = {"hardware": Hardware(prepare="fold")}  # an attack this short does not pay for a compiler
ROOM = (2**21, 2**22)  # numbers of the forms, and of the tasks, of one batch on a CPU
SHARES = (128, 32)  # bytes of a GPU's free memory for each of those numbers: several are needed at once


def certify(
    model: object,
    x: Tensor,
    y: Tensor,
    *,
    up_to: int = 1,
    unit: Unit = "feature",
    bounds: Bounds = (0.0, 1.0),
    mask: Tensor | None = None,
    time_limit: float | None = None,
    total_limit: float | None = None,
    attack: Attack | str | None = "sigma-swap",
    block_size: int | None = None,
    resume: str | Path | None = None,
    progress: bool = False,
) -> Certificates:
    """Prove for each input how many changes are needed at least to fool a network, up to so many; experimental.

    model       a torch network of the layers that docs/truth.md lists, in eval mode
    y           true classes; an input that the model gets wrong needs no change
    up_to       the most changes to prove anything about
    unit        "feature" counts every scalar, "pixel" a position once for all its channels
    bounds      the box: scalars, or tensors that broadcast to one sample
    mask        true where a feature may change
    time_limit  seconds of search for one input, its share of what is computed for several at once; None for no limit
    total_limit seconds for all inputs together; those that are not reached are waiting
    attack      goes first, so that nothing is proved where an example is known: an attack, its name, or None
    block_size  inputs that are searched together
    resume      a file to keep the rows that are done in, and to go on from where it is there; what was open is tried
                again where there is more time now
    progress    show a bar, on a terminal

    >>> import sigmazero as sz
    >>> model = torch.nn.Linear(3, 2).requires_grad_(False)
    >>> _ = model.weight.copy_(torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])), model.bias.zero_()
    >>> found = sz.certify(model, torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([0]), up_to=2, bounds=(-0.4, 1))
    >>> found.lower.tolist(), found.upper.tolist(), found.status
    ([2], [2.0], ['exact'])
    """
    _check(up_to, time_limit, total_limit, block_size)
    end = math.inf if total_limit is None else time.perf_counter() + total_limit
    problem = make_problem(x, y, bounds=bounds, unit=unit, mask=mask)
    network = _network(model, x)
    _check_box(problem, up_to)
    layers = trace(network, problem.x)
    _check_classes(problem, layers.layers[-1].shape[2])
    method = fitted(attack, QUERIES) if isinstance(attack, str) else attack
    if method is not None:
        check_kind(method)
    certifier = _Certifier(network, layers, problem, up_to, time_limit, end, method, block_size)
    found = certifier.begin(None if resume is None else Path(resume))
    left = int((~found.done).sum())
    with bar("certify", left, progress, "inputs") as advance:
        for known in certifier.run(found, advance):
            if resume is not None:
                known.save(resume)
    return found


def _check(up_to: int, time_limit: float | None, total_limit: float | None, block_size: int | None) -> None:
    if not integer(up_to) or up_to < 1:
        raise ValueError(f"up_to={up_to!r} must be a whole number of changes, 1 or more")
    for name, limit in (("time_limit", time_limit), ("total_limit", total_limit)):
        if limit is not None and not (isinstance(limit, int | float) and limit > 0):
            raise ValueError(f"{name}={limit!r} must be a number of seconds, more than 0; leave it out for no limit")
    if block_size is not None and (not integer(block_size) or block_size < 1):
        raise ValueError(f"block_size={block_size!r} must be a whole number of inputs, 1 or more")


def _network(model: object, x: object) -> nn.Module:
    found = understood(model, x.device if isinstance(x, Tensor) else "cpu")
    if not isinstance(found, nn.Module):
        raise TypeError(f"the model is a {type(found).__name__}; only a torch network has layers to prove about")
    return found


def _check_box(problem: Problem, up_to: int) -> None:
    if not len(problem):
        raise ValueError("there are no inputs to certify: x has no rows")
    if up_to > problem.sites:
        raise ValueError(f"up_to={up_to} is more than the {problem.sites} {problem.unit}s of an input")
    if not problem.domain.bounded:
        raise ValueError("the box has no end for some feature; give finite bounds")


def _check_classes(problem: Problem, classes: int) -> None:
    if classes < 2:
        raise ValueError("the model has one class; with nothing to be taken for, nothing is to be proved")
    if int(problem.y.max()) >= classes:
        row = int(problem.y.argmax())
        raise ValueError(f"label {int(problem.y[row])} in row {row} is none of the model's {classes} classes")


@dataclass(frozen=True, eq=False)
class _Certifier:
    """One question about all inputs."""

    model: nn.Module
    network: Layered
    problem: Problem
    up_to: int
    time_limit: float | None
    end: float  # on the clock of time.perf_counter
    attack: Attack | None
    block_size: int | None

    @property
    def key(self) -> str:
        """What tells this question from others: the network, the inputs and what may change."""
        digest = hashlib.sha256(f"{self.up_to} {self.problem.unit}".encode())
        held = [self.problem.x, self.problem.y, self.problem.domain.user_lower, self.problem.domain.user_upper]
        for layer in self.network.layers:
            parts = {f.name: getattr(layer, f.name) for f in fields(layer)}
            held += [part for part in parts.values() if isinstance(part, Tensor)]
            said = {name: part for name, part in parts.items() if not isinstance(part, Tensor)}
            digest.update(f"{type(layer).__name__} {said}".encode())
        for tensor in held:
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def begin(self, resume: Path | None) -> Certificates:
        """Nothing yet, or what a file has."""
        x, n = self.problem.x, len(self.problem)
        if resume is not None and resume.exists():
            found = Certificates.load(resume, x.device)
            if found.key != self.key:
                raise ValueError(f"{resume} has certificates of another question; name another file, or remove it")
            # What stayed open in less time than there is now is tried again.
            limit = math.inf if self.time_limit is None else self.time_limit
            found.done[(found.lower <= self.up_to) & (found.lower < found.upper) & (found.seconds < limit)] = False
            return found
        count = torch.zeros(n, dtype=torch.float64, device=x.device)
        flag = torch.zeros(n, dtype=torch.bool, device=x.device)
        held = (torch.zeros(n, dtype=torch.int64, device=x.device), torch.full_like(count, math.inf), x.clone())
        return Certificates(*held, flag, flag.clone(), count, count.clone(), self.up_to, self.problem.unit, self.key)

    def run(self, found: Certificates, advance: Advance) -> Iterator[Certificates]:
        """What is known after each block of inputs."""
        kind = self.problem.x.device.type
        rows = (~found.done).nonzero()[:, 0]
        tactics: dict[int, Tactics] = {}
        yield found
        step = self.block_size or BLOCK.get(kind, 256)
        for begin in range(0, len(rows), step):
            block = rows[begin : begin + step]
            if time.perf_counter() > self.end:
                return
            self._block(found, block, tactics)
            advance(len(block))
            yield found

    def _block(self, found: Certificates, block: Tensor, tactics: dict[int, Tactics]) -> None:
        """Decide some inputs, and write down what is known of them."""
        problem = self.problem.take(block)
        with torch.no_grad():
            correct = self.model(problem.x).argmax(1) == problem.y
        upper = torch.where(correct, found.upper[block], 0.0)  # what is tried again keeps what was found before
        best, spent = found.x_adv[block], torch.zeros_like(upper)
        good = correct.nonzero()[:, 0]
        if self.attack is not None and len(good):
            begin = time.perf_counter()
            self._attacked(problem.take(good), good, upper, best)
            spent[good] = (time.perf_counter() - begin) / len(good)
        lower = torch.where(correct, found.lower[block].clamp_min(1), 0)
        tally = self._searched(problem, lower, upper, best, spent, tactics)
        found.lower[block], found.upper[block], found.x_adv[block] = lower, upper, best
        found.correct[block], found.done[block] = correct, True
        found.boxes[block], found.seconds[block] = tally.boxes, tally.seconds

    def _attacked(self, problem: Problem, good: Tensor, upper: Tensor, best: Tensor) -> None:
        """Upper bounds by the attack."""
        assert self.attack is not None
        domain = problem.domain
        least, most = domain.user_lower, domain.user_upper
        mask = least < most if domain.per_sample else None
        ends = (least.amin(0), most.amax(0))
        how: dict[str, Any] = {"bounds": ends, "mask": mask, "unit": problem.unit, "ids": problem.ids, **PLAIN}
        result = self.attack.run(self.model, problem.x, problem.y, **how)
        fooled = result.success & (result.changes < upper[good])
        upper[good[fooled]] = result.changes[fooled].double()
        best[good[fooled]] = result.x_adv[fooled]

    def _searched(
        self, problem: Problem, lower: Tensor, upper: Tensor, best: Tensor, spent: Tensor, tactics: dict[int, Tactics]
    ) -> Spending:
        """Lower bounds by the search, one change more at a time."""
        forms, numbers = _room(problem.x.device)
        bounder = Bounder(self.network, forms)
        ends = (problem.domain.user_lower.expand_as(problem.x), problem.domain.user_upper.expand_as(problem.x))
        inquiry = Inquiry(self.model, bounder, problem.x, problem.y, *ends, pixels=problem.domain.joined)
        tally = Spending.new(inquiry)
        tally.seconds += spent
        limit = math.inf if self.time_limit is None else self.time_limit
        how: dict[str, Any] = {"batch": max(16, min(4096, numbers // bounder.size)), "limit": limit, "end": self.end}
        for t in range(1, self.up_to + 1):
            rows = ((lower == t) & (upper > t) & ~tally.open).nonzero()[:, 0]
            if len(rows):
                proved = Search(inquiry, tally, t, **how, tactics=tactics.setdefault(t, Tactics(t))).run(rows)
                lower[proved] = t + 1
                met = rows[tally.found[rows]]
                best[met] = tally.witness[met]
                upper[met] = problem.domain.take(met).count(best[met]).sites.double()
        _believe(lower, upper, problem.ids)
        return tally


def _room(device: torch.device) -> tuple[int, int]:
    """How many numbers the forms, and the tasks, of one batch may have."""
    if device.type != "cuda":
        return ROOM
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    return free // SHARES[0], free // SHARES[1]


def _believe(lower: Tensor, upper: Tensor, ids: Tensor) -> None:
    """An example is believed, in place: by rounding the model itself may be fooled where the exact network is not."""
    below = upper < lower
    if bool(below.any()):
        told = ", ".join(str(int(number)) for number in ids[below][:5])
        warnings.warn(
            f"{int(below.sum())} inputs (ids {told}) fool the model with fewer changes than are proved for its exact "
            "numbers: its own rounding decides there, and the examples count",
            stacklevel=2,
        )
        lower[below] = upper[below].long()
