"""The file that lets a cascade go on after a crash.

It holds the question, a few answers of the model, the tables, and of every adversarial input only what differs from
the clean one. A file that belongs to another question is refused; nothing in it is run.
"""

import hashlib
import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sigmazero.auto.progress import Progress
from sigmazero.core.attack import Attack
from sigmazero.core.files import replacing
from sigmazero.core.inputs import Bound, Bounds
from sigmazero.core.problem import Problem

FORMAT = 1
CLOSE = 1e-4  # of the largest logit: what another machine's rounding may change, and another network's answers exceed
KEPT = ("done", "l0", "forwards", "backwards", "seconds", "clean_prediction", "prediction", "margin", "step_found")


def describe(version: str, members: Sequence[Attack], problem: Problem, bounds: Bounds) -> dict[str, Any]:
    """All that decides the answer, besides the model."""
    return {
        "format": FORMAT,
        "version": version,
        "members": [f"{member!r} version {member.version}" for member in members],
        "eps": problem.budget,
        "unit": problem.unit,
        "seed": problem.seed,
        "bounds": [_bound(bound) for bound in bounds],
        "inputs": _hash(problem.x),
        "labels": _hash(problem.y),
    }


@dataclass(frozen=True)
class StateFile:
    """Where the progress on one question about one model is kept; `answers` are the model's to a few clean inputs."""

    path: Path
    question: dict[str, Any]
    answers: Tensor

    def save(self, progress: Progress, problem: Problem) -> None:
        """Write the file, whole or not at all."""
        row, place = (progress.x_adv != problem.x).flatten(1).nonzero(as_tuple=True)
        arrays = {name: getattr(progress, name) for name in KEPT}
        value = progress.x_adv.flatten(1)[row, place]
        arrays |= {"answers": self.answers, "row": row, "place": place, "value": value}
        plain = {name: array.detach().cpu().numpy() for name, array in arrays.items()}
        with replacing(self.path) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, question=np.array(json.dumps(self.question)), **plain)

    def load(self, problem: Problem, members: int) -> Progress:
        """What the file knows about this very question."""
        held = _read(self.path)
        self._check(held)
        progress = Progress.start(problem.x, members)
        try:
            for name in KEPT:
                mine: Tensor = getattr(progress, name)
                setattr(progress, name, torch.from_numpy(held[name]).to(mine.dtype).reshape(mine.shape))
            row, place, value = (torch.from_numpy(held[n]).to(problem.x.device) for n in ("row", "place", "value"))
            progress.x_adv.flatten(1)[row, place] = value.to(problem.x.dtype)
        except (RuntimeError, IndexError, TypeError) as error:
            raise ValueError(f"{self.path} is damaged ({error}); name another file") from error
        best, counted = progress.best(), problem.l0(progress.x_adv).cpu()
        if not torch.equal(counted.to(best), torch.where(best < torch.inf, best, 0)):
            raise ValueError(f"{self.path} is damaged: its counts are not those of its inputs; name another file")
        return progress

    def _check(self, held: dict[str, Any]) -> None:
        missing = {*KEPT, "question", "answers", "row", "place", "value"} - set(held)
        if missing:
            raise ValueError(
                f"{self.path} is not a state of SparseAutoAttack: it has no {', '.join(sorted(missing))}; "
                "name another file"
            )
        try:
            differences = _differences(dict(json.loads(str(held["question"]))), self.question)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.path} is damaged: it does not say what was asked; name another file") from error
        if not differences and not _same(torch.from_numpy(held["answers"]), self.answers.cpu()):
            differences = ["another model"]
        if differences:
            raise ValueError(
                f"{self.path} is the state of another evaluation ({'; '.join(differences)}); name another file"
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        # Opened here: where the content is no archive, numpy leaves its own file open.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (ValueError, EOFError, OSError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as a state of SparseAutoAttack ({error}); name another") from error


def _differences(there: dict[str, Any], here: dict[str, Any]) -> list[str]:
    found = []
    for name in here:
        if there.get(name) != here[name]:
            short = name in ("inputs", "labels", "members")
            found.append(f"other {name}" if short else f"{name} is {there.get(name)!r} there, {here[name]!r} here")
    return found


def _same(there: Tensor, here: Tensor) -> bool:
    if there.shape != here.shape:
        return False
    scale = float(here[here.isfinite()].abs().max()) if bool(here.isfinite().any()) else 1.0
    return torch.allclose(there.double(), here.double(), rtol=0, atol=CLOSE * max(scale, 1.0), equal_nan=True)


def _bound(bound: Bound) -> float | str:
    return _hash(bound) if isinstance(bound, Tensor) and bound.ndim else float(bound)


def _hash(values: Tensor) -> str:
    array = values.detach().cpu().contiguous().numpy()
    return hashlib.sha256(f"{array.dtype} {array.shape}\n".encode() + array.tobytes()).hexdigest()
