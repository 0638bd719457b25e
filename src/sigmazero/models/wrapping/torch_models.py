"""Models of torch that are no plain networks: functions, programs, outputs with `logits`, one output, channels last."""

from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.model import ChannelsLast, logits_in
from sigmazero.core.oracle import Model
from sigmazero.models.normalize import Normalize, Statistics
from sigmazero.models.wrapping.base import Gives, guess, in_fixed_batches, scores
from sigmazero.models.wrapping.identity import KnownModel, hash_model


class TorchFunction(KnownModel):
    """A function of tensors, or a program, as a module; its state dict holds its hash alone.

    rows  the number of rows that it insists on, if it does
    """

    def __init__(self, function: Model, title: str = "", rows: int | None = None) -> None:
        super().__init__()
        self._function, self.rows = (function,), rows
        self.title = title or str(getattr(function, "__name__", type(function).__name__))

    def forward(self, x: Tensor) -> Tensor:
        """Call it."""
        function = self._function[0]
        return logits_in(function(x)) if self.rows is None else in_fixed_batches(function, x, self.rows)

    def content(self) -> str:
        """Return the hash of the function, or of the program's weights."""
        return hash_model(self._function[0])

    def extra_repr(self) -> str:
        """Name it."""
        return self.title


def exported(program: torch.export.ExportedProgram, title: str = "exported program") -> TorchFunction:
    """Return an exported program as a module. Its own refuses `eval()` and `train()`, so it is hidden."""
    inputs = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in program.graph_signature.user_inputs]
    rows = inputs[0].meta["val"].shape[0] if inputs else None
    return TorchFunction(program.module().requires_grad_(False), title, rows if isinstance(rows, int) else None)


class Scores(nn.Module):
    """A network whose answer is brought to logits: taken out of an output, or made as `gives` says."""

    def __init__(self, model: nn.Module, gives: Gives | None = None) -> None:
        super().__init__()
        self.model, self.gives = model, gives

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        answer = logits_in(self.model(x))
        if self.gives is None and (answer.ndim == 1 or answer.shape[1] == 1):
            guess(answer.detach())  # which says what to write
        return answer if self.gives is None else scores(answer, self.gives)


def torch_model(
    model: Model, normalize: Statistics | None = None, channels: str | None = None, gives: Gives | None = None
) -> nn.Module:
    """Return a network as attacks take it: channels first, logits out, its normalisation in front."""
    inner: nn.Module = model if isinstance(model, nn.Module) else TorchFunction(model)
    parameter = next(inner.parameters(), None)
    inner = ChannelsLast(inner) if channels == "last" else inner
    if gives is not None or "transformers" in {kind.__module__.partition(".")[0] for kind in type(model).__mro__}:
        inner = Scores(inner, gives)
    if normalize is None:
        return inner
    with torch.device("cpu"):
        front = Normalize(*normalize)
    return nn.Sequential(front.to("cpu" if parameter is None else parameter.device), inner)


def published_normalisation(model: nn.Module) -> Statistics | None:
    """Return mean and deviation, for values in [0, 1], of timm's `pretrained_cfg`; None where there is none."""
    config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if config is None:
        return None
    facts = config if isinstance(config, dict) else vars(config)
    if facts.get("mean") is None or facts.get("std") is None:
        raise ValueError('its pretrained_cfg has no mean and std; write normalize="MEAN,STD", or normalize=False')
    return tuple(map(float, facts["mean"])), tuple(map(float, facts["std"]))
