"""Results as files."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
from torch import Tensor

from sigmazero.core.files import replacing
from sigmazero.core.result import Result


def save_result(path: Path, result: Result, **more: Tensor | None) -> None:
    """Write every tensor of a result, and those given by name (labels, targets), into one `.npz` file."""
    held = {field.name: getattr(result, field.name) for field in fields(result)}
    arrays = {name: value for name, value in {**held, **more}.items() if isinstance(value, Tensor)}
    plain = {name: value.detach().cpu().numpy() for name, value in arrays.items()}
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **plain)
