"""Where in what a model returns the logits are: in a tensor, a tuple, a dictionary or an object that has them."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

FIX = "sz.wrap(lambda x: model(x)...) with a function that returns the logits"


def logits_in(answer: Any) -> Tensor:
    """The logits in what a model returned; a tensor is taken as it is.

    A field or key called `logits` is taken (as models of Hugging Face have it), or the first of several outputs where
    that one is a tensor of rows and columns.

    >>> import torch
    >>> logits_in({"loss": None, "logits": torch.zeros(2, 3)}).shape, logits_in((torch.zeros(2, 3), "more")).shape
    (torch.Size([2, 3]), torch.Size([2, 3]))
    >>> logits_in([1.0])
    Traceback (most recent call last):
    ...
    TypeError: the model returned a list in which no logits are found; ask it through \
sz.wrap(lambda x: model(x)...) with a function that returns the logits
    """
    if isinstance(answer, Tensor):
        return answer
    found = answer.get("logits") if isinstance(answer, Mapping) else getattr(answer, "logits", None)
    if isinstance(found, Tensor):
        return found
    first = answer[0] if isinstance(answer, tuple | list) and len(answer) else None
    if isinstance(first, Tensor) and first.ndim == 2 and first.is_floating_point():
        return first
    if type(answer).__module__.partition(".")[0] == "numpy":
        raise TypeError(
            "the model returned a NumPy array, not a tensor of logits; sz.wrap(model) makes a model of a NumPy function"
        )
    raise TypeError(f"the model returned a {_described(answer)} in which no logits are found; ask it through {FIX}")


def _described(answer: Any) -> str:
    """What kind of thing it is, and what its parts are called."""
    kind = type(answer).__name__
    if isinstance(answer, Mapping):
        return f"{kind} with the keys {', '.join(map(str, list(answer)[:5])) or 'none'}"
    return kind
