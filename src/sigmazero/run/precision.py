"""The float32 settings and autocast of a run, set for one batch at a time and put back.

torch has two ways to set how float32 products are rounded: `allow_tf32` and `fp32_precision`. It raises when the first
is read after the second said otherwise. Its compiler reads the first. So both are written where both could be read.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from sigmazero.core.hardware import Precision
from sigmazero.core.model import in_eval_mode
from sigmazero.core.oracle import Model

Value = TypeVar("Value")
KINDS = ("matmul", "conv", "rnn")
IEEE = "ieee"
BACKENDS = {"cuda": "cuda", "cpu": "mkldnn"}  # whose settings count, by the type of the device
_SETTINGS: dict[tuple[str, str], Any] = {
    ("cuda", "matmul"): torch.backends.cuda.matmul,
    ("cuda", "conv"): torch.backends.cudnn.conv,  # type: ignore[attr-defined]
    ("cuda", "rnn"): torch.backends.cudnn.rnn,
    ("mkldnn", "matmul"): torch.backends.mkldnn.matmul,  # type: ignore[attr-defined]
    ("mkldnn", "conv"): torch.backends.mkldnn.conv,  # type: ignore[attr-defined]
    ("mkldnn", "rnn"): torch.backends.mkldnn.rnn,  # type: ignore[attr-defined]
}

_turns = threading.RLock()  # reentrant: a model may run an attack of its own inside its forward pass


@dataclass(frozen=True)
class Numbers:
    """How float32 products are rounded on a type of device, and what autocast turns tensors into (None: it is off).

    Products of matrices, of convolutions and of recurrent layers have settings of their own: torch's default on a CUDA
    device is IEEE float32 for the first and TF32 for the others.
    """

    device: str
    matmul: str = IEEE
    conv: str = IEEE
    rnn: str = IEEE
    autocast: torch.dtype | None = None

    @classmethod
    def strict(cls, device: torch.device | str) -> "Numbers":
        """Return IEEE float32 without autocast."""
        return cls(torch.device(device).type)

    @classmethod
    def tf32(cls, device: torch.device | str) -> "Numbers":
        """Return TF32 for every product on a CUDA device; elsewhere IEEE float32."""
        kind = torch.device(device).type
        return cls(kind, "tf32", "tf32", "tf32") if BACKENDS.get(kind) == "cuda" else cls(kind)

    @classmethod
    def current(cls, device: torch.device | str) -> "Numbers":
        """Return those of the process; where an attack in another thread has changed them, wait for its batch."""
        kind = torch.device(device).type
        with _turns:
            settings = Settings.read()
        return cls(kind, **settings.of(kind), autocast=_autocast(kind))

    @classmethod
    def around(cls, x: Tensor) -> "Numbers":
        """Return those that a caller's process uses for inputs x; in double precision settings do not count."""
        return cls.strict(x.device) if x.dtype == torch.float64 else cls.current(x.device)

    @classmethod
    def from_name(cls, name: str, device: torch.device | str) -> "Numbers":
        """Return the settings of a name, as a store keeps it.

        >>> Numbers.from_name("conv-tf32+autocast-bfloat16", "cuda").name
        'conv-tf32+autocast-bfloat16'
        """
        values, casts = (IEEE, "tf32", "bf16"), (None, torch.float16, torch.bfloat16)
        for matmul, conv, rnn, cast in product(values, values, values, casts):
            found = cls(torch.device(device).type, matmul, conv, rnn, cast)
            if found.name == name:
                return found
        raise ValueError(f"{name!r} is not a name of float32 settings; examples are fp32, tf32, conv-tf32")

    @property
    def name(self) -> str:
        """Return a short name: "fp32" where nothing is coarser than IEEE float32.

        >>> Numbers("cpu").name, Numbers("cuda", conv="tf32", rnn="tf32").name, Numbers.tf32("cuda").name
        ('fp32', 'conv-tf32', 'tf32')
        """
        kinds = KINDS if self.rnn != self.conv else ("matmul", "conv")  # one library does convolutions and the rest
        parts = [f"{kind}-{getattr(self, kind)}" for kind in kinds if getattr(self, kind) != IEEE]
        if self.rnn == IEEE != self.conv:
            parts.append("rnn-ieee")
        if self.matmul == self.conv == self.rnn == "tf32":
            parts = ["tf32"]
        if self.autocast is not None:
            parts.append(f"autocast-{str(self.autocast).removeprefix('torch.')}")
        return "+".join(parts) or "fp32"

    @property
    def in_words(self) -> str:
        """Return the same in words.

        >>> Numbers("cuda", conv="tf32", rnn="tf32").in_words
        'fp32 for matmul, tf32 for conv, tf32 for rnn, no autocast'
        """
        kinds = [f"{'fp32' if getattr(self, kind) == IEEE else getattr(self, kind)} for {kind}" for kind in KINDS]
        cast = "no autocast" if self.autocast is None else f"autocast to {str(self.autocast).removeprefix('torch.')}"
        return ", ".join([*kinds, cast])

    @property
    def strictly(self) -> bool:
        """Return whether products are IEEE float32 and autocast is off."""
        return {self.matmul, self.conv, self.rnn} == {IEEE} and self.autocast is None

    @contextmanager
    def flags(self) -> Iterator[None]:
        """Set the float32 settings, leave autocast alone; then the settings are as they were."""
        wanted = {kind: getattr(self, kind) for kind in KINDS}
        if self.device not in BACKENDS or Settings.read().of(self.device) == wanted:
            yield
            return
        with _turns:
            before = Settings.read()
            try:
                before.change(BACKENDS[self.device], wanted)
                yield
            finally:
                before.write()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Compute in these settings; then all is as it was."""
        with self.flags(), self.casting():
            yield

    def casting(self) -> AbstractContextManager[Any]:
        """Set autocast alone."""
        if _autocast(self.device) == self.autocast:
            return nullcontext()
        # Without its cache: weights that are frozen are never in it, and a captured step must not use it.
        return torch.autocast(self.device, self.autocast, enabled=self.autocast is not None, cache_enabled=False)


class Settings(NamedTuple):
    """All float32 settings of the process. The first two are None where torch refuses to read them."""

    matmul: str | None  # torch.get_float32_matmul_precision()
    cudnn: bool | None  # torch.backends.cudnn.allow_tf32
    precisions: dict[tuple[str, str], str]  # fp32_precision by backend and kind

    @classmethod
    def read(cls) -> "Settings":
        """Return those that hold now."""
        return cls(
            _readable(torch.get_float32_matmul_precision),
            _readable(lambda: torch.backends.cudnn.allow_tf32),
            {place: setting.fp32_precision for place, setting in _SETTINGS.items()},
        )

    def of(self, device: str) -> dict[str, Any]:
        """Return how products on a type of device are rounded, by kind."""
        if device not in BACKENDS:
            return dict.fromkeys(KINDS, IEEE)
        found = {kind: self.precisions[BACKENDS[device], kind] for kind in KINDS}
        return {kind: IEEE if value == "none" else value for kind, value in found.items()}

    def change(self, backend: str, wanted: dict[str, str]) -> None:
        """Set other ones; each of the older flags only if it could be read."""
        if backend == "cuda" and self.matmul is not None:
            torch.backends.cuda.matmul.allow_tf32 = wanted["matmul"] == "tf32"
        if backend == "cuda" and self.cudnn is not None:
            torch.backends.cudnn.allow_tf32 = wanted["conv"] == "tf32"
        for kind, value in wanted.items():
            setting = _SETTINGS[backend, kind]
            if setting.fp32_precision != value and (setting.fp32_precision, value) != ("none", IEEE):
                setting.fp32_precision = value

    def write(self) -> None:
        """Put everything back."""
        if self.matmul is not None and _readable(torch.get_float32_matmul_precision) != self.matmul:
            torch.set_float32_matmul_precision(self.matmul)
        if self.cudnn is not None and _readable(lambda: torch.backends.cudnn.allow_tf32) != self.cudnn:
            torch.backends.cudnn.allow_tf32 = self.cudnn
        for place, value in self.precisions.items():
            for way in ("none", value):  # one that follows a more general setting is left to that one
                if _SETTINGS[place].fp32_precision != value:
                    _SETTINGS[place].fp32_precision = way


def _readable(read: Callable[[], Value]) -> Value | None:
    try:
        return read()
    except RuntimeError:  # the newer settings say otherwise
        return None


def _autocast(device: str) -> torch.dtype | None:
    try:
        return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
    except RuntimeError:  # a type of device that has none
        return None


def search_numbers(precision: Precision | None, caller: Numbers) -> Numbers:
    """Return the float32 settings of a search: the caller's, unless `precision` names others."""
    if precision is None:
        return caller
    return Numbers.strict(caller.device) if precision == "fp32" else Numbers.tf32(caller.device)


@contextmanager
def turn(model: Model, device: torch.device, numbers: Numbers) -> Iterator[None]:
    """Ask a model in eval mode, with frozen parameters, without autocast around it, and in these float32 settings.

    Settings and modes belong to the whole process. So threads that run attacks share one lock and take turns, batch by
    batch. Between two batches everything is the caller's own. For attacks side by side use processes. A thread that
    calls the model itself, without an attack, does not wait and may find it in eval mode.

    Frozen parameters let autograd forget what only their gradients would need. Autocast is for the model alone, so a
    question under the caller's switches it on again.
    """
    with _turns, ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        stack.enter_context(numbers.flags())
        stack.enter_context(in_eval_mode(model))
        for kind in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            stack.enter_context(torch.autocast(kind, enabled=False))
        # Inference tensors refuse `requires_grad_`. In eval mode there may be other parameters.
        parameters = model.parameters() if isinstance(model, nn.Module) else ()
        for parameter in [p for p in parameters if not p.is_inference()]:
            stack.callback(parameter.requires_grad_, parameter.requires_grad)
            parameter.requires_grad_(False)
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        yield


@contextmanager
def strictly(model: Model, device: torch.device) -> Iterator[None]:
    """Take a turn in strict fp32, for answers that must hold."""
    with turn(model, device, Numbers.strict(device)):
        yield
