"""A search's copy of a model, compiled for the few numbers of rows that recorded steps ask about."""

import logging
import time
from dataclasses import dataclass
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
_MOST = 3  # compilations of one model: each takes seconds
_GUESS = 0.3  # share of a step that compiling saves, as long as nothing is known
_LONG = 200  # steps that are worth the tenths of a second which a compilation at hand takes
_FUSING = 0.25  # milliseconds of a step that the attack's arithmetic takes uncompiled, about


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


@dataclass
class Offer:
    """A way to record a frame that may pay: with the model compiled, or with the attack's arithmetic too.

    `gain` is the share of a step it saves as long as nothing is known, None for a time of its own; `before` are the
    milliseconds of a step before it.
    """

    fused: bool
    gain: float | None = None
    before: float | None = None

    def named(self, key: str) -> str:
        """The name of the offer in a ledger."""
        return key + "+" if self.gain is None else key


class Compiler:
    """Compiles the copy, and then the attack's own arithmetic, for a recorded step: when told to, or when it pays.

    It pays when what compiling would save in the steps still to come, and would have saved in earlier runs on this
    machine, is more than it costs: whoever runs a model once does not wait for a compiler, and whoever keeps running it
    waits once. The artefacts stay in torch's cache on disk.
    """

    def __init__(self, model: SearchModel, prepare: Prepare, fuse: bool | None, ledger: Ledger | None = None) -> None:
        self.model, self.prepare, self.fuse = model, prepare, fuse
        self.ledger = Ledger() if ledger is None else ledger
        self._offers: dict[int, list[Offer]] = {}  # what may still pay for a frame, by its id

    def begin(self, frame: "Frame") -> None:
        """A frame's first recording, compiled if that was asked for; what else may pay is looked at as it goes."""
        offers = self._offers[id(frame)] = []
        model, arithmetic = Offer(fused=False, gain=_GUESS), Offer(fused=True)
        fuse = self.fuse is None and self.prepare in ("auto", "compile")
        if self._at_once(frame, model) and self._compile(frame, model):
            if self.fuse or (fuse and self._at_once(frame, arithmetic)):
                fuse = not self._compile(frame, arithmetic) and fuse
        else:
            frame.record(fused=bool(self.fuse))
            if self.prepare == "auto":
                offers.append(Offer(fused=bool(self.fuse), gain=_GUESS))
        if fuse:
            offers.append(arithmetic)

    def _at_once(self, frame: "Frame", offer: Offer) -> bool:
        """Whether to compile before the first step: told to, or this process has compiled it before and it paid."""
        if self.prepare == "compile" and not offer.fused:
            return True
        at_hand = self.prepare in ("auto", "compile") and frame.attack.iterations >= _LONG
        return at_hand and self.ledger.at_hand(offer.named(self._key(frame)))

    def watches(self, frame: "Frame") -> bool:
        """Whether the time of this frame's steps is of interest."""
        return bool(self._offers[id(frame)])

    def look(self, frame: "Frame", milliseconds: float, left: int) -> None:
        """Go on with a frame whose steps were timed and has some left: compile it, or see what that has brought."""
        offers, key = self._offers[id(frame)], self._key(frame)
        if (before := offers[0].before) is not None:  # it was compiled, and these are its new steps
            self.ledger.gained(offers[0].named(key), 1 - milliseconds / before)
            offers.pop(0)
            if not offers:
                return
        offer = offers[0]
        gain = _FUSING / milliseconds if offer.gain is None else offer.gain
        pays, reason = self.ledger.judge(offer.named(key), milliseconds, left, min(gain, 0.9))
        told = "the attack's arithmetic" if offer.gain is None else "the model"
        log.info("%s %s for %d rows: %s", "compiling" if pays else "not compiling", told, frame.rows, reason)
        if pays and self._compile(frame, offer):
            offer.before = milliseconds
        else:
            offers.clear()

    def _compile(self, frame: "Frame", offer: Offer) -> bool:
        """Record a frame compiled; False, and all as before, where that does not work."""
        before, began = set(self.model.compiled), time.perf_counter()
        self.model.admits = True
        failed = False
        try:
            frame.record(compiled=True, fused=offer.fused)
        except Exception as error:  # the compiler raises what it likes about what it cannot handle
            self.model.compiled, failed = before, True
            what = "the attack's arithmetic is" if offer.fused else "the model is searched"
            log.warning("%s uncompiled (%s)", what, (str(error).splitlines() or [repr(error)])[0])
            log.debug("what the compiler said", exc_info=True)
        else:
            self.ledger.spent(offer.named(self._key(frame)), time.perf_counter() - began)
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
