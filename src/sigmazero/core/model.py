"""Models as the core sees them: their abilities, their logits, their eval mode, and how they stop.

The attribute `ability` of a model is "gradients", "scores" or "labels"; without it a model has gradients. Each ability
includes those after it: a model with gradients also gives scores. The attribute `needs` of an attack is the least
ability that it can work with.

>>> from types import SimpleNamespace
>>> ability_of(SimpleNamespace(ability="scores")), suffices("scores", "labels"), suffices("scores", "gradients")
('scores', True, False)
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, get_args

from torch import Tensor, nn

Ability = Literal["gradients", "scores", "labels"]
ABILITIES: tuple[Ability, ...] = get_args(Ability)
# What the registered attacks need and take, so that a refusal can name others; the registry fills them.
NEEDS: dict[str, Ability] = {}
TAKES: dict[str, frozenset[str]] = {}


def ability_of(model: object) -> Ability:
    """Return the ability of a model: its attribute, or scores if it has quantised layers."""
    ability = getattr(model, "ability", "scores" if _is_quantised(model) else "gradients")
    if not isinstance(ability, str):
        return "gradients"  # an attribute of the user's own that happens to have this name
    if ability not in ABILITIES:
        raise ValueError(f"the model's ability={ability!r} is not one of {', '.join(map(repr, ABILITIES))}")
    return ability


def _is_quantised(model: object) -> bool:
    """Tell whether a network has quantised layers, which compute without gradients."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return any(type(part).__module__.startswith("torch.ao.nn.quantized") for part in modules)


def suffices(ability: Ability, needs: Ability) -> bool:
    """Return whether a model of this ability has what an attack needs."""
    return ABILITIES.index(ability) <= ABILITIES.index(needs)


def working(ability: Ability) -> list[str]:
    """Return the names of the attacks that work on a model of this ability."""
    return [name for name, needs in NEEDS.items() if suffices(ability, needs)]


def check_ability(name: str, needs: Ability, model: object) -> None:
    """Refuse an attack that needs more than the model has, and name attacks that work."""
    has = ability_of(model)
    if not suffices(has, needs):
        only = "labels only" if has == "labels" else "scores, but no gradients"
        raise ValueError(f"{name} needs {needs}, and this model has {only}; use {' or '.join(working(has))}")


FIX = "sz.wrap(lambda x: model(x)...) with a function that returns the logits"


def logits_in(answer: Any) -> Tensor:
    """Return the logits in a model's output: the tensor itself, or a part of a larger output.

    A field or key called `logits` (as models of Hugging Face have it), or the first of several outputs where it is a
    tensor of rows and columns.

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
            "the model returned a NumPy array, not a tensor of logits; sz.wrap(model, kind='numpy') asks it with arrays"
        )
    raise TypeError(f"the model returned a {_described(answer)} in which no logits are found; ask it through {FIX}")


def _described(answer: Any) -> str:
    """Return the type of an answer, with the keys of a mapping."""
    kind = type(answer).__name__
    if isinstance(answer, Mapping):
        return f"{kind} with the keys {', '.join(map(str, list(answer)[:5])) or 'none'}"
    return kind


def ask(model: Callable[[Tensor], Any], x: Tensor) -> Tensor:
    """Return a model's logits. It gets a copy of x, since some models write to their input."""
    return logits_in(model(x.clone()))


class Stopped(RuntimeError):
    """The model gives no more answers: its queries are spent, or it failed too often."""


@contextmanager
def in_eval_mode(model: object) -> Iterator[None]:
    """Put a model in eval mode inside the block; afterwards every module has its own mode again.

    A layer may merge its weights in `eval()` and split them in `train()`. A model without a module in training mode is
    not touched.
    """
    modules = _parents_first(model) if isinstance(model, nn.Module) else []
    modes = {module: module.training for module in modules if hasattr(module, "training")}  # frozen scripts have none
    try:
        if any(modes.values()):
            _switch(modules[0], False)
        yield
    finally:
        for module, mode in modes.items():
            if module.training != mode:
                _switch(module, mode)


def _switch(module: nn.Module, mode: bool) -> None:
    """Call `train(mode)`; exported programs refuse that call, so their modes are set directly."""
    try:
        module.train(mode)
    except NotImplementedError:
        module.training = mode
        for part in module.children():
            _switch(part, mode)


def _parents_first(model: nn.Module) -> list[nn.Module]:
    """Return every module once, after all modules that it is a part of: a parent's `train()` sets its parts too."""
    found: dict[nn.Module, None] = {}

    def visit(module: nn.Module) -> None:
        if module not in found:
            for part in module.children():
                visit(part)
            found[module] = None

    visit(model)
    return [*reversed(found)]


_CHANNELS = (1, 3, 4)  # grey, colour, colour with transparency


def looks_last(shape: tuple[int, ...]) -> bool:
    """Return whether the last dimension of images looks like channels, and the second does not.

    >>> looks_last((8, 32, 32, 3)), looks_last((8, 3, 32, 32)), looks_last((8, 1, 28, 1)), looks_last((8, 64))
    (True, False, False, False)
    """
    return len(shape) == 4 and shape[-1] in _CHANNELS and shape[1] not in _CHANNELS


class ChannelsLast(nn.Module):
    """A model that takes images with the channels last, asked with the channels first."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.ability = getattr(model, "ability", "gradients")

    def forward(self, x: Tensor) -> Tensor:
        """Ask with the channels last."""
        return logits_in(self.model(x.movedim(1, -1)))
