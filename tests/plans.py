"""Small plans over networks in a file, and what a store holds after them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from sigmazero.bench.cells import expand
from sigmazero.bench.loader import EVERYTHING, Loader, clean_rows
from sigmazero.bench.plan import Plan
from sigmazero.bench.plan_file import parse_plan
from sigmazero.bench.proofs import METHOD, VERSION, recognise_rows
from sigmazero.bench.run import execute
from sigmazero.bench.workers import Engine
from sigmazero.store.proofs import Proof, row_digests
from sigmazero.store.store import Store

NET = """
import torch

class Net(torch.nn.Module):
    # Multiply and add instead of a matrix product: its kernels round differently with the batch size.
    def __init__(self, seed):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.weight = torch.nn.Parameter(torch.randn(4, 60, generator=g))

    def forward(self, x):
        return (x.flatten(1)[:, None] * self.weight).sum(2)

def build(): return Net(0)

def other(): return Net(5)

def broken():
    def fail(x):
        if x.requires_grad: raise RuntimeError("no gradients here")
        return build()(x)
    return fail
"""

PLAN = """
steps = 30
batch_size = 8

[data.mine]
source = "mine.npz"

[[grid]]
models = ["net.py:build", "net.py:other"]
data = ["mine"]
attacks = ["sigma-zero", "fmn", "vfga"]
"""

ONE_CELL = """
steps = 9
seed = 3
[data.mine]
source = "mine.npz"
rows = "0:10"
[attacks.z]
attack = "sigma-zero"
parameters = { threshold = 0.2, smoothing = 0.01 }
[[grid]]
models = ["net.py:build"]
data = ["mine"]
attacks = ["z"]
"""


def trusting() -> Loader:
    """Loads the networks of these plans, which are code in a file."""
    return Loader("cpu", trust=EVERYTHING)


def planned(text: str, limit: int | None = None, precision: str | None = None, **changes: Any) -> Plan:
    """Read a plan, and change all of its questions."""
    plan = parse_plan(text).override(limit=limit, precision=precision)
    return replace(plan, questions=tuple(replace(each, **changes) for each in plan.questions))


def run(text: str, path, engine: Callable[[Loader], Engine] | None = None, **changes):
    """Run a plan into a store, in this process or on an engine; the cells, the missing ones and the report."""
    loader = trusting()
    plan = planned(text, **changes)
    with Store(path, write=True) as store:
        cells, missing = expand(plan.questions, loader)
        return cells, missing, execute(cells, store, loader, engine=engine and engine(loader))


def key(text: str, **changes) -> str:
    """Return the key of a plan's only cell."""
    cells, missing = expand(planned(text, **changes).questions, trusting())
    assert not missing
    (cell,) = cells
    return cell.info.key


def clean(store: Store, loader: Loader | None = None):
    """What gives a report the clean inputs of a cell."""
    return partial(clean_rows, store, loader=loader or trusting())


def keep_proofs(path, key, rows, least, seconds, *, loader, method=METHOD, version=VERSION) -> list[str]:
    """Store how many changes each row is proved to need, 0 if nothing; the data sets whose rows cannot be loaded."""
    digests = row_digests(rows.images, rows.labels)
    made = zip(digests, least, seconds, strict=True)
    with Store(path, write=True) as store, store.together():
        store.keep_digests(rows.content_hash, digests)
        lost = recognise_rows(store, loader, key)
        store.prove(key, {row: Proof(int(bound), method, version, float(took)) for row, bound, took in made if bound})
    return lost


def contents(path) -> dict[str, dict[str, np.ndarray]]:
    """Everything stored but the times."""
    with Store(path) as store:
        cells = {info.key: store.facts(info.key) for info in store.cells()}
    return {key: {n: v for n, v in vars(facts).items() if n != "seconds"} for key, facts in cells.items()}


def assert_same(left, right) -> None:
    assert left.keys() == right.keys()
    for key in left:
        for name, values in left[key].items():
            assert values.dtype == right[key][name].dtype
            assert values.tobytes() == right[key][name].tobytes(), f"{name} of cell {key[:12]} differs"
