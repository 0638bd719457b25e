"""Record every query about one sample, for a trace of the search."""

from collections import defaultdict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero.core.model import logits_in
from sigmazero.core.problem import Problem
from sigmazero.run.precision import Numbers
from sigmazero.store.facts import SIDE, Trace


class Recorder(nn.Module):
    """A network that records the queries about one sample; the answers are the network's own."""

    def __init__(self, network: nn.Module, problem: Problem) -> None:
        super().__init__()
        if len(problem) != 1:
            raise ValueError(f"a trace is of one sample; {len(problem)} were given")
        self.network, self.problem = network, problem
        self.notes: defaultdict[str, list[Tensor]] = defaultdict(list)  # by column, call by call
        self.ability = getattr(network, "ability", "gradients")

    def forward(self, x: Tensor) -> Tensor:
        """Ask the network, and record the query."""
        logits = logits_in(self.network(x.clone()))  # which it may write to
        # Only queries in strict fp32: the check in the caller's float32 settings repeats points that are recorded.
        if Numbers.current(x.device).strictly:
            with torch.no_grad():
                self._note(x.detach(), logits.detach())
        return logits

    def _note(self, x: Tensor, logits: Tensor) -> None:
        problem = self.problem.take(torch.zeros(len(x), dtype=torch.int64, device=x.device))
        changed = (x != problem.x).flatten(1)
        noted = {
            "margin": problem.goal.margin(logits),
            "prediction": logits.argmax(1),
            "adversarial": problem.goal.reached(logits) & problem.domain.within(x),
            "count": changed.sum(1),
            "index": changed.nonzero()[:, 1],
            "value": x.flatten(1)[changed],
        }
        for name, values in noted.items():
            self.notes[name].append(values.cpu())

    def trace(self) -> Trace:
        """Return all queries, and the landscape of a problem that can be drawn."""
        columns = {name: torch.cat(values).numpy() for name, values in self.notes.items()}
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(columns.pop("count"))])
        columns["margin"] = columns["margin"].astype(np.float64)
        clean = self.problem.x[0].cpu().numpy()
        return Trace(clean, offsets=offsets, landscape=self._landscape(), **columns)

    @torch.no_grad()
    def _landscape(self) -> NDArray[np.float64] | None:
        x = self.problem.x
        if x[0].numel() != 2:
            return None
        along = [torch.linspace(0, 1, SIDE, dtype=x.dtype, device=x.device)] * 2
        down, across = torch.meshgrid(*along, indexing="ij")
        points = torch.stack([across, down], -1).reshape(-1, *x.shape[1:])
        problem = self.problem.take(torch.zeros(len(points), dtype=torch.int64, device=x.device))
        return problem.goal.margin(logits_in(self.network(points))).double().cpu().numpy().reshape(SIDE, SIDE)
