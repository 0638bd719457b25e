"""How many rows at a time, and what to do when they do not fit."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from sigmazero.core.attack import Precision
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem
from sigmazero.run.precision import search_precision

# How the libraries below torch say that memory ran out; torch passes their words on in a plain RuntimeError.
_WORDS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    "CUSOLVER_STATUS_ALLOC_FAILED",
)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, whoever says it.

    >>> out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    True
    >>> out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


@contextmanager
def limited(device: torch.device, max_memory: int | None) -> Iterator[None]:
    """Hold a device's allocator to some bytes: what would go beyond them fails, and the batch is halved."""
    if max_memory is None:
        yield
        return
    # Before torch 2.8 nobody could ask for it; then the default is put back.
    before: float = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)(device)
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(before, max_memory / total), device)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(before, device)


def choose_batch_size(model: Model, problem: Problem, precision: Precision | None, max_memory: int | None) -> int:
    """A number of rows that keeps the device busy and fits; `model` is the one that the search asks."""
    if problem.x.is_cuda:
        return _measured(model, problem, precision, max_memory)
    # About a million scalars, at most 512 rows: keeps a processor busy without filling its memory.
    return max(1, min(512, 2**20 // problem.features))


def _measured(model: Model, problem: Problem, precision: Precision | None, max_memory: int | None) -> int:
    """As many rows as the device's free memory holds, judged by what a few need; at most 1024, more are not faster."""
    rows = min(len(problem), 4)
    if rows == 0:
        return 1
    device = problem.x.device
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    with search_precision(precision), torch.enable_grad():
        point = torch.zeros_like(problem.x[:rows]).requires_grad_()  # no sample's point, so nobody's query
        logits = model(point.clone())  # a model may write to its input, which a leaf of autograd does not allow
        if logits.requires_grad:
            torch.autograd.grad(logits.sum(), point)
    used = torch.cuda.max_memory_allocated(device) - before
    del logits, point
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    if max_memory is not None:
        free = min(free, max_memory - torch.cuda.memory_allocated(device))
    # An attack's own state is about a dozen tensors of the size of the input.
    each = used / rows + 12 * problem.features * problem.x.element_size()
    return int(max(1, min(1024, 0.7 * free / each)))
