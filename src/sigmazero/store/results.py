"""Write results to `.npz` files and read them: an array for each tensor, and the rest as a JSON text."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.files import replacing
from sigmazero.core.findings import Finding
from sigmazero.core.result import Result

ABOUT = "about"  # the array with the JSON text: unit, budget, seconds, names, findings, record
OWN = "own_"  # begins the names of the arrays of `Result.own`
FIX = "name a file that Result.save or a command with --out wrote"
NAMES = {field.name for field in fields(Result) if field.type in (Tensor, "Tensor")}  # in every result


def save_result(path: Path, result: Result, *, record: str | None = None, **more: Tensor | None) -> None:
    """Write a result to an `.npz` file.

    record   a text about where the result comes from, which `record_of` reads
    more     other tensors, such as labels
    """
    tensors = {name: getattr(result, name) for name in (*NAMES, "judged", "x")} | more
    about = {name: getattr(result, name) for name in ("unit", "budget", "seconds", "classes", "names")}
    about |= {"findings": [asdict(finding) for finding in result.findings], "record": record}
    if result.own is not None:
        tensors |= {f"{OWN}{name}": getattr(result.own, name) for name in NAMES}
    arrays = {name: value.detach().cpu().numpy() for name, value in tensors.items() if value is not None}
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays, **{ABOUT: np.array(json.dumps(about))})


def load_result(path: str | Path, device: torch.device | str = "cpu") -> Result:
    """Read the result in a file that `Result.save`, or a command with --out, wrote."""
    tensors = {name: value.to(device) for name, value in arrays(Path(path)).items()}
    if missing := sorted(NAMES - tensors.keys()):
        raise ValueError(f"{path} is no result: it has no {missing[0]}; {FIX}, or read data with sz.data.load")
    columns: dict[str, Any] = {name: tensors[name] for name in {*NAMES, "judged", "x"} & tensors.keys()}
    own: dict[str, Any] = {name: tensors[f"{OWN}{name}"] for name in NAMES if f"{OWN}{name}" in tensors}
    about = _about(Path(path))
    try:
        question: dict[str, Any] = {name: about[name] for name in ("unit", "budget")}
        return Result(
            **columns,
            **question,
            seconds=about["seconds"],
            own=Result(**own, **question) if own else None,
            classes=None if about["classes"] is None else tuple(map(str, about["classes"])),
            names=about["names"],
            findings=tuple(Finding(**finding) for finding in about["findings"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is a damaged result ({error}); name another file") from None


def record_of(path: str | Path) -> str | None:
    """Return the text in a result's file that says where it comes from; None if it has none."""
    return _about(Path(path)).get("record")


def arrays(path: Path) -> dict[str, Tensor]:
    """Read all tensors in a file; texts, such as the names of a table, are left out."""
    with _opened(path) as file:
        found = {name: file[name] for name in file.files if name != ABOUT}
        return {name: torch.from_numpy(values) for name, values in found.items() if values.dtype.kind != "U"}


def _about(path: Path) -> dict[str, Any]:
    with _opened(path) as file:
        return dict(json.loads(file[ABOUT].item())) if ABOUT in file.files else {}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; {FIX}")
    try:
        with np.load(path, allow_pickle=False) as file:
            yield file
    except (zipfile.BadZipFile, ValueError, EOFError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no result, or a damaged one ({error}); name another file") from None
