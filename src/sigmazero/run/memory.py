"""How many rows at a time."""

import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem, integer
from sigmazero.run.hardware import Engine

Part = TypeVar("Part")


class Batches:
    """Cuts rows into batches; the size is halved when memory runs out, and stays so."""

    def __init__(self, model: Model, problem: Problem, size: int | None, engine: Engine) -> None:
        if size is None:
            size = _roomy(model, problem, engine) if problem.x.is_cuda else _modest(problem)
        if not (integer(size) and size >= 1):
            raise ValueError(f"batch_size={size!r} must be a whole number, 1 or more (None picks one)")
        self.size = int(size)

    def apply(self, rows: Tensor, work: Callable[[Tensor], Part]) -> list[Part]:
        """`work` on consecutive batches of the rows; a batch that does not fit is tried again in halves."""
        parts: list[Part] = []
        start = 0
        while start < len(rows):
            try:
                parts.append(work(rows[start : start + self.size]))
                start += self.size
            except (RuntimeError, MemoryError) as error:
                if not _out_of_memory(error):
                    raise
                self._halve(min(self.size, len(rows) - start), error)
        return parts

    def _halve(self, tried: int, error: BaseException) -> None:
        if tried == 1:
            raise MemoryError("out of memory with one input at a time; use a smaller model or device") from error
        self.size = tried // 2
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        warnings.warn(f"out of memory with {tried} inputs at a time, going on with {self.size}", stacklevel=3)


def _modest(problem: Problem) -> int:
    """About a million scalars, at most 512 rows: keeps a processor busy without filling its memory."""
    return max(1, min(512, 2**20 // problem.features))


def _roomy(model: Model, problem: Problem, engine: Engine) -> int:
    """As many rows as the device's free memory holds, by the look of a few, and at most 1024: more are not faster."""
    rows = min(len(problem), 4)
    if rows == 0:
        return 1
    device = problem.x.device
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    ask = engine.lower(model)
    with engine.numbers(), torch.enable_grad():
        point = torch.zeros_like(problem.x[:rows]).requires_grad_()  # of no sample: nobody's queries
        logits = ask(point)
        if logits.requires_grad:
            torch.autograd.grad(logits.sum(), point)
    used = torch.cuda.max_memory_allocated(device) - before
    del logits, point, ask
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    if engine.max_memory is not None:
        free = min(free, engine.max_memory - torch.cuda.memory_allocated(device))
    # An attack's own state is about a dozen tensors of the size of the input.
    each = used / rows + 12 * problem.features * problem.x.element_size()
    return int(max(1, min(1024, 0.7 * free / each)))


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
