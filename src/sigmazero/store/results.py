"""Results as files."""

from __future__ import annotations

import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.files import replacing
from sigmazero.core.problem import Unit
from sigmazero.core.result import Result

_TENSORS = {field.name for field in fields(Result) if field.type in (Tensor, "Tensor")}
NAMES = _TENSORS - {"given_up", "cost"}  # which files from before there were such numbers have too


def save_result(path: Path, result: Result, **more: Tensor | None) -> None:
    """Write every tensor of a result, and those given by name (labels, targets), into one `.npz` file."""
    held = {name: getattr(result, name) for name in _TENSORS}
    plain = {name: value.detach().cpu().numpy() for name, value in {**held, **more}.items() if value is not None}
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **plain)


def names(path: Path) -> set[str]:
    """The arrays in a file; none if it is not there, or of another kind. Those of a result are NAMES, or more."""
    try:
        with zipfile.ZipFile(path) as archive:
            return {name.removesuffix(".npy") for name in archive.namelist()}
    except (zipfile.BadZipFile, FileNotFoundError):
        return set()


def arrays(path: Path) -> dict[str, Tensor]:
    """All that `save_result` wrote to a file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: torch.from_numpy(file[name]) for name in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError, TypeError) as error:
        raise ValueError(f"{path} is no result, or a damaged one ({error}); name another file") from None


def load_result(path: Path, unit: Unit, budget: int | None, device: torch.device) -> Result:
    """What was saved, as an answer to a question in this unit with this budget."""
    held: dict[str, Any] = {name: value.to(device) for name, value in arrays(path).items()}
    seconds = float(held.get("seconds", 0.0))
    found = {name: held[name] for name in _TENSORS & held.keys()} | {name: held[name] for name in NAMES}
    return Result(**found, unit=unit, budget=budget, seconds=seconds)
