"""Who may ask a model when: several threads may run attacks at once, and their batches take turns.

While a batch is attacked its model is in eval mode with frozen parameters, and flags of the whole process say how
numbers are rounded. Two threads that changed these at the same time would restore each other's changes and search in
each other's numbers. So a batch holds the lock of its model, and the one lock of the flags where it may change them,
from its first question to its verification. Between two batches all modes and flags are the caller's.

Threads that attack different models on a CPU run side by side, as long as the flags are torch's own, which are strict
there. Threads on CUDA devices do not: use a process for each device. A thread that calls the model itself, without an
attack, does not wait for anybody and may find it in eval mode.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from weakref import WeakKeyDictionary

import torch
from torch import nn

from sigmazero.core.oracle import Model
from sigmazero.run.numbers import Numbers
from sigmazero.run.precision import quiet

# Reentrant: a model may run an attack of its own inside its forward pass.
_flags = threading.RLock()
_models: "WeakKeyDictionary[nn.Module, threading.RLock]" = WeakKeyDictionary()
_registry = threading.Lock()


@contextmanager
def turn(model: Model, device: torch.device, numbers: Numbers) -> Iterator[None]:
    """Ask the model undisturbed: in eval mode, without gradients or autocast around, on its device, with these flags.

    Then all is as it was.
    """
    with ExitStack() as stack:
        if device.type == "cuda" or not (numbers.plain and Numbers.current(device).plain):
            stack.enter_context(_flags)
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        for lock in _locks(model):
            stack.enter_context(lock)
        stack.enter_context(numbers.flags())
        stack.enter_context(quiet(model))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        yield


@contextmanager
def strictly(model: Model, device: torch.device) -> Iterator[None]:
    """A turn in strict numbers, for answers that must hold."""
    with turn(model, device, Numbers.strict(device)):
        yield


def _locks(model: Model) -> list[threading.RLock]:
    """The locks of a module and of all modules in it, in an order that is the same for everybody.

    Two models may share a part, such as a backbone under two heads: its mode is one of both.
    """
    if not isinstance(model, nn.Module):
        return []
    with _registry:
        return [_models.setdefault(part, threading.RLock()) for part in sorted(model.modules(), key=id)]
