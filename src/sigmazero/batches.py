"""How many rows at a time."""

import warnings
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

Part = TypeVar("Part")


class Batches:
    """Cuts rows into batches; the size is halved when memory runs out, and stays so."""

    def __init__(self, features: int, size: int | None) -> None:
        if size is None:
            # About a million scalars, at most 512 rows: keeps a device busy and is small enough to start with.
            size = max(1, min(512, 2**20 // features))
        if isinstance(size, bool) or int(size) != size or size < 1:
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
        warnings.warn(f"out of memory with {tried} inputs at a time, going on with {self.size}", stacklevel=3)


def _out_of_memory(error: BaseException) -> bool:
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
