"""The classes a targeted attack is to reach."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sigmazero.data import Rows


def targets_for(rows: Rows, file: Path | None, single: str | None, wanted: bool) -> Tensor | None:
    """One class per row, or None for an untargeted attack."""
    if file is not None and single is not None:
        raise ValueError("give either --targets or --target-class, not both")
    if file is not None:
        return _read(file, len(rows))
    if single is not None:
        return torch.full_like(rows.labels, _number(single, rows))
    if wanted:
        raise ValueError("--targeted needs the classes to reach: --target-class C, or --targets FILE")
    return None


def away_from_target(rows: Rows, targets: Tensor) -> tuple[Rows, Tensor]:
    """Without the rows that are of their target class already: there is nothing to ask about them."""
    kept = (rows.labels != targets).nonzero().squeeze(1)
    if not len(kept):
        raise ValueError("every chosen row is of its target class already; choose other targets or rows")
    return rows.select(kept), targets[kept]


def _number(word: str, rows: Rows) -> int:
    """The number of a class, which may be said by its name."""
    if word in (rows.classes or ()):
        return (rows.classes or ()).index(word)
    try:
        return int(word)
    except ValueError:
        known = f"its names are {', '.join(rows.classes)}" if rows.classes else f"{rows.name} does not name its classes"
        raise ValueError(f"--target-class {word} is no class; {known}, and numbers count from 0") from None


def _read(file: Path, count: int) -> Tensor:
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file; it should hold one class per row")
    try:
        read = (
            np.load(file, allow_pickle=False)
            if file.suffix == ".npy"
            else np.array(file.read_text("utf-8-sig").split(), int)
        )
    except (ValueError, EOFError) as error:
        raise ValueError(f"{file}: not a list of classes ({error}); write one whole number per row") from None
    if read.ndim != 1 or not np.issubdtype(read.dtype, np.integer) or len(read) != count:
        raise ValueError(f"{file}: holds {read.dtype} of shape {read.shape}; {count} whole numbers are needed")
    return torch.from_numpy(read.astype(np.int64))
