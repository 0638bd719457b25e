"""A model that is not torch's, as a module that torch code can ask."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero.core.model import Order
from sigmazero.models.any.asking import ArrayRows, Asking, Queries, Terms
from sigmazero.models.any.bridge import Bridge, Pull, WithPull
from sigmazero.models.any.scores import Gives, guess, one_hot, scores


@dataclass(frozen=True)
class Recognised:
    """What was understood of an object: how it is asked, and what its answers are.

    what         in words, for people
    ask          rows in, raw answers out, as NumPy arrays
    gives        what the answers are; None decides by the first one
    with_pull    the same question with a way back for slopes; None where there are no gradients
    classes      the names of the classes, in the order of the columns, where the model knows them
    max_batch    the most rows that it takes at once, by its own account
    flat         whether it takes (N, D) alone
    rows         the number format it wants; None takes what comes
    print        a text that is another one when the model is another one
    order        the layout of the images it takes
    model        the estimator itself, which may be asked about rows of a table
    """

    what: str
    ask: Callable[[ArrayRows], Any]
    print: Callable[[], str]
    gives: Gives | None = None
    with_pull: WithPull | None = None
    classes: tuple[Any, ...] | None = None
    max_batch: int | None = None
    flat: bool = False
    rows: type[np.floating[Any]] | None = None
    order: Order = "NCHW"
    model: Any = None


class WrappedModel(nn.Module):
    """A model of another library, asked with tensors and answering with scores.

    ability        "gradients", "scores" or "labels": what may be had of it
    max_batch      the most rows at once (None for any number), which are cut here
    deterministic  whether the same input always has the same answer
    device         where it computes; inputs may be anywhere, and answers come to where they are
    queries        how many rows were asked, answered from the cache, and so on
    classes        the names of the classes by column, where they are known; `index` finds labels in them
    """

    def __init__(self, kind: Recognised, terms: Terms, deterministic: bool = True, device: str = "cpu") -> None:
        super().__init__()
        self._held = (
            kind,
            Asking(replace(terms, max_batch=_least(terms.max_batch, kind.max_batch))),
        )  # hidden from torch
        self.gives: str | None = kind.gives
        self.ability = "labels" if kind.gives == "labels" else "scores" if kind.with_pull is None else "gradients"
        self.batch_size = terms.max_batch  # of a run; what is lost when the model stops answering is one batch
        self.max_batch = self.asking.terms.max_batch
        self.deterministic, self.device = deterministic, device
        self.classes = kind.classes
        self._print: str | None = None

    @property
    def kind(self) -> Recognised:
        """What was understood of the model."""
        return self._held[0]

    @property
    def asking(self) -> Asking:
        """Who asks it, and on which terms."""
        return self._held[1]

    @property
    def queries(self) -> Queries:
        """What it was asked so far."""
        return self.asking.queries

    def forward(self, x: Tensor) -> Tensor:
        """Scores, one column per class."""
        seen = x.movedim(1, -1) if self.kind.order == "NHWC" and x.ndim > 2 else x
        seen = seen.flatten(1) if self.kind.flat else seen
        if self.ability == "gradients" and torch.is_grad_enabled() and x.requires_grad:
            answer: Tensor = Bridge.apply(seen, self._asked_with_pull)  # type: ignore[no-untyped-call]
        else:
            answer = torch.from_numpy(self.asking.ask(self._rows(seen.detach().cpu().numpy()), self._asked))
        if answer.ndim not in (1, 2) or len(answer) != len(x):
            raise ValueError(f"the model returned shape {tuple(answer.shape)} for {len(x)} rows; expected one row each")
        if self.gives is None:
            self.gives = guess(answer.detach())
        return scores(answer, "scores" if self.gives == "labels" else self.gives).to(x.device)  # type: ignore[arg-type]

    def index(self, labels: Sequence[Any]) -> Tensor:
        """The columns of some labels, as attacks take them: places in `classes`."""
        if self.classes is None:
            raise ValueError("the model does not name its classes; pass classes=[...] to sz.wrap")
        return torch.from_numpy(one_hot(np.asarray(labels), self.classes).argmax(1))

    def _rows(self, x: NDArray[Any]) -> NDArray[Any]:
        return np.ascontiguousarray(x if self.kind.rows is None else x.astype(self.kind.rows, copy=False))

    def _asked(self, x: ArrayRows) -> NDArray[Any]:
        answer = np.asarray(self.kind.ask(x))
        if self.gives == "labels":
            assert self.kind.classes is not None  # as `wrap` has made sure
            return one_hot(answer, self.kind.classes)
        return _numbers(answer)

    def _asked_with_pull(self, x: NDArray[Any]) -> tuple[NDArray[Any], Pull]:
        ask = self.kind.with_pull
        assert ask is not None
        spans = self.asking.spans(len(x))
        parts = [self.asking.call(s.stop - s.start, lambda s=s: ask(self._rows(x[s]))) for s in spans]  # type: ignore[misc]

        def pull(slope: NDArray[Any]) -> NDArray[Any]:
            back = [np.asarray(part[1](slope[s])) for s, part in zip(spans, parts, strict=True)]
            return np.concatenate(back).astype(x.dtype, copy=False)

        return np.concatenate([_numbers(np.asarray(answer)) for answer, _ in parts]), pull

    def get_extra_state(self) -> str:
        """What tells this model from others, as the weights of a network do."""
        if self._print is None:
            self._print = self.kind.print()
        return self._print

    def set_extra_state(self, state: object) -> None:
        """A model of another library cannot be filled with weights: it must be the very one."""
        if state != self.get_extra_state():
            raise ValueError(f"{self.kind.what} is not the model that was saved; load that one")

    def __deepcopy__(self, memo: dict[int, Any]) -> "WrappedModel":
        """A module of its own around the same model, which need not be one that can be copied."""
        made = copy.copy(self)
        made.__dict__ = {
            name: value if name == "_held" else copy.deepcopy(value, memo) for name, value in vars(self).items()
        }
        return made

    def extra_repr(self) -> str:
        """What was understood of it."""
        words = {"probabilities": "logarithms of its probabilities", "labels": "1 for the class it names"}
        said = f"{self.kind.what}, {words.get(self.gives or '', 'its scores')}, ability={self.ability!r}"
        extras = {"max_batch": self.max_batch, "classes": None if self.classes is None else len(self.classes)}
        said += "".join(f", {name}={value}" for name, value in extras.items() if value is not None)
        said += "" if self.deterministic else ", not deterministic"
        return said + (", takes NHWC" if self.kind.order == "NHWC" else "")


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


def _numbers(answer: NDArray[Any]) -> NDArray[Any]:
    """An answer as floating-point numbers that torch can hold, in memory of its own."""
    if answer.dtype.kind not in "fiub":
        raise TypeError(
            f"the model returned {answer.dtype} values, not scores; where they are labels say sz.wrap(model, "
            "gives='labels', classes=[...])"
        )
    wide = answer.astype(np.float64 if answer.dtype.kind != "f" or answer.dtype.itemsize > 4 else np.float32)
    return np.array(wide, copy=True, order="C")
