"""Tables of a store for people: the figures of `measure` as text, and how far a run is."""

from collections.abc import Collection

from sigmazero.report import measure
from sigmazero.report.tables.text import number, percent
from sigmazero.store.facts import CellInfo, Facts
from sigmazero.store.store import CellStatus, Store

SETTINGS = ("data", "steps", "budget", "goal", "unit", "seed", "precision", "samples")
LEFT = ("model", "data", "attack", "goal", "unit", "state", "precision")
ORDER = ("failed", "running", "begun", "waiting", "done")


def load(store: Store, keys: Collection[str] | None = None) -> list[tuple[CellInfo, Facts]]:
    """The cells that have facts, without perturbations: enough for every figure."""
    chosen = [info for info in store.cells() if keys is None or info.key in keys]
    pairs = [(info, store.facts(info.key, perturbations=False)) for info in chosen]
    return [(info, facts) for info, facts in pairs if len(facts)]


def figures(rows: list[measure.TableRow]) -> tuple[str, list[dict[str, str]]]:
    """The rows of `measure.table`, ready to print, and a line with the settings that are the same in all of them."""
    asked = [name for name in (rows[0] if rows else {}) if name.startswith("asr_") and name[4:].isdigit()]
    shown = [
        {
            "model": str(row["model"]),
            "data": str(row["dataset"]),
            "attack": str(row["attack"]),
            "steps": str(row["steps"]),
            "budget": _text(row["budget"]),
            **{name: str(row[name]) for name in ("goal", "unit", "seed", "precision")},
            "samples": f"{row['samples']}" + (f" of {_sum(row)}" if row["missing"] else ""),
            "clean": _share(row["clean_accuracy"]),
            **{f"ASR {name[4:]}": _share(row[name]) for name in asked},
            "ASR ∞": _share(row["asr_inf"]),
            "median": _text(row["median_l0"], 1),
            "mean": _text(row["mean_l0"], 2),
            "kqueries": _text(row["kqueries"], 3),
            "s/sample": _text(row["seconds"], 4),
        }
        for row in rows
    ]
    same = [name for name in SETTINGS if len({row[name] for row in shown}) == 1]
    caption = ", ".join(f"{name} {shown[0][name]}" for name in same if shown[0][name] != "–")
    return caption, [{name: text for name, text in row.items() if name not in same} for row in shown]


def _sum(row: measure.TableRow) -> int:
    samples, missing = row["samples"], row["missing"]
    assert isinstance(samples, int | float)
    assert isinstance(missing, int | float)
    return int(samples + missing)


def _text(value: str | float | None, decimals: int = 0) -> str:
    return "–" if value is None else value if isinstance(value, str) else number(float(value), decimals)


def _share(value: str | float | None) -> str:
    return "–" if value is None or isinstance(value, str) else percent(float(value))


def time_left(cells: list[CellStatus]) -> dict[str, float | None]:
    """Seconds each unfinished cell still needs, by its own speed or that of the same attack; None if unknown."""
    known = [cell for cell in cells if cell.done]

    def pace(cell: CellStatus) -> float | None:
        alike = [cell] if cell.done else [other for other in known if other.cell.attack == cell.cell.attack]
        rows = sum(other.done for other in alike)
        return sum(other.seconds for other in alike) / rows if rows else None

    left: dict[str, float | None] = {}
    for cell in cells:
        if cell.done < cell.cell.rows:
            each = pace(cell)
            left[cell.cell.key] = None if each is None else each * (cell.cell.rows - cell.done)
    return left


def status_rows(cells: list[CellStatus]) -> list[dict[str, str]]:
    """One line per cell, unfinished ones first."""
    left = time_left(cells)
    return [
        {
            "state": one.state,
            "model": one.cell.model,
            "data": one.cell.dataset,
            "attack": one.cell.attack,
            "steps": str(one.cell.steps),
            "budget": _text(one.cell.budget),
            "rows": f"{one.done}/{one.cell.rows}",
            "time left": "" if one.cell.key not in left else duration(left[one.cell.key]),
        }
        for one in sorted(cells, key=lambda one: ORDER.index(one.state))
    ]


def duration(seconds: float | None) -> str:
    """Seconds as people say them.

    >>> duration(3.2), duration(90), duration(7300), duration(None)
    ('3 s', '1 min 30 s', '2 h 1 min', 'unknown')
    """
    if seconds is None:
        return "unknown"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
