"""A search's copy of a model, compiled for the few numbers of rows that recorded steps ask about."""

import logging
import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from sigmazero.core.attack import Prepare
from sigmazero.core.oracle import Model
from sigmazero.run.ledger import Ledger

if TYPE_CHECKING:
    from sigmazero.run.graphs import Frame

log = logging.getLogger(__name__)
Asked = tuple[int, bool]  # how many rows, and whether with a way back
_MOST = 3  # compilations on one model: each takes seconds


class SearchModel:
    """What a search asks: a copy of the model, or where it was compiled for such a question, that.

    While it `admits` some, questions that it has not met are compiled, up to a few.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.admits = False
        self.compiled: set[Asked] = set()
        self._fast: Model | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Ask."""
        question = len(x), torch.is_grad_enabled()
        if self.admits and len(self.compiled) < _MOST:
            self.compiled.add(question)
        if question not in self.compiled:
            return self.model(x)
        if self._fast is None:
            self._fast = torch.compile(self.model, dynamic=False, fullgraph=True)
        return self._fast(x)


class Compiler:
    """Compiles the copy, and the attack's own arithmetic, for a recorded step: when told to, or when it pays.

    It pays when what compiling would save in the steps still to come, and would have saved in earlier runs on this
    machine, is more than it costs: whoever runs a model once does not wait for a compiler, and whoever keeps running it
    waits once. The artefacts stay in torch's cache on disk.
    """

    def __init__(self, model: SearchModel, prepare: Prepare, fuse: bool | None, ledger: Ledger | None = None) -> None:
        self.model, self.prepare, self.fuse = model, prepare, fuse
        self.ledger = Ledger() if ledger is None else ledger
        self._plain: dict[int, float] = {}  # milliseconds per step before compiling, by frame
        self._decided: set[int] = set()

    def begin(self, frame: "Frame") -> None:
        """A frame's first recording, compiled if that was asked for."""
        if self.prepare != "compile" or not self._compile(frame):
            frame.record(fused=bool(self.fuse))

    def watches(self, frame: "Frame") -> bool:
        """Whether the time of this frame's steps is of interest."""
        return self.prepare == "auto" and id(frame) not in self._decided

    def look(self, frame: "Frame", milliseconds: float, left: int) -> None:
        """Decide about a frame whose steps were timed and has some left."""
        key = self._key(frame)
        if id(frame) in self._plain:  # it was compiled, and these are its new steps
            self._decided.add(id(frame))
            self.ledger.gained(key, 1 - milliseconds / self._plain[id(frame)])
            return
        pays, reason = self.ledger.judge(key, milliseconds, left)
        log.info("%s for %d rows: %s", "compiling" if pays else "not compiling", frame.rows, reason)
        began = time.perf_counter()
        if pays and self._compile(frame):
            self.ledger.spent(key, time.perf_counter() - began)
            self._plain[id(frame)] = milliseconds
        else:
            self._decided.add(id(frame))

    def _compile(self, frame: "Frame") -> bool:
        """Record a frame compiled; False, and all as before, where that does not work."""
        before = set(self.model.compiled)
        if len(before) >= _MOST:
            log.info("not compiling for %d rows: the model was compiled %d times already", frame.rows, _MOST)
            return False
        self.model.admits = True
        failed = False
        try:
            frame.record(compiled=True, fused=self.fuse is not False)
        except Exception as error:  # the compiler raises what it likes about a model it cannot handle
            self.model.compiled, failed = before, True
            log.warning("the model is searched uncompiled (%s)", (str(error).splitlines() or [repr(error)])[0])
            log.debug("what the compiler said", exc_info=True)
        finally:
            self.model.admits = False
        if failed and frame.oracle.problem.x.is_cuda:
            torch.cuda.empty_cache()  # it may have been memory that was missing; outside the handler, which holds it
        return not failed

    def _key(self, frame: "Frame") -> str:
        """The same for the same work on the same kind of device, in whatever process."""
        x = frame.oracle.problem.x
        model = self.model.model
        shapes = (
            [(tuple(p.shape), str(p.dtype)) for p in model.parameters()] if isinstance(model, torch.nn.Module) else []
        )
        device = torch.cuda.get_device_name(x.device) if x.is_cuda else x.device.type
        parts = (device, torch.__version__, type(frame.attack).__name__, repr(model), shapes, tuple(x.shape))
        return Ledger.key(repr(parts))
