"""What compiling has cost and brought on this machine, kept beside torch's own cache of compiled artefacts."""

import getpass
import hashlib
import json
import logging
import math
import os
import re
import statistics
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from sigmazero.core.files import replacing

log = logging.getLogger(__name__)
_COST = 12.0  # seconds, as long as nothing was measured here
_CACHED = 1 / 6  # share of them that remains when the artefacts lie in the cache
_AT_HAND = 0.5  # seconds, where this process has compiled it before
_here: set[str] = set()  # what this process has compiled


@dataclass
class Entry:
    """One model, shape and device: seconds that compiling would have saved so far, what it took, and what it saves."""

    missed: float = 0.0
    cold: float | None = None
    warm: float | None = None
    gain: float | None = None


class Ledger:
    """Entries by key. A file that cannot be read or written costs nothing but what it would have told."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = _beside_the_cache() if path is None else path

    @staticmethod
    def key(text: str) -> str:
        """A short name for a long description."""
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def judge(self, key: str, milliseconds: float, left: int, gain: float = 0.3) -> tuple[bool, str]:
        """Whether compiling pays for so many steps of so many milliseconds, and why; `gain` is a guess of its share.

        What it would have saved before counts too: one who has waited as long as a compilation takes should have one.
        """
        entries = self._read()
        entry = entries.get(key, Entry())
        gain = gain if entry.gain is None else entry.gain
        cost = _AT_HAND if key in _here else entry.warm or (entry.cold and entry.cold * _CACHED)
        cost = cost or _middle([e.cold for e in entries.values()], _COST)
        saved = gain * milliseconds * left / 1000
        pays = entry.missed + saved > cost
        if not pays:
            entry.missed += saved
            self._write(entries | {key: entry})
        before = f", {entry.missed:.1f} s missed before" if entry.missed and pays else ""
        return pays, f"{left} steps of {milliseconds:.2f} ms would save {saved:.1f} s{before}; it takes {cost:.1f} s"

    def at_hand(self, key: str) -> bool:
        """Whether this process has compiled it before, and steps have not become longer by that, as far as is known."""
        gain = self._read().get(key, Entry()).gain if key in _here else 0.0
        return gain is None or gain > 0

    def spent(self, key: str, seconds: float) -> None:
        """Compiling took so long; from now on the artefacts lie in the cache."""
        entries = self._read()
        entry = entries.get(key, Entry())
        if entry.cold is None:
            entry.cold = seconds
        elif key not in _here:
            entry.warm = seconds
        _here.add(key)
        entry.missed = 0.0
        self._write(entries | {key: entry})

    def gained(self, key: str, share: float) -> None:
        """Compiled steps take so much less than those before."""
        entries = self._read()
        entry = entries.get(key, Entry())
        entry.gain = share
        self._write(entries | {key: entry})

    def _read(self) -> dict[str, Entry]:
        try:
            return {key: _entry(values) for key, values in json.loads(self.path.read_text("utf-8")).items()}
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, TypeError, AttributeError) as error:
            log.warning("%s is not read (%s); it is written anew", self.path, error)
            return {}

    def _write(self, entries: dict[str, Entry]) -> None:
        try:
            with replacing(self.path) as part:
                part.write_text(json.dumps({key: asdict(entry) for key, entry in entries.items()}), "utf-8")
        except OSError as error:
            log.warning("what compiling brings cannot be remembered (%s)", error)


def _entry(values: dict[str, float | None]) -> Entry:
    """An entry as it was written; whatever else lies in the file is refused."""
    entry = Entry(**values)  # type: ignore[arg-type]
    for name, value in asdict(entry).items():
        if value is None and name != "missed":
            continue
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise ValueError(f"{name}={value!r} is no number")
    return entry


def _middle(values: list[float | None], otherwise: float) -> float:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else otherwise


def _beside_the_cache() -> Path:
    """Where torch keeps what it compiled, so that both come and go together; its own rule, without loading it."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    folder = Path(named) if named else Path(tempfile.gettempdir()) / f"torchinductor_{_user()}"
    return folder / "sigmazero.json"


def _user() -> str:
    try:
        name = getpass.getuser()
    except (KeyError, ImportError, OSError):  # a container's user may have a number and no name
        name = f"uid_{os.getuid()}" if hasattr(os, "getuid") else "unknown_user"
    return re.sub(r'[\\/:*?"<>|]', "_", name)
