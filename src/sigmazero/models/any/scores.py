"""From what a foreign model answers to scores, one column per class, in which the largest is the class it names."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Gives = Literal["scores", "probabilities", "labels"]
LEAST = float(torch.finfo(torch.float32).tiny)  # probabilities below it count as it: the logarithm of 0 is no number
ONE_COLUMN = "say what it is: sz.wrap(model, gives='probabilities') or gives='scores' (above 0 for class 1)"


def guess(answer: Tensor) -> Gives:
    """What an answer holds: probabilities where no number is negative and each row sums to 1, otherwise scores."""
    if answer.ndim == 1 or answer.shape[1] == 1:
        raise ValueError(f"the model returned one number per row; {ONE_COLUMN}")
    whole = (answer.sum(1) - 1).abs() < 1e-4
    return "probabilities" if len(answer) and bool(((answer >= 0).all(1) & whole).all()) else "scores"


def scores(answer: Tensor, gives: Gives) -> Tensor:
    """Scores (N, classes) of an answer (N, classes), or of one number per row for two classes.

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
    # Halves: their difference is the one number, and where that is 0 class 0 is named, as `predict` does.
    return torch.stack([-answer / 2, answer / 2], 1) if answer.ndim == 1 else answer


def _logarithm(probabilities: Tensor) -> Tensor:
    """Logarithms of which the largest is where the largest probability is, also where rounding made two equal."""
    found = probabilities.clamp_min(LEAST).log()
    top = probabilities.detach().argmax(1, keepdim=True)
    if bool((found.detach().argmax(1, keepdim=True) != top).any()):
        above = torch.nextafter(found.detach().amax(1, keepdim=True), found.new_tensor(torch.inf))
        found = torch.where(found.detach().argmax(1, keepdim=True) == top, found, found.scatter(1, top, above))
    return found


def one_hot(labels: NDArray[Any], classes: Sequence[Any]) -> NDArray[np.float64]:
    """1 for the class that was named, 0 for the others; `classes` are the names, in the order of the columns.

    >>> one_hot(np.array(["b", "a"]), ["a", "b"])
    array([[0., 1.],
           [1., 0.]])
    """
    places = {name: place for place, name in enumerate(classes)}
    try:
        columns = [places[label] for label in np.asarray(labels).reshape(-1).tolist()]
    except KeyError as error:
        raise ValueError(
            f"the model named the class {error.args[0]!r}, which is not among {_some(classes)}; pass classes=[...]"
        ) from None
    return np.eye(len(classes))[columns]


def _some(classes: Sequence[Any]) -> str:
    return ", ".join(map(repr, classes[:5])) + (", ..." if len(classes) > 5 else "")
