"""How a process computes: which flags round its float32 products, and whether autocast is on.

Since torch 2.9 there are two ways to set the flags, `allow_tf32` and `fp32_precision`, and torch raises when the first
is read after the second was used. Here both are read and written such that they agree where they agreed before, and
afterwards both say what they said before.
"""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch

Read = TypeVar("Read")
KINDS = ("matmul", "conv", "rnn")
IEEE = "ieee"
_BACKENDS = {"cuda": "cuda", "cpu": "mkldnn"}  # whose flags count, by the type of the device
_LEGACY = {"highest": IEEE, "high": "tf32", "medium": "bf16"}  # what torch.set_float32_matmul_precision means
_newer: tuple[Callable[[str, str], str], Callable[[str, str, str], str]] | None = (
    (torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter)
    if hasattr(torch._C, "_get_fp32_precision_getter")
    else None
)

_mutex = threading.Lock()
_changed: "list[tuple[int, _Flags]]" = []  # by whom, and what was there before: the outermost change first


@dataclass(frozen=True)
class Numbers:
    """What products are rounded to on a type of device, and what autocast turns tensors into (None: it is off).

    Products of matrices, of convolutions and of recurrent layers are apart: torch's own default on a CUDA device is
    IEEE float32 for the first and TF32 for the others.
    """

    device: str
    matmul: str = IEEE
    conv: str = IEEE
    rnn: str = IEEE
    autocast: torch.dtype | None = None

    @classmethod
    def strict(cls, device: torch.device | str) -> "Numbers":
        """IEEE float32, without autocast."""
        return cls(torch.device(device).type)

    @classmethod
    def tf32(cls, device: torch.device | str) -> "Numbers":
        """TF32 for every product where the device has it: a CUDA device. Elsewhere this is IEEE float32."""
        kind = torch.device(device).type
        return cls(kind, "tf32", "tf32", "tf32") if _BACKENDS.get(kind) == "cuda" else cls(kind)

    @classmethod
    def current(cls, device: torch.device | str) -> "Numbers":
        """Those of this thread now; what an attack in another thread has changed for a while does not count."""
        kind = torch.device(device).type
        with _mutex:
            other = bool(_changed) and _changed[0][0] != threading.get_ident()
            flags = _changed[0][1] if other else _Flags.read()
        return cls(kind, **flags.of(kind), autocast=_autocast(kind))

    @classmethod
    def named(cls, name: str, device: torch.device | str) -> "Numbers":
        """Those that have a name, such as a store keeps it.

        >>> Numbers.named("conv-tf32+autocast-bfloat16", "cuda").name
        'conv-tf32+autocast-bfloat16'
        """
        kind = torch.device(device).type
        found = cls(kind)
        for part in name.split("+"):
            if part == "tf32":
                found = replace(found, matmul=part, conv=part, rnn=part)
            elif match := re.fullmatch(r"(matmul|conv|rnn)-(\w+)", part):
                both = {"conv": match[2], "rnn": match[2]} if match[1] == "conv" else {match[1]: match[2]}
                found = replace(found, **both)
            elif match := re.fullmatch(r"autocast-(\w+)", part):
                found = replace(found, autocast=getattr(torch, match[1], None))
        if found.name != name:
            raise ValueError(f"no numbers are called {name!r}; names are such as fp32, tf32, conv-tf32")
        return found

    @property
    def name(self) -> str:
        """A short name: "fp32" where nothing is coarser than IEEE float32.

        >>> Numbers("cpu").name, Numbers("cuda", conv="tf32", rnn="tf32").name, Numbers.tf32("cuda").name
        ('fp32', 'conv-tf32', 'tf32')
        """
        kinds = {kind: getattr(self, kind) for kind in KINDS}
        if set(kinds.values()) == {"tf32"}:
            parts = ["tf32"]
        else:
            if self.rnn == self.conv:
                del kinds["rnn"]  # one library does both
            parts = [f"{kind}-{value}" for kind, value in kinds.items() if value != IEEE]
            if self.rnn != self.conv and self.rnn == IEEE:
                parts.append("rnn-ieee")
        if self.autocast is not None:
            parts.append(f"autocast-{str(self.autocast).removeprefix('torch.')}")
        return "+".join(parts) or "fp32"

    @property
    def words(self) -> str:
        """In words.

        >>> Numbers("cuda", conv="tf32", rnn="tf32").words
        'fp32 for matmul, tf32 for conv, tf32 for rnn, no autocast'
        """
        kinds = [f"{'fp32' if getattr(self, kind) == IEEE else getattr(self, kind)} for {kind}" for kind in KINDS]
        cast = "no autocast" if self.autocast is None else f"autocast to {str(self.autocast).removeprefix('torch.')}"
        return ", ".join([*kinds, cast])

    @property
    def strictly(self) -> bool:
        """Whether these are the strict ones."""
        return self.plain and self.autocast is None

    @property
    def plain(self) -> bool:
        """Whether no flag says that products are coarser than IEEE float32."""
        return {self.matmul, self.conv, self.rnn} == {IEEE}

    def flags(self) -> AbstractContextManager[None]:
        """Compute so but for autocast, which is left as it is; then the flags are as they were."""
        wanted = {kind: getattr(self, kind) for kind in KINDS}
        if self.device not in _BACKENDS or _Flags.read().of(self.device) == wanted:
            return nullcontext()
        return _flags(self.device, wanted)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Compute so; then all is as it was. To be called while no other thread changes flags (see `turns`)."""
        with ExitStack() as stack:
            stack.enter_context(self.flags())
            stack.enter_context(self.casting())
            yield

    def casting(self) -> AbstractContextManager[Any]:
        """With autocast as these numbers have it, and flags as they are."""
        if _autocast(self.device) == self.autocast:
            return nullcontext()
        # Without its cache: weights that are frozen are never in it, and a recording must not use it.
        return torch.autocast(self.device, self.autocast, enabled=self.autocast is not None, cache_enabled=False)


class _Flags(NamedTuple):
    """All flags that can be read. A value of the first kind is None where torch refuses to tell it."""

    matmul: str | None  # torch.get_float32_matmul_precision()
    cudnn: bool | None  # torch.backends.cudnn.allow_tf32
    newer: dict[tuple[str, str], str]  # fp32_precision, by backend and kind; empty before torch 2.9

    @classmethod
    def read(cls) -> "_Flags":
        every = [(backend, kind) for backend in _BACKENDS.values() for kind in KINDS] if _newer else []
        return cls(
            _told(torch.get_float32_matmul_precision),
            _told(lambda: torch.backends.cudnn.allow_tf32),
            {place: _newer[0](*place) for place in every} if _newer else {},
        )

    def of(self, device: str) -> dict[str, Any]:
        """What products on a type of device are rounded to, by their kind."""
        backend = _BACKENDS.get(device)
        if backend is None:
            return dict.fromkeys(KINDS, IEEE)
        if self.newer:
            found = {kind: self.newer[backend, kind] for kind in KINDS}
            return {kind: IEEE if value == "none" else value for kind, value in found.items()}
        matmul = _LEGACY[self.matmul or "highest"]
        if backend == "mkldnn":
            return {"matmul": matmul, "conv": IEEE, "rnn": IEEE}
        conv = "tf32" if self.cudnn else IEEE
        return {"matmul": IEEE if matmul == IEEE else "tf32", "conv": conv, "rnn": conv}

    def write(self) -> None:
        """Put everything back."""
        if self.matmul is not None and _told(torch.get_float32_matmul_precision) != self.matmul:
            torch.set_float32_matmul_precision(self.matmul)
        if self.cudnn is not None and _told(lambda: torch.backends.cudnn.allow_tf32) != self.cudnn:
            torch.backends.cudnn.allow_tf32 = self.cudnn
        for place, value in self.newer.items():
            _put(place, value)


def _told(read: Callable[[], Read]) -> Read | None:
    try:
        return read()
    except RuntimeError:  # the newer flags say otherwise
        return None


def _put(place: tuple[str, str], value: str) -> None:
    """Make a newer flag say this; one that says it because a more general one does is left to that one."""
    assert _newer is not None
    for way in ("none", value):
        if _newer[0](*place) != value:
            _newer[1](*place, way)


@contextmanager
def _flags(device: str, wanted: dict[str, str]) -> Iterator[None]:
    with _mutex:
        before = _Flags.read()
        _changed.append((threading.get_ident(), before))
    try:
        with _mutex:
            _set(device, wanted, before)
        yield
    finally:
        with _mutex:
            before.write()
            _changed.pop()


def _set(device: str, wanted: dict[str, str], before: _Flags) -> None:
    """Write the older flags where they can be read, so that they stay so, and then the newer ones."""
    if _BACKENDS[device] == "cuda":
        if before.matmul is not None:
            torch.backends.cuda.matmul.allow_tf32 = wanted["matmul"] == "tf32"
        if before.cudnn is not None:
            torch.backends.cudnn.allow_tf32 = wanted["conv"] == "tf32"
    elif not _newer:
        torch.set_float32_matmul_precision(next(old for old, new in _LEGACY.items() if new == wanted["matmul"]))
    for place in before.newer:
        if place[0] == _BACKENDS[device] and _Flags.read().of(device)[place[1]] != wanted[place[1]]:
            assert _newer is not None
            _newer[1](*place, wanted[place[1]])


def _autocast(device: str) -> torch.dtype | None:
    try:
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    except RuntimeError:  # a type of device that has none
        return None
