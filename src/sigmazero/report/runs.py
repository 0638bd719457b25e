"""Load the runs of a store, group those that compete, and compute their figures.

A `Run` is one cell of a store with its facts. A `Group` holds the runs that answer the same question about the same
model: its tables, curves and pages compare them.
"""

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sigmazero.core import metrics
from sigmazero.core.messages import digest
from sigmazero.core.metrics import Floats, Outcome, Samples, checked
from sigmazero.report.intervals import median_interval, wilson
from sigmazero.store.facts import CellInfo, Facts, Integers
from sigmazero.store.store import Store

Record = dict[str, str | float | None]
# From a cell to all its inputs as they were attacked (`images`), and their numbers in the data set (`ids`).
# Reports load no data themselves: the caller passes this.
Clean = Callable[[CellInfo], Any]

COST = "cost"  # the unit of runs whose changes are counted by what they cost
TRANSFER = "transfer"  # in the origin of a cell whose points were found on another model: the key of that cell
IDENTITY = ("model", "dataset", "attack", "version", "steps", "unit", "goal", "budget", "seed", "precision", "space")
VARYING = ("steps", "seed", "precision", "version", "space")  # what may tell apart two runs of one attack
# Must be the same in a table: among the runs of one attack, data set or model; None is among all of them.
ALIKE = {"version": "attack", "precision": None, "unit": None, "data_hash": "dataset", "model_sha256": "model"}
MAX_VALUES = 5  # keys that an error shows
NEARLY, STRETCH, MARGIN = 0.95, 3.0, 1.05  # see `Group.end`


class MixtureError(ValueError):
    """Report runs that do not compare and may not share a table."""


@dataclass(frozen=True, eq=False)
class Run:
    """One attack against one model: what its cell asks, and what is stored of its samples.

    facts  one entry per sample, without perturbations; `perturbed` reads those too
    least  the number of changes that each sample is proved to need, 0 where nothing is proved; None without proofs
    unit   "feature", "pixel" or "cost": what `changes` counts
    name   what to call the run within its group: its attack, and what tells it from others of that attack
    store  where the run was read from
    """

    info: CellInfo
    facts: Facts
    least: Integers | None = None
    unit: str = "feature"
    name: str = ""
    store: Store | None = field(default=None, repr=False)

    def __len__(self) -> int:
        """Return the number of stored samples."""
        return len(self.facts)

    @property
    def budget(self) -> int | None:
        """Return the number of changes that the run was limited to."""
        return self.info.budget

    @property
    def title(self) -> str:
        """Return the name of the run, with its budget."""
        return self.name if self.budget is None else f"{self.name} within {self.budget}"

    @property
    def code(self) -> str:
        """Return a short hash of the model's source code; empty where the cell does not know it."""
        code = self.info.identity.get("model", {})
        return digest(code["code"])[:8] if isinstance(code, dict) and "code" in code else ""

    @cached_property
    def changes(self) -> Floats:
        """Return the changes of each sample in the run's unit, infinite where it was not fooled."""
        facts = self.facts
        if self.unit == COST:
            return np.where(np.isnan(facts.cost), facts.l0, facts.cost)
        return np.asarray(facts.l0_pixel if self.unit == "pixel" else facts.l0, dtype=np.float64)

    @cached_property
    def lower(self) -> Floats | None:
        """Return the changes that each sample needs at least; None where nothing is proved.

        Without a proof a sample that is classified correctly needs one change, and any other none.
        """
        if self.least is None or self.unit == COST:
            return None
        right = self.facts.clean_prediction == self.facts.label
        return np.where(right, np.maximum(self.least, 1), 0).astype(np.float64)

    @cached_property
    def samples(self) -> Samples:
        """Return the arrays that metrics are computed from."""
        facts = self.facts
        return Samples(
            changes=self.changes,
            outcome=facts.outcome,
            forwards=facts.forwards,
            backwards=facts.backwards,
            seconds=facts.seconds,
            clean_prediction=facts.clean_prediction,
            label=facts.label,
            returned=None if np.isnan(facts.returned).all() else facts.returned,
            least=self.lower,
        )

    @cached_property
    def perturbed(self) -> Facts:
        """Return the facts with their perturbations, in the same order; a store they are in must still be open."""
        return self.facts if self.store is None else self.store.facts(self.info.key)

    @property
    def priced(self) -> bool:
        """Return whether changes have costs of their own."""
        return not bool(np.isnan(self.facts.cost).all())

    def places(self, rows: Integers) -> Integers:
        """Return where these rows of the data set are among the samples; the run must have them all."""
        return places_of(rows, self.facts.row)


def places_of(rows: Integers, among: Integers) -> Integers:
    """Return where each of these rows is among others, which must have them all."""
    order = np.argsort(among, kind="stable")
    return np.asarray(order[np.searchsorted(among[order], rows)], dtype=np.int64)


def load(store: Store, keys: Collection[str] | None = None) -> list[Run]:
    """Return the runs that have samples, with what is proved about them.

    Left out are points found on other models (`bench.transfer`) and, unless `keys` names them, superseded cells.
    """
    old = store.superseded()
    infos = [info for info in store.cells() if (info.key not in old if keys is None else info.key in keys)]
    runs = [
        Run(info, store.facts(info.key, perturbations=False), store.proved(info.key), info.unit, info.attack, store)
        for info in infos
        if TRANSFER not in info.origin
    ]
    return [run for run in runs if len(run)]


def by_cost(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that have costs, with changes counted by what they cost.

    Runs with a budget are left out: a budget counts changes, so they did not search for the cheapest ones.
    """
    return [replace(run, unit=COST) for run in runs if run.budget is None and run.priced]


def names(infos: Sequence[CellInfo]) -> list[str]:
    """Return what to call each run: its attack, and what tells it from others of that attack and budget."""
    parts = [{name: str(getattr(info, name)) for name in VARYING} for info in infos]
    return tell_apart([info.attack for info in infos], parts, [(info.attack, info.budget) for info in infos])


@dataclass(frozen=True)
class Best:
    """The best of several runs for each row.

    changes  the fewest that fool it, infinite where no run did
    winner   the place of the run that found them, −1 for none
    lower    the changes that it needs at least: without a proof 1, and 0 where it is wrong already
    """

    rows: Integers
    changes: Floats
    winner: Integers
    lower: Floats


def merge(runs: Sequence[Run], rows: Integers | None = None) -> Best:
    """Return the best that any run found for each of these rows; of equals the first run counts.

    By default they are all rows that any run has, in the order in which they first appear.
    """
    if rows is None:
        every = np.concatenate([run.facts.row for run in runs])
        rows = every[np.sort(np.unique(every, return_index=True)[1])]
    found, least = np.full((len(runs), len(rows)), np.inf), np.ones(len(rows))
    for at, run in enumerate(runs):
        here = np.isin(rows, run.facts.row)
        places = run.places(rows[here])
        found[at, here] = run.changes[places]
        if run.lower is not None:
            least[here] = np.maximum(least[here], run.lower[places])
    fewest = found.min(axis=0)
    winner = np.where(np.isfinite(fewest), found.argmin(axis=0), -1)
    return Best(rows, fewest, winner, np.where(fewest == 0, 0.0, least))


def not_finite_is_wrong(run: Run) -> Run:
    """Count samples whose clean answer is not finite as wrong, so that they need no change: leaderboards do."""
    odd, facts = run.facts.outcome == Outcome.NON_FINITE, run.facts
    l0, l0_pixel = (np.where(odd, 0.0, each) for each in (facts.l0, facts.l0_pixel))
    prediction = np.where(odd, -1, facts.clean_prediction)
    return replace(run, facts=replace(facts, l0=l0, l0_pixel=l0_pixel, clean_prediction=prediction))


# Groups ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Group:
    """Runs that compete: the same model, rows, goal, unit and space.

    `runs` begin with the strongest, those with a budget come last; `title` tells the group from others of its store.
    """

    title: str
    runs: tuple[Run, ...]

    @property
    def unit(self) -> str:
        """Return what changes are counted in."""
        return self.runs[0].unit

    @property
    def info(self) -> CellInfo:
        """Return the cell of the first run, for what all runs share."""
        return self.runs[0].info

    @cached_property
    def free(self) -> tuple[Run, ...]:
        """Return the runs without a budget."""
        return tuple(run for run in self.runs if run.budget is None)

    @cached_property
    def fixed(self) -> tuple[Run, ...]:
        """Return the runs with a budget."""
        return tuple(run for run in self.runs if run.budget is not None)

    @property
    def strongest(self) -> Run:
        """Return the run with the lowest median, or the largest budget where all have budgets."""
        return self.runs[0]

    @cached_property
    def pool(self) -> tuple[Run, ...]:
        """Return the runs whose best counts: those without a budget if there are any, or one if they share no row."""
        runs = self.free or self.runs
        return runs if len(reduce(np.intersect1d, [run.facts.row for run in runs])) else runs[:1]

    @cached_property
    def best(self) -> Best:
        """Return the best that the pool found for each row that all its runs have."""
        return merge(self.pool, reduce(np.intersect1d, [run.facts.row for run in self.pool]))

    @property
    def lower(self) -> Floats | None:
        """Return the changes that each row of `best` is proved to need; None where nothing is proved."""
        return self.best.lower if any(run.lower is not None for run in self.pool) else None

    @property
    def count(self) -> str:
        """Return how many samples the runs have, such as "n = 100"."""
        sizes = sorted({len(run) for run in self.runs})
        return f"n = {sizes[0]}" if len(sizes) == 1 else f"n = {sizes[0]} to {sizes[-1]}"

    @cached_property
    def end(self) -> float:
        """Return where the axis of a curve ends, so that one slow attack does not squeeze the others.

        That is where nearly all samples of the slowest attack are fooled, but at most three times as far as for the
        middle attack. Attacks that fool less than half as many samples as the best one do not count.
        """
        found = [run.changes[np.isfinite(run.changes)] for run in self.free]
        most = max((len(each) for each in found), default=0)
        reach = sorted(float(np.quantile(each, NEARLY, method="higher")) for each in found if 0 < len(each) >= most / 2)
        wanted = min(reach[-1], STRETCH * reach[(len(reach) - 1) // 2]) if reach else 0.0
        return MARGIN * max([1.0, wanted, *(float(run.budget or 0) for run in self.fixed)])

    @property
    def cut(self) -> dict[str, float]:
        """Return the runs whose curve goes on beyond `end`, and how far."""
        last = {run.name: float(run.changes[np.isfinite(run.changes)].max(initial=0)) for run in self.free}
        return {name: k for name, k in last.items() if k > self.end}


def groups(runs: Sequence[Run], mix: bool = False) -> list[Group]:
    """Return the runs of each question together, in the order of first appearance.

    Runs that do not compare are refused, as `refuse_mixture` says, unless `mix` allows them.
    """
    if not runs:
        raise ValueError(
            "the store has no samples yet, and proofs alone make no table; run a plan or an attack into it first"
        )
    if not mix:
        refuse_mixture(run.info for run in runs)
    found: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(question(run), []).append(run)
    parts = []
    for part in found.values():
        named = zip(part, names([run.info for run in part]), strict=True)
        parts.append(sorted((replace(run, name=name) for run, name in named), key=weakness))
    return [Group(title, tuple(part)) for title, part in zip(_titles([part[0] for part in parts]), parts, strict=True)]


def question(run: Run) -> tuple[str, ...]:
    """Return what runs have in common that compete with each other."""
    info = run.info
    same = (info.model, info.dataset, info.goal, info.origin.get("target"), info.model_sha256, run.code, info.data_hash)
    return (*map(str, same), info.space, run.unit)


def weakness(run: Run) -> tuple[float, ...]:
    """Return what runs are sorted by, the strongest first: the median, then the height of the curve.

    Runs with a budget come last, the largest budget first.
    """
    if run.budget is not None:
        return (1.0, -run.budget, -float(run.facts.success.sum()))
    last = run.changes[np.isfinite(run.changes)].max(initial=1.0)
    return (
        0.0,
        metrics.median(run.changes),
        float(-np.isfinite(run.changes).mean()),
        float(np.minimum(run.changes, last).mean()),
    )


def _titles(firsts: Sequence[Run]) -> list[str]:
    """Return what to call each group: its model, data and goal, and what tells apart groups with one name."""
    plain = [f"{run.info.model} on {run.info.dataset}{goal_suffix(run.info)}" for run in firsts]
    parts = [
        {
            "space": run.info.space,
            "rows": run.info.data_hash[:8],
            "weights": run.info.model_sha256[:8],
            "code": run.code,
            "unit": run.unit,
        }
        for run in firsts
    ]
    return tell_apart(plain, parts)


def goal_suffix(info: CellInfo) -> str:
    """Return what to add to a title about a targeted attack."""
    target = info.origin.get("target")
    return "" if info.goal == "untargeted" else f", {info.goal}" if target is None else f", target {target}"


def tell_apart(
    titles: Sequence[str], parts: Sequence[Mapping[str, str]], keys: Sequence[Hashable] | None = None
) -> list[str]:
    """Add to titles that occur twice, or share a key, the parts in which they differ.

    >>> tell_apart(["M1", "M1", "M2"], [{"code": "a", "unit": "x"}, {"code": "b", "unit": "x"}, {"code": "c"}])
    ['M1, code a', 'M1, code b', 'M2']
    """
    keys = titles if keys is None else keys
    alike: dict[Hashable, list[Mapping[str, str]]] = {}
    for key, part in zip(keys, parts, strict=True):
        alike.setdefault(key, []).append(part)
    made = []
    for title, key, part in zip(titles, keys, parts, strict=True):
        differ = [word for word in part if len({each[word] for each in alike[key]}) > 1]
        made.append(title + "".join(f", {word} {part[word]}" for word in differ))
    return made


# Figures --------------------------------------------------------------------------------------------------------------


def band(changes: ArrayLike) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the k where the success rate jumps, 0 first, the rate from there on, and the ends of its 95 % interval.

    >>> [each.tolist() for each in band([3, 3, 7, np.inf])[:2]]
    [[0.0, 3.0, 7.0], [0.0, 0.5, 0.75]]
    """
    values = checked(changes)
    ks, counts = np.unique(values[np.isfinite(values)], return_counts=True)
    if not len(ks) or ks[0] > 0:
        ks, counts = np.insert(ks, 0, 0.0), np.insert(counts, 0, 0)
    found = np.cumsum(counts)
    low, high = np.array([wilson(int(count), len(values)) for count in found]).T
    return ks, found / len(values), low, high


def choose_ks(found: Iterable[Floats]) -> list[float]:
    """Return the numbers of changes that tables give success rates at: the quartiles of the strongest attacks.

    `found` has the changes of the strongest attack on each model. The quartiles are of all samples that it fools by a
    change, together, rounded to two digits.

    >>> choose_ks([np.array([0, 1, 4, 9, 30, np.inf])]), choose_ks([np.array([137.0] * 3)]), choose_ks([])
    ([1.0, 4.0, 9.0], [140.0], [1.0])
    """
    every = np.concatenate([np.zeros(0), *found])
    fooled = every[np.isfinite(every) & (every > 0)]
    if not len(fooled):
        return [1.0]
    quartiles = np.quantile(fooled, (0.25, 0.5, 0.75), method="inverted_cdf")
    return sorted({round(float(k), 1 - math.floor(math.log10(k))) for k in quartiles})


def table_ks(runs: Sequence[Run]) -> list[float]:
    """Return where tables and pages give success rates: what `choose_ks` says, and where there are proofs."""
    free = [run for run in runs if run.budget is None]
    strongest = [group.strongest.changes for group in groups(free, mix=True)] if free else []
    return sorted({*choose_ks(strongest), *proved_ks(runs)})


def proved_ks(runs: Iterable[Run]) -> list[float]:
    """Return the first and the last number of changes at which something is proved beyond the clean prediction.

    >>> proved_ks([])
    []
    """
    most = max((int(run.lower.max()) for run in runs if run.lower is not None), default=0)
    return sorted({1.0, float(most - 1)}) if most > 1 else []


def summary(run: Run, ks: Sequence[float], level: float | None = None) -> dict[str, float | None]:
    """Return the figures of a run; with `level` also the ends of the intervals of success rates and median.

    A run with a budget stops searching at its budget, so only the success rate there is known. Its other figures are
    None: they would be bounds.
    """
    figures: dict[str, float | None] = {"samples": len(run), "missing": run.info.rows - len(run)}
    wanted = {*map(float, ks), math.inf} | ({float(run.budget)} if run.budget is not None else set())
    for each in metrics.figures("store", sorted(wanted)):
        value = each.value(run.samples) if each.known(run.budget) else None
        figures[each.name] = None if value is None or math.isnan(value) else value
        if level is not None and (each.name == "median_l0" or each.k is not None):
            low, high = None, None
            if value is not None and each.kind == "share":
                low, high = wilson(round(value * len(run)), len(run), level)
            elif value is not None:
                low, high = median_interval(run.changes, level)
            figures |= {f"{each.name}_low": low, f"{each.name}_high": high}
    return figures


def records(
    runs: Sequence[Run], ks: Sequence[float] | None = None, mix: bool = False, level: float | None = None
) -> list[Record]:
    """Return what identifies each run, and its figures, with the same keys for all.

    Success rates are those at `ks`, by default the quartiles of the strongest attack, and at every budget.
    """
    if not mix:
        refuse_mixture(run.info for run in runs)
    budgets = [run.budget for run in runs if run.budget is not None]
    wanted = [*(table_ks(runs) if ks is None else ks), *budgets]
    return [
        {
            "cell": run.info.key,
            **{name: getattr(run.info, name) for name in IDENTITY},
            "unit": run.unit,
            **summary(run, wanted, level),
        }
        for run in runs
    ]


def refuse_mixture(infos: Iterable[CellInfo]) -> None:
    """Raise where cells differ in what a reader takes to be the same in one table.

    That is the version of an attack, the precision, the unit, the rows of a data set and the weights of a model. Steps,
    budgets, goals and seeds may differ: a table shows them.
    """
    every = list(infos)
    for name, among in ALIKE.items():
        parts: dict[str, list[CellInfo]] = {}
        for info in every:
            parts.setdefault(f"{among} {getattr(info, among)}" if among else "the cells", []).append(info)
        for part, members in parts.items():
            values: dict[str, list[str]] = {}
            for info in members:
                values.setdefault(str(getattr(info, name))[:16], []).append(info.key[:12])
            if len(values) > 1:
                shown = "; ".join(f"{value}: cells {few(keys)}" for value, keys in values.items())
                fix = "leave all but one out, or give mix=True (--mix) to have them side by side"
                raise MixtureError(f"{part}: more than one {name} in a table ({shown}); {fix}")


def few(items: Sequence[object]) -> str:
    """Return the first of many items as text, for an error message.

    >>> few([1, 2]), few(range(9)), few([])
    ('1, 2', '0, 1, 2, 3, 4 and 4 more', 'none')
    """
    more = f" and {len(items) - MAX_VALUES} more" if len(items) > MAX_VALUES else ""
    return (", ".join(map(str, items[:MAX_VALUES])) or "none") + more
