"""What was proved about each input, and what was found."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.domain import Unit
from sigmazero.core.files import replacing

UNITS: tuple[Unit, ...] = ("feature", "pixel")
WORDS = ("exact", "proved", "open", "waiting")
DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, KeyError, EOFError, IndexError, TypeError, NotImplementedError)
_ARRAYS = ("lower", "upper", "x_adv", "correct", "done", "boxes", "seconds")


@dataclass(frozen=True, repr=False)
class Certificates:
    """Hold what `certify` proved; experimental.

    One row per input. `lower` changes at least are needed to fool the network, which is proved; `x_adv` fools the
    model with `upper` changes (infinite where none was found, and `x_adv` is the input then).

    `correct` is whether the model is right about the input itself; where it is not, no change is needed. `done` is
    whether the input was looked at. `boxes` counts the bounds that were computed, `seconds` an input's share of the
    time. `key` tells one question from others.
    """

    lower: Tensor
    upper: Tensor
    x_adv: Tensor
    correct: Tensor
    done: Tensor
    boxes: Tensor
    seconds: Tensor
    up_to: int
    unit: Unit = "feature"
    key: str = ""

    def __len__(self) -> int:
        """Number of inputs."""
        return len(self.lower)

    @property
    def exact(self) -> Tensor:
        """Whether the fewest changes are known: what is proved and what was found meet."""
        return self.done & (self.lower == self.upper)

    @property
    def status(self) -> list[str]:
        """A word for each input: exact (the fewest changes are known), proved (more than `up_to` are needed), open
        (nothing so definite, within the time), or waiting (not looked at).
        """
        code = torch.where(self.exact, 0, torch.where(self.lower > self.up_to, 1, 2))
        return [WORDS[k] for k in torch.where(self.done, code, 3).tolist()]

    def counts(self, t: int) -> tuple[int, int, int]:
        """Of the inputs that the model is right about: how many are proved against t changes, how many are fooled by
        t or fewer, and how many are neither.
        """
        mine = self.done & self.correct
        proved, fooled = mine & (self.lower > t), mine & (self.upper <= t)
        return int(proved.sum()), int(fooled.sum()), int((mine & ~proved & ~fooled).sum())

    def table(self) -> str:
        """The counts for every number of changes, and what they cost."""
        done, mine = int(self.done.sum()), self.done & self.correct
        unit = {"feature": "features", "pixel": "pixels"}[self.unit]
        lines = [f"{unit:>8}  proved  fooled    open"]
        lines += [f"{t:>8}  " + "  ".join(f"{n:>6}" for n in self.counts(t)) for t in range(1, self.up_to + 1)]
        spent = self.seconds[mine].double().cpu()
        lines.append(
            f"{done} of {len(self)} inputs, {int((self.done & ~self.correct).sum())} misclassified, "
            f"fewest changes known for {int(self.exact.sum())}"
        )
        if len(spent):
            boxes = float(self.boxes[mine].double().mean())
            lines.append(
                f"seconds an input: median {spent.median():.3g}, mean {spent.mean():.3g}, most {spent.max():.3g}; "
                f"{boxes:.0f} boxes"
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        """One line: what one wants to know first."""
        proved, fooled, left = self.counts(self.up_to)
        return (
            f"<Certificates of {len(self)} inputs: {proved} proved against {self.up_to} {self.unit} changes, "
            f"{fooled} fooled, {left} open; fewest changes known for {int(self.exact.sum())}>"
        )

    def save(self, path: str | Path) -> None:
        """Write an .npz file, whole or not at all."""
        held = {name: getattr(self, name).detach().cpu().numpy() for name in _ARRAYS}
        held |= {"up_to": np.array(self.up_to), "unit": np.array(UNITS.index(self.unit)), "key": np.array(self.key)}
        with replacing(Path(path)) as part, part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **held)

    @staticmethod
    def load(path: str | Path, device: torch.device | str = "cpu") -> Certificates:
        """What `save` wrote."""
        try:
            with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                held = {name: torch.from_numpy(file[name]).to(device) for name in _ARRAYS}
                up_to, unit, key = int(file["up_to"]), UNITS[int(file["unit"])], str(file["key"])
        except DAMAGE as error:
            raise ValueError(f"{path} holds no certificates, or damaged ones ({error}); name another file") from None
        return Certificates(**held, up_to=up_to, unit=unit, key=key)
