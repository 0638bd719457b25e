"""The base class of models that compute with arrays, and how their answers become scores."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core.model import Ability, logits_in
from sigmazero.models.wrapping.identity import KnownModel, hash_object

Array = NDArray[Any]
Gives = Literal["scores", "probabilities", "labels"]
Back = Callable[[Array], Any]  # from a gradient with respect to the answer to one with respect to the input
LEAST = float(torch.finfo(torch.float32).tiny)  # smaller probabilities count as this: the logarithm of 0 is no number
NOTES = {"probabilities": "logarithms of its probabilities", "labels": "1 for the class it predicts"}

# Whether `predict` must be followed, by object and method.
_COMPARED: WeakKeyDictionary[Any, dict[Any, bool]] = WeakKeyDictionary()


class ArrayModel(KnownModel):
    """A model of another library that takes tensors and returns scores, one column per class.

    A subclass calls its object as the user would. On the first batch, once for each object and process, the class with
    the highest score is compared with the answer of the object's own `predict`. Where they differ, the class that
    `predict` returns is raised to the top from then on, so that a success is one for the user's own call.

    ability   "gradients", "scores" or "labels": what it gives
    classes   the names of the classes by column, where they are known
    asked     how many rows its object has answered, the comparison included
    """

    differentiable: bool = False  # whether it has `ask_with_gradients`
    flat: bool = False  # whether it takes (N, D) alone
    form: type[np.floating[Any]] | None = None  # the number format that it takes; None for any
    at_once: int | None = None  # the only number of rows that it takes
    way: Any = None  # which of several methods is called

    def __init__(
        self,
        model: Any,
        *,
        title: str = "",
        gives: Gives | None = None,
        classes: Sequence[Any] | None = None,
        channels: str = "first",
    ) -> None:
        super().__init__()
        self._model = (model,)  # hidden from torch
        self.title = title or type(model).__name__
        self.gives, self.channels, self.asked = gives, channels, 0
        self.classes = None if classes is None else tuple(classes)
        self.ability: Ability = "labels" if gives == "labels" else "gradients" if self.differentiable else "scores"
        # None before the comparison; there is nothing to compare where the object has no `predict`.
        self._follows: bool | None = False if type(self).predicted is ArrayModel.predicted else None
        if gives == "labels" and classes is None:
            raise ValueError(f"{self.title} answers with labels: say how many classes, sz.wrap(model, classes=10)")

    # What a subclass defines.

    def ask(self, rows: Any) -> Any:
        """Return the object's own answer."""
        raise NotImplementedError

    def predicted(self, rows: Any) -> Any:
        """Return the classes that the object's own `predict` returns; None where it has none."""
        del rows

    def ask_with_gradients(self, x: Array) -> tuple[Any, Back]:
        """Return the answer, and a function that takes gradients back to the input."""
        raise NotImplementedError

    def rows(self, x: Array) -> Any:
        """Return rows as the object takes them."""
        return np.ascontiguousarray(x if self.form is None else x.astype(self.form, copy=False))

    def content(self) -> str:
        """Return the hash of the object."""
        return hash_object(self.model)

    # What attacks use.

    @property
    def model(self) -> Any:
        """Return the object itself."""
        return self._model[0]

    @property
    def cost(self) -> int:
        """Return how many queries of the object each row of the next call takes."""
        return 1 if self.gives == "labels" or self._decided() is False else 2

    def forward(self, x: Tensor) -> Tensor:
        """Return scores."""
        seen = x.movedim(1, -1) if self.channels == "last" and x.ndim > 2 else x
        seen = seen.flatten(1) if self.flat else seen
        if self.ability == "gradients" and torch.is_grad_enabled() and x.requires_grad:
            answer: Tensor = _Bridge.apply(seen, self._with_gradients)  # type: ignore[no-untyped-call]
            return self._scores(answer, len(x)).to(x.device)
        values = seen.detach().cpu()
        if self.at_once is None:
            return self._answer(values).to(x.device)
        return in_fixed_batches(self._answer, values, self.at_once).to(x.device)

    def _answer(self, x: Tensor) -> Tensor:
        rows = self.rows(x.numpy())
        answer = self.ask(rows)
        self.asked += len(x)
        if self.gives == "labels":
            return torch.from_numpy(one_hot(answer, self.classes or ()))
        found = self._scores(torch.from_numpy(_numbers(answer)), len(x))
        return found if self.cost == 1 else self._compared(found, rows)

    def _with_gradients(self, x: Array) -> tuple[Array, Back]:
        answer, back = self.ask_with_gradients(self.rows(x))
        self.asked += len(x)
        return _numbers(answer), lambda slope: np.asarray(back(slope)).astype(x.dtype, copy=False)

    def _scores(self, answer: Tensor, rows: int) -> Tensor:
        if answer.ndim not in (1, 2) or len(answer) != rows:
            raise ValueError(f"the model returned shape {tuple(answer.shape)} for {rows} rows; expected one row each")
        if self.gives is None:
            self.gives = guess(answer.detach())
        found = scores(answer, self.gives)
        if self.classes is not None and found.shape[1] != len(self.classes):
            raise ValueError(f"{self.title} gives {found.shape[1]} columns for {len(self.classes)} classes")
        return found

    def _decided(self) -> bool | None:
        """Tell whether `predict` must be followed; None where it was not compared yet."""
        try:
            return _COMPARED.get(self.model, {}).get((type(self), self.way), self._follows)
        except TypeError:  # an object that cannot be referred to weakly
            return self._follows

    def decide(self, follows: bool) -> None:
        """Note whether `predict` must be followed, for this object and method."""
        self._follows = follows
        try:
            _COMPARED.setdefault(self.model, {})[type(self), self.way] = follows
        except TypeError:
            return

    def _compared(self, found: Tensor, rows: Any) -> Tensor:
        """Return scores in which the class that `predict` returns is the highest, if only by the smallest step."""
        first, predicted = self._decided() is None, self.predicted(rows)
        self.asked += len(found)
        top = torch.from_numpy(one_hot(predicted, self.classes or range(found.shape[1])).argmax(1))
        other = (found.argmax(1) != top).nonzero().squeeze(1)
        if first and len(found):
            self.decide(bool(len(other)))
        found[other, top[other]] = torch.nextafter(found.amax(1), found.new_tensor(torch.inf))[other]
        return found

    def __deepcopy__(self, memo: dict[int, Any]) -> "ArrayModel":
        """Make another module around the same object, which need not be one that can be copied."""
        del memo
        made = copy.copy(self)
        made.__dict__ = dict(vars(self))
        return made

    def extra_repr(self) -> str:
        """Say what was understood."""
        text = f"{self.title}, {NOTES.get(self.gives or '', 'its scores')}, ability={self.ability!r}"
        text += "" if self.classes is None else f", classes={len(self.classes)}"
        return text + (", takes channels last" if self.channels == "last" else "")


class _Bridge(torch.autograd.Function):
    """An answer of another library with the way back for gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ask: Callable[[Array], tuple[Array, Back]]) -> Tensor:
        answer, ctx.back = ask(x.detach().cpu().numpy())
        return torch.from_numpy(answer).to(x.device)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor, None]:
        (slope,) = slopes
        return torch.from_numpy(ctx.back(slope.detach().cpu().contiguous().numpy())).to(slope.device), None


def in_fixed_batches(ask: Callable[[Tensor], Any], x: Tensor, rows: int) -> Tensor:
    """Ask about a fixed number of rows at a time; the last rows are filled up with the first of them."""
    parts = [torch.cat([part, part[:1].expand(rows - len(part), *part.shape[1:])]) for part in torch.split(x, rows)]
    return torch.cat([logits_in(ask(part)) for part in parts])[: len(x)]


def _numbers(answer: Any) -> Array:
    """Return an answer as floating-point numbers that torch can hold, in memory of its own."""
    values = np.asarray(answer)
    if values.dtype.kind not in "fiub":
        raise TypeError(
            f"the model returned {values.dtype}; for labels say sz.wrap(model, gives='labels', classes=[...])"
        )
    wide = np.float64 if values.dtype.kind != "f" or values.dtype.itemsize > 4 else np.float32
    return np.array(values, dtype=wide, order="C")


def guess(answer: Tensor) -> Gives:
    """Tell what an answer holds: probabilities where no number is negative and each row sums to 1, otherwise scores."""
    if answer.ndim == 1 or answer.shape[1] == 1:
        seen = f", from {float(answer.min()):.4g} to {float(answer.max()):.4g}" if len(answer) else ""
        raise ValueError(f"the model returned one number per row{seen}; say gives='probabilities' or gives='scores'")
    whole = (answer.sum(1) - 1).abs() < 1e-4
    return "probabilities" if len(answer) and bool(((answer >= 0).all(1) & whole).all()) else "scores"


def scores(answer: Tensor, gives: Gives) -> Tensor:
    """Return scores (N, classes) of an answer (N, classes), or of one number per row for two classes.

    >>> scores(torch.tensor([[0.75, 0.25]]), "probabilities").exp()
    tensor([[0.7500, 0.2500]], dtype=torch.float64)
    >>> scores(torch.tensor([3.0, -1.0]), "scores")
    tensor([[-1.5000,  1.5000],
            [ 0.5000, -0.5000]])
    """
    answer = answer[:, 0] if answer.ndim == 2 and answer.shape[1] == 1 else answer
    if gives == "probabilities":
        answer = answer.double()
        return _logarithm(torch.stack([1 - answer, answer], 1) if answer.ndim == 1 else answer)
    # Halves: their difference is the score itself, and a score of 0 means class 0, as in `predict`.
    return torch.stack([-answer / 2, answer / 2], 1) if answer.ndim == 1 else answer


def _logarithm(probabilities: Tensor) -> Tensor:
    """Return logarithms whose largest is where the largest probability is, also where rounding makes two equal."""
    found = probabilities.clamp_min(LEAST).log()
    top = probabilities.detach().argmax(1, keepdim=True)
    above = torch.nextafter(found.detach().amax(1, keepdim=True), found.new_tensor(torch.inf))
    equal = found.detach().argmax(1, keepdim=True) == top
    return torch.where(equal, found, found.scatter(1, top, above))


def one_hot(labels: Any, classes: Sequence[Any]) -> NDArray[np.float64]:
    """Return 1 for the predicted class and 0 for the others; `classes` are the names in the order of the columns.

    >>> one_hot(np.array(["b", "a"]), ["a", "b"])
    array([[0., 1.],
           [1., 0.]])
    """
    places = {name: place for place, name in enumerate(classes)}
    try:
        columns = [places[label] for label in np.asarray(labels).reshape(-1).tolist()]
    except KeyError as error:
        some = ", ".join(map(repr, list(classes)[:5])) + (", ..." if len(classes) > 5 else "")
        raise ValueError(
            f"the model predicted {error.args[0]!r}, which is not among {some}; pass classes=[...]"
        ) from None
    return np.eye(len(classes))[columns]
