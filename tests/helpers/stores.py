"""A store of literal facts. Only this file knows how a store is written; what reports show of it is tests/golden's."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sigmazero as sz
from sigmazero.store import CellInfo, Facts, Store

INF = np.inf
LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1])
CLEAN = {"first": [1, 1, 2, 0, 1, 2, 0, 1], "second": [1, 0, 2, 0, 1, 2, 0, -1]}  # predictions; NaN is −1
CLEAN["M1"] = CLEAN["first"]  # a network of the paper
A, F, N, X, S, B = (
    int(sz.Outcome[name]) for name in ("ALREADY", "FOUND", "NOT_FOUND", "NON_FINITE", "NO_START", "BEYOND_BUDGET")
)


@dataclass(frozen=True)
class Run:
    """An attack on a model: a number for each of eight samples in each list."""

    model: str
    attack: str
    changes: list[float]
    outcome: list[int]
    forwards: list[int]
    backwards: list[int]
    seconds: float  # of the whole run
    budget: int | None = None
    returned: list[float] = field(default_factory=lambda: [np.nan] * 8)
    cost: list[float] = field(default_factory=lambda: [np.nan] * 8)
    parameters: dict[str, Any] = field(default_factory=dict)

    @property
    def found(self) -> NDArray[np.bool_]:
        """Which samples have a point that is not the clean input."""
        return np.isin(self.outcome, (F, B))


def fixed(model: str, budget: int, changes: list[float], outcome: list[int], seconds: float) -> Run:
    """Return a run within a budget, of an attack that asks for no gradients and ends with a success."""
    forwards = [1 if how in (A, X) else 7 * (i + 1) if how == F else 101 for i, how in enumerate(outcome)]
    return Run(model, "sparse-rs", changes, outcome, forwards, [0] * 8, seconds, budget)


BOXES = [
    Run(
        "first",
        "sigma-zero",
        [0, 1, 2, 4, 9, 12, 31, INF],
        [A, F, F, F, F, F, F, N],
        [1, *[102] * 6, 101],
        [0, *[100] * 7],
        1.6,
    ),
    Run(
        "first",
        "ead-paper",
        [0, 3, 5, 5, 40, 60, INF, INF],
        [A, F, F, F, F, F, N, N],
        [1, *[230] * 7],
        [0, *[110] * 7],
        3.2,
        returned=[0, 3, 7, 5, 48, INF, INF, INF],
    ),
    Run(
        "second",
        "sigma-zero",
        [0, 0, 3, 3, 11, 26, INF, INF],
        [A, A, F, F, F, F, N, X],
        [1, 1, *[102] * 4, 101, 1],
        [0, 0, *[100] * 5, 0],
        1.2,
    ),
    Run(
        "second",
        "ead-paper",
        [0, 0, 4, 20, 33, INF, INF, INF],
        [A, A, F, F, F, S, N, X],
        [1, 1, *[200] * 5, 1],
        [0, 0, *[90] * 5, 0],
        2.4,
        returned=[0, 0, 4, 21, INF, INF, INF, INF],
    ),
    fixed("first", 2, [0, 1, 2, 6, INF, 2, INF, INF], [A, F, F, B, N, F, N, N], 0.4),
    fixed("first", 5, [0, 1, 2, 4, 5, 3, 9, INF], [A, F, F, F, F, F, B, N], 0.8),
    fixed("second", 2, [0, 0, 2, INF, INF, 4, 3, INF], [A, A, F, N, N, B, B, X], 0.2),
    fixed("second", 5, [0, 0, 2, 5, 5, 2, INF, INF], [A, A, F, F, F, F, N, X], 0.6),
]
COSTS = [
    Run(
        "first",
        "sigma-swap",
        [0, 1, 2, 2, 3, 5, 6, INF],
        [A, F, F, F, F, F, F, N],
        [1, *[150] * 7],
        [0, *[50] * 7],
        0.8,
        cost=[0, 2.5, 2, 3.5, 3, 7.5, 6, INF],
    ),
    Run(
        "first",
        "fmn",
        [0, 1, 1, 2, 4, 8, INF, INF],
        [A, F, F, F, F, F, N, N],
        [1, *[62] * 5, 61, 61],
        [0, *[60] * 7],
        0.6,
        cost=[0, 4, 2.5, 2, 6.5, 20, INF, INF],
    ),
]
SPACE = sz.Space(cost=[1.0, 2.5] * 50)


def write_store(
    path: Path, runs: list[Run], space: sz.Space | None = None, shape: tuple[int, ...] = (1, 10, 10)
) -> Path:
    """Write runs as a benchmark would have: a cell each, its facts in two batches."""
    cells = [_cell(run, space, shape) for run in runs]
    with Store(path, write=True) as store:
        store.register([info for info, _ in cells])
        number = store.begin({"sigmazero": "literal facts"})
        for info, facts in cells:
            for start, stop in ((0, 5), (5, 8)):
                store.append(info.key, start, facts.take(slice(start, stop)), run=number)
    return path


def _cell(run: Run, space: sz.Space | None, shape: tuple[int, ...]) -> tuple[CellInfo, Facts]:
    steps = run.parameters.get("steps", 100)
    known: dict[str, Any] = {"model": run.model, "attack": run.attack, "budget": run.budget}
    identity = known | ({} if space is None else {"space": {"text": space.to_toml()}})
    info = CellInfo(
        key=" ".join(map(str, (*known.values(), "costs" if space else "box", *run.parameters.values()))),
        **known,
        dataset="digits",
        parameters={"steps": steps, **run.parameters},
        version=sz.ATTACKS[run.attack].version,
        steps=steps,
        unit="feature",
        goal="untargeted",
        seed=0,
        precision="fp32",
        rows=8,
        model_sha256=f"weights of {run.model}",
        data_hash="eight rows",
        identity=identity,
        about={"shape": list(shape)},
    )
    changes, found = np.array(run.changes, float), run.found
    count = np.where(found, changes, 0).astype(np.int64)
    clean = np.array(CLEAN[run.model])
    return info, Facts(
        row=np.arange(8),
        label=LABELS,
        target=np.full(8, -1),
        clean_prediction=clean,
        prediction=np.where(found, (LABELS + 1) % 3, clean),
        outcome=np.array(run.outcome, np.int8),
        l0=changes,
        l0_pixel=changes,
        step_found=np.where(found, 7, np.where(np.array(run.outcome) == A, 0, -1)),
        forwards=np.array(run.forwards),
        backwards=np.array(run.backwards),
        margin=np.where(found, -0.5, 0.5),
        seconds=np.full(8, run.seconds / 8),
        given_up=np.zeros(8, np.int64),
        cost=np.array(run.cost, float),
        returned=np.array(run.returned, float),
        offsets=np.concatenate([[0], np.cumsum(count)]),
        index=np.concatenate([i + np.arange(n) for i, n in enumerate(count)]),  # from a place of its own on
        value=np.ones(count.sum(), np.float32),
    )
