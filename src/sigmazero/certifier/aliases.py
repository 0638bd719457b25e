"""Refuse what a trace cannot see: writes into memory that another tensor reads, and values that leave torch."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from sigmazero.certifier.operations import UnknownOperation

# Ways to a tensor's values that torch.fx takes no note of.
LEAVING = ("data", "numpy", "tolist", "__array__", "__dlpack__", "data_ptr", "storage", "untyped_storage", "set_")


def refuse_aliases(model: nn.Module, x: Tensor) -> None:
    """Run a model and refuse it if an in-place operation changes a tensor that it reads by another name."""
    with _Watch(x):
        model(x)


class _Watch(TorchFunctionMode):
    """Follow every call of torch.

    A trace reads an operation that writes into a tensor as one that returns a new tensor. Every other tensor in the
    same memory keeps its old value in the trace and has the new one in the model, so it must not be read any more.
    """

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.held: list[Tensor] = []  # so that no tensor gets the identity of one that is gone
        self.computed: set[int] = set()  # memory with values that were computed from the input
        self.writers: dict[int, str] = {}  # memory that was written into, by which operation
        self.current: dict[int, set[int]] = {}  # the tensors that may still be read there
        self._note(given, computed=True)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Check what is read, call the function, and note what it wrote."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        name = str(getattr(func, "__name__", func))
        name = str(func.__self__.__name__) if name in ("__get__", "__set__") else name  # of a property
        computed = any([self._read(tensor, name) for tensor in tensors])
        if any(tensor.is_inference() for tensor in tensors):  # it has no version
            raise UnknownOperation(f"{name} runs in inference mode, where writing in place goes unseen; use no_grad")
        versions = [tensor._version for tensor in tensors]
        found = func(*args, **(kwargs or {}))
        untouched, written = set(), dict[int, set[int]]()
        for tensor, version in zip(tensors, versions, strict=True):
            if tensor._version == version:
                untouched.add(id(tensor))
            else:
                written.setdefault(_memory(tensor), set()).add(id(tensor))
                self._note(tensor, computed)
        for place, names in written.items():
            self.writers[place] = name
            self.current[place] = names if len(names) == 1 else set()  # of several names the one that is returned

        def result(tensor: Tensor) -> Tensor:
            # Some functions return their argument as it is, where the trace has a new tensor: Dropout in eval mode.
            tensor = tensor.detach() if id(tensor) in untouched else tensor
            self._note(tensor, computed)
            return tensor

        return tree_map_only(Tensor, result, found)

    def _note(self, tensor: Tensor, computed: bool) -> None:
        place = _memory(tensor)
        self.held.append(tensor)
        self.current.setdefault(place, set()).add(id(tensor))
        if computed:
            self.computed.add(place)

    def _read(self, tensor: Tensor, name: str) -> bool:
        """Return whether a tensor was computed from the input; refuse one that the trace has another value of."""
        place = _memory(tensor)
        if place in self.writers and id(tensor) not in self.current[place]:
            writer = self.writers[place]
            raise UnknownOperation(
                f"{writer} writes in place into memory that another tensor shares (a view, reshape or detach), and "
                f"{name} reads that tensor afterwards; use the form of {writer} that is not in place, or x = x.clone()"
            )
        if place in self.computed and name in LEAVING:
            raise UnknownOperation(
                f"the model takes computed values out of torch by .{name}, which cannot be traced; "
                "compute with tensors alone, with .detach().clone() for a copy without gradients"
            )
        self._note(tensor, computed=False)
        return place in self.computed


def _memory(tensor: Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)
