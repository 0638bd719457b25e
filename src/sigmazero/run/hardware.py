"""How a run uses the hardware: number format, recorded steps, memory. None of it changes what is reported as true."""

import copy
import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from sigmazero.core.oracle import Model, Oracle
from sigmazero.core.problem import Problem
from sigmazero.run.graphs import Captured, Frames
from sigmazero.run.search import Eager, Stepper, Steps, begun

log = logging.getLogger(__name__)
Precision = Literal["fp32", "tf32", "bf16"]
_WORTH_RECORDING = 4  # recordings' worth of steps; fewer cost less than a recording


@dataclass(frozen=True)
class Engine:
    """Choices that change speed and memory.

    precision  number format of the search; whatever it claims is verified in fp32 before it is believed
    capture    record a step as a CUDA graph: None wherever possible, True insists, False never
    fuse       compile the attack's own arithmetic (takes seconds to compile, pays on long runs of small models)
    max_memory bytes of device memory to stay below
    """

    precision: Precision = "fp32"
    capture: bool | None = None
    fuse: bool = False
    max_memory: int | None = None

    def check(self, problem: Problem) -> None:
        """Refuse what cannot be done for this problem."""
        if self.precision not in get_args(Precision):
            raise ValueError(f"precision={self.precision!r} is not one of {', '.join(map(repr, get_args(Precision)))}")
        if self.precision != "fp32" and problem.x.dtype != torch.float32:
            raise ValueError(f"precision={self.precision!r} searches below fp32; the inputs are {problem.x.dtype}")
        if self.capture and not problem.x.is_cuda:
            raise ValueError(f"capture=True needs inputs on a CUDA device; they are on {problem.x.device}")
        if self.max_memory is not None and not problem.x.is_cuda:
            raise ValueError("max_memory limits a CUDA device; on a CPU choose batch_size")

    @property
    def exact(self) -> bool:
        """Whether the search itself computes in the inputs' own precision."""
        return self.precision == "fp32"

    def numbers(self) -> AbstractContextManager[None]:
        """The number format of the search: TF32 is off unless asked for."""
        return _tf32(self.precision != "fp32")

    @contextmanager
    def room(self, device: torch.device) -> Iterator[None]:
        """Hold the device's allocator to `max_memory`: what would go beyond it fails, and the batch is halved."""
        if self.max_memory is None:
            yield
            return
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, self.max_memory / total), device)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, device)

    def lower(self, model: Model) -> Model:
        """The model as the search asks it."""
        if self.precision == "fp32":
            return model  # in fp32 channels-last is slower for most networks
        return _Coarse(model, torch.bfloat16 if self.precision == "bf16" else torch.float32)


class Steppers:
    """Chooses, for each batch, how a phase's steps are taken; recordings are shared by the batches of a run."""

    def __init__(self, attack: Steps, engine: Engine, pool: Any = None) -> None:
        """`pool` names memory for recordings, shared by phases that take turns; None for memory of its own."""
        self.attack, self.engine, self.pool = attack, engine, pool
        self.frames: Frames | None = None
        cuda = torch.cuda.is_available()
        worth = attack.iterations >= _WORTH_RECORDING * attack.unroll
        self.capture = cuda and attack.capturable and engine.capture is not False and worth
        if engine.capture and not attack.capturable:
            raise ValueError(
                f"{attack.name} looks at values between its steps and cannot be captured; leave capture out"
            )

    def begin(self, oracle: Oracle, size: int, before: Any = None) -> Stepper:
        """A stepper for one batch of at most `size` rows, after the state `before` of an earlier phase."""
        state = begun(self.attack, oracle, before)
        if self.capture and oracle.problem.x.is_cuda:
            if self.frames is None or self.frames.size != size:
                self.frames = Frames(self.attack, size, self.engine.fuse, self.pool)
            try:
                return Captured(self.attack, oracle, self.frames, state)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                if self.engine.capture:
                    raise
                log.warning("stepping eagerly: the step could not be captured (%s)", str(error).splitlines()[0])
                self.capture, self.frames = False, None
        return Eager(self.attack, oracle, state)


class _Coarse:
    """A copy of a model in another number format and channels-last, taking and giving fp32.

    A callable that is not a module cannot be copied: it runs under autocast, in its own layout.
    """

    def __init__(self, model: Model, dtype: torch.dtype) -> None:
        self.model, self.dtype = model, dtype
        if isinstance(model, nn.Module):
            self.model = copy.deepcopy(model).requires_grad_(False).to(dtype)
            for parameter in self.model.parameters():
                if parameter.ndim == 4:
                    parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    def __call__(self, x: Tensor) -> Tensor:
        if not isinstance(self.model, nn.Module):
            with torch.autocast(x.device.type, self.dtype, enabled=self.dtype != torch.float32):
                return self.model(x).float()
        x = x.to(self.dtype)
        logits: Tensor = self.model(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x)
        return logits.float()


def full_precision() -> AbstractContextManager[None]:
    """Without TF32, for checks that must hold."""
    return _tf32(False)


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    if not torch.cuda.is_available():
        yield
        return
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


@contextmanager
def quiet(model: Model) -> Iterator[None]:
    """Eval mode, frozen parameters and no autocast for the time of a run; all get their own back.

    Frozen parameters let autograd forget what only their gradients would need. What is verified in fp32 must be asked
    in fp32, whatever surrounds the call.
    """
    modules = list(model.modules()) if isinstance(model, nn.Module) else []
    parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
    modes, needs = [m.training for m in modules], [p.requires_grad for p in parameters]
    try:
        for module in modules:
            module.training = False
        for parameter in parameters:
            parameter.requires_grad_(False)
        with ExitStack() as stack:
            for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
                stack.enter_context(torch.autocast(device, enabled=False))
            yield
    finally:
        for module, mode in zip(modules, modes, strict=True):
            module.training = mode
        for parameter, need in zip(parameters, needs, strict=True):
            parameter.requires_grad_(need)
