"""What a row of a cell costs, estimated without running it, so that work can be divided before anything is known.

The unit is one multiply-add of a forward or a backward pass, counted on a model without values (torch's meta device):
the count is the same on every machine. The constants were fitted to passes measured on an H200 (docs/speed.md) and
come within a tenth of the four networks measured there, from 0.01 to 5 billion multiply-adds. How often a search asks
is what the paper prints for it. Measured seconds, where a store has some, are better: `refine` takes them.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

from sigmazero import models
from sigmazero.bench.cells import Cell, Loader
from sigmazero.bench.plan import ModelSpec, Question
from sigmazero.store.store import Store

FIXED = 40_000_000  # of a pass, however small the network: launches, and the attack's own arithmetic
PER_FEATURE = 12_000  # of a pass: memory, which large inputs wait for
SLOWER = {"fp32": 4, "fp64": 8}  # multiply-adds in these numbers on a GPU, against TF32 and coarser ones
PER_PARAMETER = 50  # multiply-adds of a convolutional network, where they cannot be counted
SECONDS = 15.5e-15  # of one unit on one H200, to make estimates readable; shards do not depend on it
BESIDES = 2  # queries of the clean check and of the verification

# Queries of a search: per step, and at most, where it is not one forward and one backward pass for each step.
USUAL = {"EAD": (6.0, None), "BrendelBethge": (2.5, None), "VFGA": (22.0, 900), "SparseFool": (35.0, 700)}
WITHIN_BUDGET = 0.35  # of the queries: searches that end at the first point with few enough changes


def estimate(cells: Sequence[Cell], loader: Loader) -> dict[str, int]:
    """What a row of each cell costs, by the cell's key, in multiply-adds."""
    counted: dict[tuple[ModelSpec, tuple[int, ...]], int] = {}
    costs = {}
    for cell in cells:
        asked = cell.question
        shape = tuple(loader.rows(asked.data).images.shape[1:])
        place = asked.model, shape
        if place not in counted:
            counted[place] = multiply_adds(_network(asked.model, loader), shape)
        costs[cell.info.key] = queries(asked) * per_pass(counted[place], shape, cell.info.precision)
    return costs


def per_pass(multiply_adds: int, shape: Iterable[int], precision: str) -> int:
    """What a forward or a backward pass of one input costs."""
    features = int(torch.Size(shape).numel())
    return FIXED + PER_FEATURE * features + SLOWER.get(precision, 1) * multiply_adds


def queries(asked: Question) -> int:
    """How often a search asks about a row, forwards and backwards, in the mean."""
    attack = asked.attack
    if attack.limit is not None:
        return attack.limit
    each, most = USUAL.get(type(attack).__name__, (None, None))
    count = (2.0 if attack.gradients else 1.0) * attack.iterations if each is None else each * attack.steps
    if most is not None:
        count = min(count, most)
    return round(count * (1 if asked.budget is None else WITHIN_BUDGET)) + BESIDES


def multiply_adds(network: nn.Module, shape: Iterable[int]) -> int:
    """Those of a forward pass of one input, counted without computing it; else by the number of parameters."""
    held = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    empty = {name: value.detach().to("meta") for name, value in held.items()}
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            functional_call(network, empty, (torch.empty(1, *shape, device="meta"),))
    except Exception:
        # Models are anybody's code, and some look at values, of which there are none here. Nothing but the balance
        # of shards depends on this number; a model that cannot answer at all says so when it is run.
        return PER_PARAMETER * sum(value.numel() for value in held.values())
    return int(counter.get_total_flops()) // 2


def _network(spec: ModelSpec, loader: Loader) -> nn.Module:
    """A model to count on: of the zoo its architecture alone, without its weights."""
    entry = None if loader.has(spec) else models.find(spec.spec)
    if entry is None:
        return loader.model(spec)
    with torch.device("meta"):
        return entry.build().eval()


def refine(costs: Mapping[str, int], store: Store) -> dict[str, float]:
    """Seconds per row by the cell's key: as measured where the store has rows, elsewhere in proportion to them."""
    held = {one.cell.key: one.seconds / one.done for one in store.status() if one.done and one.seconds > 0}
    measured = {key: held[key] for key in costs if key in held}
    speed = statistics.median([seconds / costs[key] for key, seconds in measured.items()]) if measured else SECONDS
    return {key: measured.get(key, speed * cost) for key, cost in costs.items()}
