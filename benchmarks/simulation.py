"""The whole reproduction on up to a thousand workers, simulated: how well they are used, and how busy the store is.

    python -m benchmarks.simulation

One driver hands out units and stores what comes back, as sigmazero.bench does: units of about ten seconds, at least a
batch, a worker keeps its model as long as it can, commits are grouped. Rows cost what benchmarks/reproduction.py says
on the mean and differ as benchmarks/unit_costs.py measured; so does storing. The same seed gives the same figures.
"""

import argparse
import heapq
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import reproduction
from benchmarks.reproduction import CellCost, cells

MEASURED = Path(__file__).parent / "results" / "unit-costs-cpu-0311cda.jsonl"
UNIT = 10.0  # seconds of work in a unit, about
LOAD = 5.0  # seconds for a worker to load another model, check its hash, lower and record it
HAND = 0.001  # seconds for the driver to hand out a unit: a call to an actor of Ray takes 0.94 ms
GROUP = 0.5  # seconds that facts may wait for others before they are committed
SMALL, LONG = 32, 60.0  # rows of a batch, where one of the plan's takes so many seconds
WORKERS = (1, 8, 64, 250, 1000)
PRICE = 3.0  # dollars for an hour of a GPU: put your own


@dataclass(frozen=True)
class Storing:
    """Seconds to store: for each append, each row of it, and each commit."""

    append: float
    row: float
    commit: float


@dataclass(frozen=True)
class Outcomes:
    """What a simulated run took; `busy` is the part of the time in which the driver stores."""

    workers: int
    hours: float
    efficiency: float
    units: int
    busy: float
    rows_per_second: float


def read(path: Path = MEASURED) -> tuple[Storing, dict[tuple[str, bool], NDArray[np.float64]]]:
    """What was measured: storing in the slower of two runs, and how rows differ by attack, with a budget or not."""
    found: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    stored = [one for one in found if one.get("run") == 1]
    rows, took = (np.array([one[name] for one in stored]) for name in ("storing", "grouped_ms"))
    row, append = np.polyfit(rows, took, 1, w=1 / took) / 1000
    commit = float(np.median([one["alone_ms"] - one["grouped_ms"] for one in stored])) / 1000
    relative = {(one["attack"], one["budget"]): np.array(one["relative"]) for one in found if "attack" in one}
    return Storing(float(append), float(row), commit), {key: each / each.mean() for key, each in relative.items()}


class Plan:
    """Cells with what is left of them, and who is at which model."""

    def __init__(self, work: Sequence[CellCost], workers: int, spread: dict[tuple[str, bool], Any], seed: int) -> None:
        self.work, self.workers, self.draw = work, workers, np.random.default_rng(seed)
        self.left = np.array([cell.rows for cell in work])
        self.pace = np.array([cell.seconds for cell in work])
        names = sorted({cell.model for cell in work})
        self.model = np.array([names.index(cell.model) for cell in work])
        self.at = np.full(workers, -1)  # the cell of each worker
        self.users = np.zeros(len(names))
        self.known = np.zeros(len(work), np.bool_)  # whose speed is measured
        usual = spread["sigma-zero", False]
        self.spread = [spread.get((cell.attack.split(" ")[0], cell.budget is not None), usual) for cell in work]

    def take(self, worker: int) -> tuple[int, int, float, float] | None:
        """A cell, so many of its rows, the seconds they take, and those before; None if nothing is left."""
        if not self.left.any():
            return None
        before = self.at[worker]
        near = np.zeros(len(self.work))
        others = self.users[self.model].copy()
        if before >= 0:
            near = (self.model == self.model[before]).astype(float)
            near[before] += 1
            others[self.model == self.model[before]] -= 1
        value = np.where(self.left > 0, self.left * self.pace / (1 + others), -1.0)
        best = np.where(self.left > 0, near, -1.0)
        chosen = int(np.where(best == best.max(), value, -2.0).argmax())
        load = 0.0 if before >= 0 and self.model[chosen] == self.model[before] else LOAD
        if load:
            self.users[self.model[before]] -= before >= 0
            self.users[self.model[chosen]] += 1
        self.at[worker] = chosen
        rows = self._cut(chosen)
        self.left[chosen] -= rows
        mean = self.draw.choice(self.spread[chosen], rows).mean()
        return chosen, rows, rows * self.pace[chosen] * mean, load

    def _cut(self, cell: int) -> int:
        size, left = self.work[cell].batch, int(self.left[cell])
        if not self.known[cell]:
            return min(size, left)
        wanted = min(math.ceil(left / self.workers), max(size, int(UNIT / self.pace[cell])))
        return min(math.ceil(wanted / size) * size, left)


def simulate(work: Sequence[CellCost], workers: int, seed: int = 0, path: Path = MEASURED) -> Outcomes:
    """One run. The driver does one thing at a time: a worker that is done waits until it is heard."""
    storing, spread = read(path)
    plan = Plan(work, workers, spread, seed)
    free = stored = committed = spent = 0.0
    units, last = 0, 0.0
    waiting: list[tuple[float, int, int, int]] = [(0.0, worker, -1, 0) for worker in range(workers)]
    while waiting:
        now, worker, cell, rows = heapq.heappop(waiting)
        free = max(now, free)
        if cell >= 0:
            took = storing.append * math.ceil(rows / work[cell].batch) + storing.row * rows
            if free - committed > GROUP:
                took, committed = took + storing.commit, free
            free, stored = free + took, stored + took
            plan.known[cell] = True
            last = max(last, free)
        if (unit := plan.take(worker)) is not None:
            cell, rows, seconds, load = unit
            free += HAND
            spent += seconds
            units += 1
            heapq.heappush(waiting, (free + load + seconds, worker, cell, rows))
    total = sum(each.rows for each in work)
    return Outcomes(workers, last / 3600, spent / (workers * last), units, stored / last, total / last)


def told(hours: float) -> str:
    """A time in words."""
    return f"{hours:.1f} h" if hours >= 1 else f"{60 * hours:.0f} min" if hours > 1 / 60 else "1 min"


def tables(path: Path = MEASURED) -> Iterator[str]:
    """GPU-hours of each table of the paper, and how long it takes on 1, 8 and 64 GPUs."""
    for name, some in reproduction.shown():
        walls = [told(simulate(some, workers, 0, path).hours) for workers in (1, 8, 64)]
        yield f"{reproduction.line(name, some)} {' | '.join(walls)} |"


def smaller(work: Sequence[CellCost]) -> list[CellCost]:
    """The same cells with smaller batches, the least that a worker is given, where one would take over a minute."""
    return [replace(cell, batch=min(SMALL, cell.batch)) if cell.batch * cell.seconds > LONG else cell for cell in work]


def line(found: Outcomes, batch: str) -> str:
    """A line of the table in docs/scaling.md."""
    price = found.workers * found.hours * PRICE
    return (
        f"| {found.workers:,} | {batch} | {told(found.hours)} | {100 * found.efficiency:.0f} % | {found.units:,} | "
        f"{found.rows_per_second:,.0f} | {100 * found.busy:.1f} % | {price:,.0f} |"
    )


def rates(path: Path = MEASURED) -> Iterator[str]:
    """Where the single writer is busy all the time: rows per second, by the rows of an append, as measured."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for rows in dict.fromkeys(one["storing"] for one in found if "storing" in one):
        by = {one["run"]: one for one in found if one.get("storing") == rows}
        each = [1000 * rows / by[run][name] for run in (1, 2) for name in ("alone_ms", "grouped_ms")]
        yield f"| {rows} | " + " | ".join(f"{rate:,.0f}" for rate in each) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="*", default=list(WORKERS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--measured", type=Path, default=MEASURED, help="what benchmarks.unit_costs wrote")
    parser.add_argument("--tables", action="store_true", help="each table of the paper instead, on 1, 8 and 64 GPUs")
    args = parser.parse_args()
    if args.tables:
        print(*tables(args.measured), sep="\n")
        return
    for workers in args.workers:
        for work, batch in ((cells(), "the plans'"), (smaller(cells()), "smaller")):
            print(line(simulate(work, workers, args.seed, args.measured), batch), flush=True)
    print(*rates(args.measured), sep="\n")


if __name__ == "__main__":
    main()
