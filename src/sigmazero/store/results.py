"""Results as files."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.domain import Unit
from sigmazero.core.files import replacing
from sigmazero.core.findings import Finding
from sigmazero.core.result import Result

RECORD = "record"  # where a result comes from, as the bytes of a text
CLASSES, FEATURES = "classes", "names"  # what they are called, as the bytes of a list
FINDINGS = "findings"  # what makes the figures doubtful, in the same way
OWN = "own_"  # before the names of the points that a method returns by its own rule
UNITS: tuple[Unit, ...] = ("feature", "pixel")
NAMES = {field.name for field in fields(Result) if field.type in (Tensor, "Tensor")}
_FINDING = [field.name for field in fields(Finding)]


def save_result(path: Path, result: Result, **more: Tensor | None) -> None:
    """Write every tensor of a result, its unit and budget, and what is given by name (labels), to an `.npz` file."""
    held = {name: getattr(result, name) for name in NAMES} | _asked(result)
    for word, called in ((CLASSES, result.classes), (FEATURES, result.names)):
        if called is not None:
            held |= {word: _bytes(json.dumps(called))}
    if result.findings:
        held |= {FINDINGS: _bytes(json.dumps([asdict(each) for each in result.findings]))}
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


def as_record(text: str) -> dict[str, Tensor]:
    """A text that says where a result comes from, to be given to `save_result` beside it; `record_of` reads it."""
    return {RECORD: _bytes(text)}


def _bytes(text: str) -> Tensor:
    return torch.from_numpy(np.frombuffer(text.encode(), dtype=np.uint8).copy())


def record_of(path: str | Path) -> str | None:
    """The text in a result's file that says where it comes from; None if it has none."""
    held = arrays(Path(path)).get(RECORD)
    return None if held is None else _text(held)


def _text(held: Tensor) -> str:
    return held.cpu().numpy().tobytes().decode()


def arrays(path: Path) -> dict[str, Tensor]:
    """All that `save_result` wrote to a file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: torch.from_numpy(file[name]) for name in file.files}
    except (zipfile.BadZipFile, ValueError, EOFError, TypeError) as error:
        raise ValueError(f"{path} is no result, or a damaged one ({error}); name another file") from None


def load_result(path: str | Path, device: torch.device | str = "cpu") -> Result:
    """The result in a file that `Result.save`, or a command with --out, wrote."""
    held = {name: value.to(device) for name, value in arrays(Path(path)).items()}
    return _joined(Path(path), held)


def _joined(path: Path, held: dict[str, Tensor]) -> Result:
    if absent := sorted(NAMES - held.keys()):
        raise ValueError(f"{path} is no result: it has no {absent[0]}; name a file that Result.save wrote")
    found: dict[str, Any] = {name: held[name] for name in {*NAMES, "judged", "x"} & held.keys()}
    own = {name.removeprefix(OWN): value for name, value in held.items() if name.startswith(OWN)}
    # Without tensors of their own: a model may have set a default device that holds no values.
    unit, budget = (int(held[name]) if name in held else usual for name, usual in (("unit", 0), ("budget", -1)))
    return Result(
        **found,
        unit=UNITS[unit],
        budget=None if budget < 0 else budget,
        seconds=float(held.get("seconds", 0.0)),
        own=_joined(path, own) if own else None,
        classes=_called(path, held.get(CLASSES)),
        names=_called(path, held.get(FEATURES)),
        findings=_findings(path, held[FINDINGS]) if FINDINGS in held else (),
    )


def _called(path: Path, held: Tensor | None) -> tuple[str, ...] | None:
    if held is None:
        return None
    try:
        return tuple(str(name) for name in json.loads(held.cpu().numpy().tobytes().decode()))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is a damaged result: its names ({error}); name another file") from None


def _findings(path: Path, held: Tensor) -> tuple[Finding, ...]:
    try:
        return tuple(Finding(**{name: str(each[name]) for name in _FINDING}) for each in json.loads(_text(held)))  # type: ignore[arg-type]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is a damaged result: its findings cannot be read ({error}); name another") from None


def keep_result(path: Path, result: Result) -> Path:
    """Write a result with all there is to it, to be read by `load_result`; without an ending it is an `.npz` file."""
    path = path if path.suffix else path.with_suffix(".npz")
    own = {} if result.own is None else {f"{OWN}{name}": value for name, value in _more(result.own).items()}
    held = {} if result.own is None else {f"{OWN}{name}": getattr(result.own, name) for name in NAMES}
    save_result(path, result, **_more(result), **own, **held)
    return path


def _more(result: Result) -> dict[str, Tensor | None]:
    """What is no tensor of every result."""
    seconds = torch.tensor(result.seconds, dtype=torch.float64, device="cpu")
    return {**_asked(result), "seconds": seconds, "judged": result.judged, "x": result.x}


def _asked(result: Result) -> dict[str, Tensor]:
    """What the figures of a result are about."""
    whole = {"unit": UNITS.index(result.unit), "budget": -1 if result.budget is None else result.budget}
    return {name: torch.tensor(value, device="cpu") for name, value in whole.items()}
