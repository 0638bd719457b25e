"""Batch sizes: chosen by measuring on a device, and out-of-memory errors."""

import logging
import time
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sigmazero.core.hardware import Precision
from sigmazero.core.model import ask
from sigmazero.core.oracle import Model
from sigmazero.core.problem import Problem, integer
from sigmazero.run.precision import Numbers, search_numbers

log = logging.getLogger(__name__)
_FEWEST, _MOST, _GAIN = 32, 4096, 1.08  # rows to begin and to end with, and what doubling must bring to be worth it
# Measured sizes of models that still exist, and how much memory was free then.
_known: WeakKeyDictionary[nn.Module, dict[object, tuple[int, int]]] = WeakKeyDictionary()
_AS_FREE = 0.9  # of the memory that was free then
# Messages of the libraries below torch when memory runs out; torch passes them on in a RuntimeError.
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
    """Return whether an error means that memory ran out, in torch or below it.

    >>> out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    True
    >>> out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    False
    """
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(word in str(error) for word in _WORDS)


def at_most(model: object, rows: int, queries: int = 0) -> int:
    """Cap the batch size at the model's own `batch_size`, and at what its limit suffices for at `queries` a row.

    So little is lost when the limit ends a search: the batches before are done.
    """
    most: Any = getattr(model, "batch_size", None)
    left: Any = getattr(model, "left", None)
    rows = min(rows, most) if integer(most) and most else rows
    return max(1, min(rows, left // queries)) if queries and integer(left) else rows


def choose_batch_size(model: Model, problem: Problem, precision: Precision | None, owner: object = None) -> int:
    """Return a number of rows that keeps the device busy and fits; `model` stands for the user's, the `owner`."""
    if problem.x.is_cuda:
        key = (problem.x.shape[1:], problem.x.dtype, problem.x.device, min(len(problem), _MOST), precision)
        return remembered(owner, key, _free(problem.x.device), lambda: _measured(model, problem, precision))
    # About a million scalars, at most 512 rows: keeps a processor busy without filling its memory.
    return max(1, min(512, 2**20 // problem.x.shape[1:].numel()))


def remembered(owner: object, key: object, free: int, measure: Callable[[], int]) -> int:
    """Return the size measured before for this model and question, if about as much memory is free as then."""
    sizes = _known.setdefault(owner, {}) if isinstance(owner, nn.Module) else {}
    rows, then = sizes.get(key, (0, 0))
    if not rows or free < _AS_FREE * then:
        rows = measure()
        sizes[key] = rows, free
    return rows


def _free(device: torch.device) -> int:
    """Return the free bytes of a device, with those that torch's allocator keeps in reserve."""
    return torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _measured(model: Model, problem: Problem, precision: Precision | None) -> int:
    """Return the fewest rows that keep the device busy: double them as long as they fit and the rate grows enough."""
    if len(problem) == 0:
        return 1
    with search_numbers(precision, Numbers.current(problem.x.device)).flags():
        most = min(_fitting(model, problem), len(problem), _MOST)
        rows = min(_FEWEST, most)
        rates = [(rows, rows / _seconds(model, problem, rows))]
        while rows < most:
            rows = min(2 * rows, most)
            rates.append((rows, rows / _seconds(model, problem, rows)))
            if rates[-1][1] < _GAIN * rates[-2][1]:
                rows = rates[-2][0]
                break
    listed = ", ".join(f"{rate:,.0f} with {size}" for size, rate in rates)
    log.info("batches of %d rows; rows a second through the model: %s", rows, listed)
    return rows


def _seconds(model: Model, problem: Problem, rows: int) -> float:
    """Return the seconds of a forward and a backward pass."""
    _pass(model, problem, rows)  # libraries choose their kernels
    torch.cuda.synchronize(problem.x.device)
    began = time.perf_counter()
    for _ in range(3):
        _pass(model, problem, rows)
    torch.cuda.synchronize(problem.x.device)
    return (time.perf_counter() - began) / 3


def _fitting(model: Model, problem: Problem) -> int:
    """Estimate how many rows fit into the device's free memory, by what a few need."""
    rows, device = min(len(problem), 4), problem.x.device
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    _pass(model, problem, rows)
    used = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    # An attack's own state is some two dozen tensors of the size of the input: its records, and a recording's of them.
    each = used / rows + 24 * problem.x.shape[1:].numel() * problem.x.element_size()
    return int(max(1, 0.7 * free / each))


def _pass(model: Model, problem: Problem, rows: int) -> None:
    """Ask about points of no sample, so that no query is counted."""
    with torch.enable_grad():
        point = torch.zeros_like(problem.x[:rows]).requires_grad_()
        logits = ask(model, point)
        if logits.requires_grad:
            torch.autograd.grad(logits.sum(), point)
