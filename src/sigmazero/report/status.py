"""Show the progress of a run: a line per cell, and the time left."""

from typing import Any

from sigmazero.report.formats import number
from sigmazero.store.store import CellStatus

ORDER = ("failed", "running", "begun", "waiting", "done")


def time_left(cells: list[CellStatus]) -> dict[str, float | None]:
    """Return the seconds each unfinished cell needs, by its own speed or that of the same attack; None if unknown."""
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
    """Return one line per cell, unfinished ones first."""
    left = time_left(cells)
    return [
        {
            "state": one.state,
            "model": one.cell.model,
            "data": one.cell.dataset,
            "attack": one.cell.attack,
            "steps": str(one.cell.steps),
            "budget": number(one.cell.budget) + (" pixels" if one.cell.parameters.get("group") == "pixel" else ""),
            "rows": f"{one.done}/{one.cell.rows}",
            "time left": "" if one.cell.key not in left else duration(left[one.cell.key]),
        }
        for one in sorted(cells, key=lambda one: ORDER.index(one.state))
    ]


def running(progress: dict[str, Any]) -> str:
    """Return a line on the run at work: its cell, its speed and the time left."""
    speed, left = progress.get("speed"), progress.get("left")
    fast = "no rows yet" if speed is None else f"{speed:.3g} rows per second"
    done = f"{progress.get('rows', 0)} of {progress.get('of', 0)} rows"
    return f"running {progress.get('cell', '')}: {done}; {fast}; time left {duration(left)}"


def duration(seconds: float | None) -> str:
    """Return a number of seconds in words.

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
