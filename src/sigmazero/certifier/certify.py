"""`sz.certify`: prove how many changes a network withstands, and find where an attack meets the proof."""

import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sigmazero.attacks import get
from sigmazero.certifier.bounds import NetworkBounds
from sigmazero.certifier.graph import check_output, trace
from sigmazero.certifier.search import BranchAndBound, Progress, Strategy
from sigmazero.certifier.subproblems import Question
from sigmazero.core.attack import Attack
from sigmazero.core.domain import Unit
from sigmazero.core.findings import render
from sigmazero.core.hardware import Hardware
from sigmazero.core.inputs import Bounds, make_problem
from sigmazero.core.messages import warn_caller
from sigmazero.core.problem import Problem, integer
from sigmazero.models.wrapping import understood
from sigmazero.run import Session
from sigmazero.run.progress import Advance, bar

Arithmetic = Literal["float32", "real"]
STATUSES = ("exact", "proved", "open", "waiting")
QUERIES = 300  # of the attack that goes first, by default
FIRST = 0.5  # of an input's progress that this attack is
MANY_STEPS = 100  # an attack with fewer has steps of many queries, and keeps its number of steps
BLOCK = {"cpu": 10, "cuda": 256}  # inputs that are searched together
NUMBERS = (2**21, 2**22)  # numbers in the forms, and in the subproblems, of one batch on a CPU
SHARES = (128, 32)  # bytes of a GPU's free memory per such number: several are needed at once
CHECKS = 8  # points of the box at which the traced layers are compared with the model, before and after a search
FOLDED = Hardware(prepare="fold")  # the attack is too short for compiling


@dataclass(frozen=True, repr=False)
class Certificates:
    """What `certify` proved, one row per input; experimental.

    lower       at least this many changes are needed to fool the network
    upper       this many changes are enough; infinite where no example was found
    x_adv       an input with `upper` changes that fools the model, or the input itself
    correct     whether the model is right about the input; if not, no change is needed
    done        whether the input was tried
    boxes       number of bounds computed
    seconds     the input's share of the time
    over_reals  whether `lower` holds over the real numbers only, not for the model's own rounding
    """

    lower: Tensor
    upper: Tensor
    x_adv: Tensor
    correct: Tensor
    done: Tensor
    boxes: Tensor
    seconds: Tensor
    over_reals: Tensor
    up_to: int
    unit: Unit = "feature"

    @staticmethod
    def new(x: Tensor, up_to: int, unit: Unit, lower: Tensor | None = None) -> "Certificates":
        """Return certificates before the search, with lower bounds that are proved already."""
        count = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        flag = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        lower = torch.zeros_like(flag, dtype=torch.int64) if lower is None else lower.to(x.device)
        proved = lower > up_to
        upper = torch.full_like(count, math.inf)
        fields = (lower.clone(), upper, x.clone(), lower > 0, proved, count, count.clone(), flag)
        return Certificates(*fields, up_to, unit)

    def __len__(self) -> int:
        """Return the number of inputs."""
        return len(self.lower)

    @property
    def exact(self) -> Tensor:
        """Return for which inputs the fewest changes are known: proof and example agree."""
        return self.done & (self.lower == self.upper)

    @property
    def status(self) -> list[str]:
        """Return the status of each input.

        exact (the fewest changes are known), proved (more than `up_to` are needed), open (neither, in the given time),
        or waiting (not tried).
        """
        code = torch.where(self.exact, 0, torch.where(self.lower > self.up_to, 1, 2))
        return [STATUSES[k] for k in torch.where(self.done, code, 3).tolist()]

    def counts(self, t: int) -> tuple[int, int, int]:
        """Return how many inputs are proved against t changes, fooled by at most t, and neither.

        Inputs that the model gets wrong are left out.
        """
        mine = self.done & self.correct
        proved, fooled = mine & (self.lower > t), mine & (self.upper <= t)
        return int(proved.sum()), int(fooled.sum()), int((mine & ~proved & ~fooled).sum())

    def table(self) -> str:
        """Return the counts for every number of changes, and their cost, as text."""
        done, mine = int(self.done.sum()), self.done & self.correct
        lines = [f"{self.unit + 's':>8}  proved  fooled    open"]
        lines += [f"{t:>8}  " + "  ".join(f"{n:>6}" for n in self.counts(t)) for t in range(1, self.up_to + 1)]
        spent = self.seconds[mine].double().cpu()
        lines.append(
            f"{done} of {len(self)} inputs, {int((self.done & ~self.correct).sum())} misclassified, "
            f"fewest changes known for {int(self.exact.sum())}"
        )
        if reals := int((mine & self.over_reals & (self.lower > 1)).sum()):
            lines.append(f"{reals} of the proofs hold over the reals, not for the model's own rounding")
        if len(spent):
            boxes = float(self.boxes[mine].double().mean())
            lines.append(
                f"seconds an input: median {spent.median():.3g}, mean {spent.mean():.3g}, most {spent.max():.3g}; "
                f"{boxes:.0f} boxes"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        """Return one line with the main figures."""
        proved, fooled, left = self.counts(self.up_to)
        return (
            f"<Certificates of {len(self)} inputs: {proved} proved against {self.up_to} {self.unit} changes, "
            f"{fooled} fooled, {left} open; fewest changes known for {int(self.exact.sum())}>"
        )


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
    arithmetic: Arithmetic = "float32",
    progress: bool = False,
) -> Certificates:
    """For each input, prove a lower bound on the number of changes that fool the network, up to `up_to`; experimental.

    model       a torch network in eval mode, of the layers that docs/truth.md lists
    y           true classes; an input that the model gets wrong needs no change
    up_to       the largest number of changes to prove
    unit        "feature" counts every scalar, "pixel" a position once for all its channels
    bounds      the box: scalars, or tensors that broadcast to one sample
    mask        true where a feature may change
    time_limit  seconds of proving for one input, as its share of a batch; the attack is not counted; None for no limit
    total_limit seconds for all inputs together, attack included; inputs not reached keep the status "waiting"
    attack      looks for examples first, and nothing is tried that an example disproves: an attack, its name, or None
                for none; sz.get("sigma-swap", queries=50) is a short one
    arithmetic  "float32": a proof also holds for the model's own rounding on a CPU, in any order of summation. Where
                that cannot be shown it holds over the reals, and `over_reals` says so. "real": always over the reals
    progress    show a bar on a terminal

    >>> import sigmazero as sz
    >>> model = torch.nn.Linear(3, 2).requires_grad_(False)
    >>> _ = model.weight.copy_(torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])), model.bias.zero_()
    >>> found = sz.certify(model, torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([0]), up_to=2, bounds=(-0.4, 1))
    >>> found.lower.tolist(), found.upper.tolist(), found.status
    ([2], [2.0], ['exact'])
    """
    options = (up_to, unit, bounds, mask, time_limit, total_limit, attack, arithmetic)
    certifier = Certifier(model, x, y, *options)
    with bar("certify", len(x), progress, "inputs", certifier.words) as advance:
        for _ in certifier.run(advance):
            pass
    return certifier.found


def fitted(attack: str | Attack, queries: int) -> Attack:
    """Return a minimum-norm attack; one given by name gets about this many queries.

    They are its `queries`, or steps of 2 (with gradients) or 1.
    """
    name = attack if isinstance(attack, str) else ""
    method = get(name) if isinstance(attack, str) else attack
    if method.kind != "minimum-norm":
        raise ValueError(f"{method.name} works with a fixed budget and has no fewest changes; try {method.name}-min")
    if not name:
        return method
    if queries < 20:
        raise ValueError(f"queries={queries!r} must be a whole number, 20 or more")
    if "queries" in method.parameters():
        return get(name, queries=queries)
    if method.steps <= MANY_STEPS:
        return method
    return get(name, steps=queries // 2 if method.needs == "gradients" else queries)


@dataclass(eq=False)
class Certifier:
    """Certify inputs block by block; `found` holds the results so far. Options are those of `certify`.

    known     lower bounds that are proved already
    examples  adversarial inputs of an earlier search, or the input itself; the model is asked about them again
    """

    model: Any
    x: Tensor
    y: Tensor
    up_to: int = 1
    unit: Unit = "feature"
    bounds: Bounds = (0.0, 1.0)
    mask: Tensor | None = None
    time_limit: float | None = None
    total_limit: float | None = None
    attack: Attack | str | None = "sigma-swap"
    arithmetic: Arithmetic = "float32"
    known: InitVar[Tensor | None] = None
    examples: InitVar[Tensor | None] = None

    def __post_init__(self, known: Tensor | None, examples: Tensor | None) -> None:
        """Check the question and trace the model."""
        self._check_options()
        self.end = math.inf if self.total_limit is None else time.perf_counter() + self.total_limit
        self.problem = make_problem(self.x, self.y, bounds=self.bounds, unit=self.unit, mask=self.mask)
        self._check_box()
        x = self.problem.x
        self.model = understood(self.model, x.device)
        if not isinstance(self.model, nn.Module):
            raise TypeError(
                f"the model is a {type(self.model).__name__}; only a torch network has layers to prove about"
            )
        self.network = trace(self.model, x)
        classes = self.network.layers[-1].shape[2]
        if classes < 2:
            raise ValueError("the model has one output; certify needs at least two classes")
        check_labels(self.problem, classes)
        self.method = None if self.attack is None else fitted(self.attack, QUERIES)
        self.doing, self.decided = "checking the model", 0  # what `words` says
        self.found = Certificates.new(x, self.up_to, self.problem.unit, known)
        exact_float32 = x.device.type == "cpu" and torch.get_float32_matmul_precision() == "highest"
        self.rounding = self.arithmetic == "float32" and exact_float32
        self.strategies = [Strategy(t) for t in range(1, self.up_to + 1)]
        if examples is not None:
            self._recall(examples.to(x))

    def _check_options(self) -> None:
        if not integer(self.up_to) or self.up_to < 1:
            raise ValueError(f"up_to={self.up_to!r} must be a whole number of changes, 1 or more")
        for name in ("time_limit", "total_limit"):
            limit = getattr(self, name)
            if limit is not None and not (isinstance(limit, int | float) and limit > 0):
                raise ValueError(
                    f"{name}={limit!r} must be a number of seconds, more than 0; leave it out for no limit"
                )
        if self.arithmetic not in get_args(Arithmetic):
            known = ", ".join(map(repr, get_args(Arithmetic)))
            raise ValueError(f"arithmetic={self.arithmetic!r} is not one of {known}")

    def _check_box(self) -> None:
        problem = self.problem
        if not len(problem):
            raise ValueError("there are no inputs to certify: x has no rows")
        if self.up_to > problem.sites:
            raise ValueError(f"up_to={self.up_to} is more than the {problem.sites} {problem.unit}s of an input")
        if not problem.domain.bounded:
            raise ValueError("the box has no end for some feature; give finite bounds")

    def _recall(self, examples: Tensor) -> None:
        """Begin with the examples that lie in the box and still fool the model."""
        found = self.found
        for rows in torch.split((examples != self.problem.x).flatten(1).any(1).nonzero()[:, 0], self._block_size):
            problem, points = self.problem.take(rows), examples[rows]
            inside = (points >= problem.domain.user_lower) & (points <= problem.domain.user_upper)
            with torch.no_grad():
                good = inside.flatten(1).all(1) & (self.model(points).argmax(1) != problem.y)
            found.upper[rows[good]] = problem.domain.count(points).sites[good].double()
            found.x_adv[rows[good]] = points[good]
        _believe_examples(found.lower, found.upper, self.problem.ids)
        found.done.copy_(found.lower > found.up_to)

    def words(self) -> str:
        """Say what goes on, for a line of progress, without asking a device."""
        return f"{self.doing}, {self.decided} of {len(self.problem)} inputs decided"

    @property
    def _block_size(self) -> int:
        return BLOCK.get(self.problem.x.device.type, 256)

    def run(self, advance: Advance) -> Iterator[Tensor]:
        """Certify block by block; yield the rows of a block whenever something may be known about them."""
        self._compare()
        rows = (~self.found.done).nonzero()[:, 0]
        self.decided = len(self.problem) - len(rows)
        advance(self.decided)
        share = 1.0 if self.method is None else 1 - FIRST
        for block in torch.split(rows, self._block_size):
            if time.perf_counter() > self.end:
                return
            left = len(block)
            for known in self._block(block, advance):
                still = int((~(self.found.exact | (self.found.lower > self.up_to))[block]).sum())
                self.decided += left - still
                advance(share * (left - still))
                left = still
                yield known
            advance(share * left)

    @cached_property
    def _checks(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return some points of the box, the layers' output there, and how far the model may be from it."""
        x, lower, upper = self.problem.x, self.problem.domain.user_lower, self.problem.domain.user_upper
        generator = torch.Generator().manual_seed(len(x))
        place = torch.linspace(0, len(x) - 1, CHECKS, device="cpu").round().long().to(x.device)
        low, high = (end.expand_as(x)[place] for end in (lower, upper))
        share = torch.rand(low.shape, generator=generator, device="cpu").to(x)
        share[1::2] = share[1::2].round()  # corners
        few = torch.rand(low.shape, generator=generator, device="cpu").to(x) < self.found.up_to / x[0].numel()
        few[: CHECKS // 2] = True
        points = torch.where(few, low + share * (high - low), x[place])
        points = torch.minimum(torch.maximum(points, low), high)
        return points, *self.network.expected(points)

    def _compare(self) -> None:
        """Compare the traced layers with the model at points of the box, one by one and together."""
        points, expected, allowed = self._checks
        with torch.no_grad():
            for _ in range(2):
                for k in range(CHECKS):
                    check_output(self.model(points[k : k + 1]), expected[k : k + 1], allowed[k : k + 1])
            check_output(self.model(points), expected, allowed)

    def _block(self, block: Tensor, advance: Advance) -> Iterator[Tensor]:
        """Certify some inputs, one change more at a time; yield them before the search and whenever it reports.

        The attack, if there is one, moves the bar by its share of the inputs.
        """
        problem, found = self.problem.take(block), self.found
        with torch.no_grad():
            correct = self.model(problem.x).argmax(1) == problem.y
        right, wrong = block[correct], block[~correct]
        found.correct[block], found.lower[right] = correct, found.lower[right].clamp_min(1)
        found.lower[wrong], found.upper[wrong], found.x_adv[wrong] = 0, 0.0, problem.x[~correct]
        if self.method is not None:
            self.doing = "looking for examples first"
            advance(FIRST * len(wrong))
        if self.method is not None and len(right):
            begin = time.perf_counter()
            self._attack(self.method, right, lambda amount: advance(FIRST * amount))
            found.seconds[right] = (time.perf_counter() - begin) / len(right)
        found.over_reals[block] |= not self.rounding
        found.done[block] = True
        _believe_examples(found.lower, found.upper, self.problem.ids)
        yield block
        question, batch = self._question(problem)
        progress, spent = Progress(question), found.seconds[block]
        limit = math.inf if self.time_limit is None else self.time_limit
        for strategy in self.strategies:
            t = strategy.t
            rows = ((found.lower[block] == t) & (found.upper[block] > t) & ~progress.open).nonzero()[:, 0]
            if not len(rows):
                continue
            self.doing = f"proving that {t} {'change is' if t == 1 else 'changes are'} not enough"
            advance(0)
            search = BranchAndBound(question, progress, strategy, batch=batch, limit=limit, end=self.end)
            for proved in search.run(rows):
                self._compare()
                found.lower[block[proved]] = t + 1
                found.over_reals[block[proved]] = question.over_reals[proved]
                met = rows[progress.found[rows]]
                witness = progress.witness[met]
                found.x_adv[block[met]] = witness
                found.upper[block[met]] = problem.domain.take(met).count(witness).sites.double()
                found.boxes[block], found.seconds[block] = progress.boxes, progress.seconds + spent
                _believe_examples(found.lower, found.upper, self.problem.ids)
                yield block

    def _attack(self, attack: Attack, rows: Tensor, advance: Advance) -> None:
        """Find upper bounds by the attack."""
        problem, found = self.problem.take(rows), self.found
        least, most = problem.domain.user_lower, problem.domain.user_upper
        how: dict[str, Any] = {"bounds": (least.amin(0), most.amax(0)), "unit": problem.unit, "ids": problem.ids}
        how["mask"] = least < most if problem.domain.per_sample else None
        with Session(attack, self.model, FOLDED) as session:
            for places, result in session.batches(make_problem(problem.x, problem.y, **how), advance):
                if not len(places):  # all rows of the batch are searched again later
                    continue
                changes = torch.where(result.success, result.changes.double(), math.inf)
                better, mine = changes < found.upper[rows[places]], rows[places]
                found.upper[mine[better]], found.x_adv[mine[better]] = changes[better], result.x_adv[better]
                with torch.no_grad():
                    self.network.compare(self.model(result.x_adv), result.x_adv)
            for each in session.findings():
                warn_caller(render([each]))

    def _question(self, problem: Problem) -> tuple[Question, int]:
        """Return what to ask the search about, and how many subproblems a batch has."""
        forms, numbers = _batch_numbers(problem.x.device)
        bounds = NetworkBounds(self.network, forms)
        ends = (problem.domain.user_lower.expand_as(problem.x), problem.domain.user_upper.expand_as(problem.x))
        question = Question(self.model, bounds, problem.x, problem.y, *ends, problem.domain.joined, self.rounding)
        return question, max(16, min(4096, numbers // bounds.task_size))


def check_labels(problem: Problem, classes: int) -> None:
    """Refuse labels that the model does not have."""
    if int(problem.y.max()) >= classes:
        row = int(problem.y.argmax())
        raise ValueError(f"label {int(problem.y[row])} in row {row} is none of the model's {classes} classes")


def _batch_numbers(device: torch.device) -> tuple[int, int]:
    """Return how many numbers the forms, and the subproblems, of a batch may have."""
    if device.type != "cuda":
        return NUMBERS
    free = torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device)
    return free // SHARES[0], free // SHARES[1]


def _believe_examples(lower: Tensor, upper: Tensor, ids: Tensor) -> None:
    """Lower the bounds that an example contradicts: the model's rounding may fool it where the exact network holds."""
    below = upper < lower
    if bool(below.any()):
        rows = ", ".join(str(int(number)) for number in ids[below][:5])
        warnings.warn(
            f"{int(below.sum())} inputs (ids {rows}) fool the model with fewer changes than are proved for the exact "
            "network: the model's own rounding decides there, and the examples count",
            stacklevel=2,
        )
        lower[below] = upper[below].long()
