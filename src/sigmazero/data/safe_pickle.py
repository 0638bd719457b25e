"""Read the arrays of a CIFAR-10 batch from its pickle without letting the pickle run anything.

A pickle may name any function to call. Here the few names a pickled array needs are answered by inert stand-ins
that only remember what they were given; every other name is refused.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sigmazero.core.pickles import look_through
from sigmazero.core.text import one_line, shown
from sigmazero.data.errors import DataError
from sigmazero.data.source import Array

_BYTES = ("u1", "|u1", "uint8", b"u1", b"|u1")


class _Type:
    """Stands for numpy's dtype: keeps the name, ignores the rest."""

    def __init__(self, name: str | bytes, *_: object) -> None:
        self.name = name

    def __setstate__(self, state: object) -> None:
        pass


class _Pixels:
    """Stands for an array: shape, type and raw bytes."""

    def __init__(self) -> None:
        self.state: tuple[object, ...] = ()

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.state = state

    def array(self, path: Path) -> Array:
        """The array described, when it is one of bytes."""
        match self.state:
            case (
                _,
                (int() as height, int() as width),
                _Type(name="u1" | "|u1" | "uint8" | b"u1" | b"|u1"),
                fortran,
                raw,
            ):
                data = _raw_bytes(raw)
                if data is not None and height >= 0 and width >= 0 and len(data) == height * width:
                    flat = np.frombuffer(data, dtype=np.uint8)
                    return flat.reshape(width, height).T if fortran else flat.reshape(height, width)
        raise DataError(f"{path}: its data are not a table of bytes; download it again")


def _raw_bytes(raw: object) -> bytes | None:
    # Python 2 wrote bytes as text, which the unpickler decodes letter by letter.
    if isinstance(raw, str):
        return raw.encode("latin-1") if all(ord(letter) < 256 for letter in set(raw)) else None
    return bytes(raw) if isinstance(raw, bytes | bytearray) else None


def _never(*_: object) -> object:
    raise _Refused("calls numpy.ndarray")


def _reconstruct(*_: object) -> _Pixels:
    return _Pixels()


def _from_buffer(data: object, kind: object, shape: object, order: object) -> _Pixels:
    pixels = _Pixels()
    pixels.state = (1, shape, kind, order == "F", data)
    return pixels


_STAND_INS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _never,
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
}


class _Refused(DataError):
    """A pickle asked for something no picture needs."""


class _Call:
    """A stand-in as the pickle sees it: callable, but closed to the opcodes that set attributes."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function

    def __call__(self, *arguments: object) -> object:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise _Refused("changes a function")


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="latin-1")
        self._left = len(data)

    def _encode(self, text: str, encoding: str) -> bytes:
        """A text as bytes, for each text in the file once: repeating one would fill the memory."""
        self._left -= len(text)
        if self._left < 0:
            raise pickle.UnpicklingError("it repeats its texts")
        return text.encode("latin-1" if encoding in ("latin1", "latin-1") else "ascii")

    def find_class(self, module: str, name: str) -> Callable[..., object]:
        """The stand-in for a name, or a refusal."""
        if (module, name) == ("_codecs", "encode"):
            return _Call(self._encode)
        if (module, name) not in _STAND_INS:
            raise _Refused(f"asks for {shown(f'{module}.{name}')}")
        return _Call(_STAND_INS[module, name])


def read_batch(data: bytes, path: Path) -> tuple[Array, list[object]]:
    """Pixels of shape (rows, 3072) and labels of one pickled batch."""
    if data[:1] != b"\x80":
        raise DataError(f"{path}: begins with {data[:4].hex()}, which no CIFAR-10 batch does; fetch it again")
    try:
        batch = _Unpickler(data[: look_through(data)]).load()
    except _Refused as error:
        raise DataError(
            f"{path}: refused, because the pickle {error}, which a CIFAR-10 batch never does and which could run "
            "code; get the file from its publisher"
        ) from error
    except Exception as error:  # damaged files fail in as many ways as there are bytes
        raise DataError(f"{path}: the pickle is cut short or damaged ({one_line(error)}); download it again") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path}: holds a {type(batch).__name__}, not a CIFAR-10 batch")
    batch = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    pixels, labels = batch.get("data"), batch.get("labels")
    if not isinstance(pixels, _Pixels) or not isinstance(labels, list):
        names = ", ".join(shown(key) for key in list(batch)[:5])
        raise DataError(f"{path}: has no data and labels as a CIFAR-10 batch has; it holds {names or 'nothing'}")
    return pixels.array(path), labels
