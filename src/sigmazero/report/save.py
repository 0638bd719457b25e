"""Results as files. A file appears whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

import numpy as np
from torch import Tensor

from sigmazero.result import Result


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` to write to; it takes the place of `path` if nothing went wrong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def save_result(path: Path, result: Result, **more: Tensor | None) -> None:
    """Write every tensor of a result, and those given by name (labels, targets), into one `.npz` file."""
    held = {field.name: getattr(result, field.name) for field in fields(result)}
    arrays = {name: value for name, value in {**held, **more}.items() if isinstance(value, Tensor)}
    plain = {name: value.detach().cpu().numpy() for name, value in arrays.items()}
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **plain)
