"""The model that a search asks: a faithful copy of the user's, made ready for speed, and the steps captured on it.

A search may run on any faithful copy, because whatever it claims is verified on the model itself. A copy whose answers
are not the model's own is dropped.
"""

import copy
import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.attack import Attack, Fork
from sigmazero.core.hardware import Hardware, Precision, Prepare
from sigmazero.core.messages import one_line
from sigmazero.core.model import Ability, ability_of, ask, logits_in
from sigmazero.core.oracle import Model, Oracle
from sigmazero.core.problem import Problem
from sigmazero.run.captures import Captures, GraphPool
from sigmazero.run.fold import NORMS, fold
from sigmazero.run.precision import Numbers, search_numbers
from sigmazero.run.search import Phase

log = logging.getLogger(__name__)

WORTH_COMPILING = 4_000_000  # rows times steps: docs/decisions.md derives it
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WORTH_CAPTURING = 4  # replays' worth of steps; fewer cost less than a capture
# The share of the largest logit by which a copy's logits may differ from the model's own, in the same numbers.
BOUND, BF16_BOUND = 0.01, 0.1
_COMPARED = 32  # clean rows on which answers are compared
_DEEP = 5  # convolutions; with fewer a processor gains less than the change of layout costs


def pays_to_compile(device: str, layers: Iterable[type], precision: Precision, work: int) -> bool:
    """Return whether a search of `work` rows times steps is long enough to compile its model first.

    >>> pays_to_compile("cuda", [nn.Conv2d, nn.ReLU], "tf32", 10_000 * 1000)
    True
    >>> pays_to_compile("cuda", [nn.Conv2d, nn.ReLU], "tf32", 512 * 1000)
    False
    """
    convolutional = any(issubclass(layer, _CONVOLUTIONS) for layer in layers)
    return device == "cuda" and convolutional and precision in ("tf32", "bf16") and work >= WORTH_COMPILING


class Prepared:
    """Holds what is made once for a model and a number format; sessions of several attacks may share it.

    Steps are captured per attack and question: two problems that differ in nothing but their rows share them.
    """

    def __init__(self, model: Model, hardware: Hardware) -> None:
        if ability_of(model) != "gradients":  # asked as it is, never captured
            hardware = replace(hardware, precision=None, prepare="none", capture=False)
        self.model, self.hardware = model, hardware
        self.numbers: Numbers | None = None  # of the caller; all that is made here was made for them
        self.search = Numbers("cpu")  # of a search: the caller's, unless the hardware options name others
        self._copy: Model | None = None
        self._compiled: Model | None = None
        self._pool: GraphPool | None = None
        self._phases: dict[Hashable, list[Phase | Fork]] = {}

    def compute_in(self, numbers: Numbers) -> None:
        """Take these for the caller's float32 settings from now on; drop what was made for others."""
        if numbers != self.numbers:
            self.close()
            self.numbers, self.search = numbers, search_numbers(self.hardware.precision, numbers)

    @property
    def computes_otherwise(self) -> bool:
        """Return whether a search computes neither in strict fp32 nor as the caller does."""
        return self.hardware.precision == "bf16" or not (self.search.strictly or self.search == self.numbers)

    @property
    def searches_strictly(self) -> bool:
        """Return whether searches ask the model itself, in strict fp32; ask after the first one."""
        own = self._copy is None or self._copy is self.model
        return own and self.hardware.precision != "bf16" and self.search.strictly

    def copy(self, problem: Problem) -> Model:
        """Return the model as the search asks it; it is made at the first call, in a `turn`."""
        if self._copy is None:
            hardware, x = self.hardware, problem.x
            with self.search.flags():
                bf16 = hardware.precision == "bf16"
                self._copy = search_copy(self.model, x, self.search, bf16=bf16, prepare=hardware.prepare)
            if hardware.prepare == "compile" and (hardware.capture is False or not x.is_cuda):
                log.info("nothing is compiled: that is for steps captured on a CUDA device")
        return self._copy

    def oracle(self, problem: Problem, size: int, shows: Ability = "gradients") -> Oracle:
        """Make the oracle of one batch of a problem cut into batches of `size`; `shows` limits what the attack sees."""
        # Forward-only queries need less memory than the batch with its backward pass: twice the rows at once.
        return Oracle(self.copy(problem), problem, chunk=2 * size, shows=shows)

    def phases(self, attack: Attack, problem: Problem, size: int, rows: int) -> Sequence[Phase | Fork]:
        """Return the phases of an attack on a problem cut into batches of `size`; its question has `rows` rows."""
        compiled = self.compiles(problem, rows * attack.iterations)
        key = (_same_attack(attack), _question(problem), size, compiled)
        if key not in self._phases:
            self._phases[key] = [self._phase(part, problem, size, compiled) for part in attack.phases(problem)]
        return self._phases[key]

    def compiles(self, problem: Problem, work: int) -> bool:
        """Return whether a search of `work` rows times steps asks a compiled copy."""
        if self.hardware.prepare != "auto":
            return self.hardware.prepare == "compile"
        coarse: Precision = "tf32" if self.search.conv == "tf32" else "fp32"
        if self.hardware.precision == "bf16" or self.search.autocast is not None:
            coarse = "bf16"
        layers = map(type, self.model.modules()) if isinstance(self.model, nn.Module) else ()
        return pays_to_compile(problem.x.device.type, layers, coarse, work)

    def _phase(self, attack: Attack | Fork, problem: Problem, size: int, compiled: bool) -> Phase | Fork:
        if isinstance(attack, Fork):
            ways = ([self._phase(part, problem, size, compiled) for part in way] for way in attack.ways)
            return Fork(attack.chosen, *ways)
        if self.hardware.capture and not attack.capturable:
            raise ValueError(
                f"{attack.name} looks at values between its steps and cannot be captured; leave capture out"
            )
        long = attack.iterations >= _WORTH_CAPTURING * attack.unroll
        if not (problem.x.is_cuda and self.hardware.capture is not False and attack.capturable and long):
            return Phase(attack)
        if self._pool is None:
            self._pool = GraphPool(insist=bool(self.hardware.capture))
        if compiled and self._compiled is None:
            self._compiled = torch.compile(self.copy(problem), dynamic=False, fullgraph=True)
        return Captures(attack, size, self._pool, self._compiled if compiled else None)

    def drop_captures(self) -> None:
        """Let go of every captured step and of the memory they share; others are made when they are needed."""
        self._phases, self._pool = {}, None

    def close(self) -> None:
        """Let go of everything but the model itself."""
        self.drop_captures()
        self._copy = self._compiled = None


def _same_attack(attack: Attack) -> Hashable:
    """Return a key that attacks with equal names and parameters share."""
    try:
        hash(attack)
    except TypeError:  # a parameter such as a list: the attack is only itself
        return id(attack)
    return attack


def _question(problem: Problem) -> Hashable:
    """Return all that a captured step has built into it besides the rows."""
    x, goal = problem.domain.x, problem.goal
    least = "per sample" if isinstance(goal.least, Tensor) else goal.least
    started = problem.start is not None
    settings = (goal.name, least, problem.budget, problem.seed, problem.clean, problem.checks, started)
    return (x.dtype, x.device, settings, problem.domain.key())


class Copy(nn.Module):
    """A model in another number format and layout, taking and giving single precision."""

    def __init__(self, model: nn.Module, dtype: torch.dtype, channels_last: bool) -> None:
        super().__init__()
        self.model, self.dtype, self.channels_last = model.requires_grad_(False).to(dtype), dtype, channels_last
        for parameter in self.model.parameters() if channels_last else ():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Ask in the copy's own format."""
        x = x.to(self.dtype)
        logits = self.model(x.contiguous(memory_format=torch.channels_last) if self.channels_last else x)
        return logits_in(logits).float()


class Cast(nn.Module):
    """A model under autocast, which is not for the attack's own arithmetic around it."""

    def __init__(self, model: Model, numbers: Numbers) -> None:
        super().__init__()
        self.model, self.numbers = model, numbers

    def forward(self, x: Tensor) -> Tensor:
        """Ask."""
        with self.numbers.casting():
            return logits_in(self.model(x)).float()


def search_copy(model: Model, x: Tensor, numbers: Numbers, *, bf16: bool, prepare: Prepare) -> Model:
    """Return the model as a search in these numbers, or in bf16, asks it; itself where no copy helps or can be made.

    To be called in a `turn`, under the flags of these numbers; `x` holds some clean inputs.
    """
    inner, folds = unwrapped(model), prepare != "none"
    own = model if bf16 or numbers.autocast is None else Cast(model, numbers)
    lowered: Model = Cast(model, replace(numbers, autocast=torch.bfloat16))
    if not isinstance(inner, nn.Module):
        return lowered if bf16 else own
    layouts = (True, False) if folds and _pays(inner, x, numbers) else (False,)
    makers: list[Callable[[], Model | None]] = [partial(_made, inner, x, bf16, folds, last) for last in layouts]
    if bf16:
        makers.append(lambda: lowered)
    failures: list[str] = []
    for make in makers:
        try:
            made = make()
            if made is None:
                return own
            copied = made if bf16 or numbers.autocast is None else Cast(made, numbers)
            difference = compared(copied, own, x)
        except Exception as error:  # a model's own code may fail in any way when it is copied
            failures.append(one_line(error))
            continue
        if difference > (bound := BF16_BOUND if bf16 else BOUND):
            _warn_of(difference, bound, random=deviation(own, own, x[:2]) > bound / 10)
            return own
        if made is lowered:
            log.warning("the model is searched in bf16 by autocast: no copy of it could be made (%s)", failures[0])
        return copied
    log.warning("the model is searched as it is: no copy of it could be made (%s)", "; ".join(failures))
    return own


def _warn_of(difference: float, bound: float, random: bool) -> None:
    log.warning(
        "SZ016 the model is searched as it is: the logits of a copy made for speed differ from its own by %.2g of the "
        "largest (%.2g allowed); %s",
        *(difference, bound),
        "and so do its own from call to call: is dropout on?" if random else "prepare='none' makes none",
    )


def _made(model: nn.Module, x: Tensor, bf16: bool, folds: bool, channels_last: bool) -> Copy | None:
    """Return a copy, or None where it would gain nothing."""
    obstacle = _obstacle(model, x) if folds else None
    if obstacle is not None:
        log.info("no batch norms are folded: %s", obstacle)
    kinds = {type(module) for module in model.modules()}
    folds = folds and obstacle is None and any(layer in kinds and norm in kinds for layer, norm in NORMS.items())
    if not (bf16 or folds):
        return None
    own = copy.deepcopy(model)
    if _parts(own) & _parts(model):  # how a class is copied is for the class to say
        raise TypeError(f"what {type(model).__name__} calls a deep copy shares parts with it")
    folded = fold(own, x[:2]) if folds else 0
    if not (bf16 or folded):
        return None
    if folded:
        log.info("%d batch norms are folded for the search", folded)
    # With batch norms that are not folded, channels last can be slower, and without any they bring nothing.
    return Copy(own, torch.bfloat16 if bf16 else torch.float32, channels_last and folded > 0)


def _obstacle(model: nn.Module, x: Tensor) -> str | None:
    """Return why layers of a model must not be replaced."""
    if x.dtype != torch.float32:
        return f"the inputs are {x.dtype}"
    if isinstance(model, torch.jit.ScriptModule):
        return "the model is a script"
    tensors = (*model.parameters(), *model.buffers())
    others = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()} - {torch.float32}
    if others:
        return f"the model has weights in {', '.join(sorted(map(str, others)))}"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if any(getattr(module, name, None) for module in model.modules() for name in hooks):
        return "the model has hooks, which may look at what would be gone"
    return None


def _pays(model: nn.Module, x: Tensor, numbers: Numbers) -> bool:
    """Return whether channels last are faster once norms are folded: on tensor cores, on a CPU if it is deep."""
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules()) if x.ndim == 4 else 0
    return convolutions > 0 and not numbers.strictly if x.is_cuda else convolutions >= _DEEP


def compared(made: Model, own: Model, x: Tensor) -> float:
    """Return how far a copy's answers are from the model's own, as `deviation` says.

    A backward pass is tried too: code that runs only there may refuse the copy's layout or number format.
    """
    with torch.enable_grad():
        point = x[:2].clone().requires_grad_()
        logits = ask(made, point)
        if logits.requires_grad:
            torch.autograd.grad(logits.sum(), point)
    return deviation(made, own, x[:_COMPARED])


def deviation(made: Model, model: Model, x: Tensor) -> float:
    """Return by which share of the largest logit two models differ; infinite where only one has an answer."""
    with torch.no_grad():
        own = ask(model, x).clone()  # some models return the same memory each time
        other = ask(made, x)
    finite = own.isfinite().all(1)
    own, other = own[finite].double(), other[finite].double()
    if not len(own):
        return 0.0
    share = (own - other).abs().max() / own.abs().max().clamp(min=torch.finfo(torch.float32).tiny)
    return float(share.nan_to_num(torch.inf))


def _parts(model: nn.Module) -> set[int]:
    return {id(part) for part in (*model.modules(), *model.parameters(), *model.buffers())}


# Models that the user compiled or wrapped


def is_compiled(model: Model) -> bool:
    """Return whether a model, or a module in it, is a compiled one."""
    parts = model.modules() if isinstance(model, nn.Module) else (model,)
    return any(uncompiled(part) is not part for part in parts)


def uncompiled(model: Any) -> Model:
    """Return the model as it was before torch.compile(model), torch.compile(function) or model.compile()."""
    if getattr(model, "_compiled_call_impl", None) is not None:
        return model._call_impl  # type: ignore[no-any-return]
    found: Model = getattr(model, "_orig_mod", None) or getattr(model, "_torchdynamo_orig_callable", None) or model
    return found


def unwrapped(model: Model) -> Model:
    """Return the network itself, for a copy that is run otherwise."""
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return unwrapped(model.module)
    inside = getattr(model, "_orig_mod", None)
    return model if inside is None else unwrapped(inside)
