"""`sigmazero status`: show how far a run is."""

from collections import Counter

from sigmazero.cli import options
from sigmazero.cli.console import echo, show, warn


def status(store: options.StoreFile) -> None:
    """Show progress, failures and time left.

    \b
    Example:
      sigmazero status runs/small.db
    """
    from sigmazero.report.formats import LEFT
    from sigmazero.report.status import duration, running, status_rows, time_left
    from sigmazero.store.store import Store

    with Store(store) as opened:
        cells, writer, progress = opened.status(), opened.writer(), opened.progress()
    if cells:
        show(status_rows(cells), left=LEFT)
    left = time_left(cells)
    known = [value for value in left.values() if value is not None]
    states = Counter(one.state for one in cells)
    parts = [", ".join(f"{count} {state}" for state, count in states.items()) or "no cells"]
    if left:
        parts.append(f"time left {'at least ' if len(known) < len(left) else ''}{duration(sum(known))}")
    if cells:
        parts.append(f"{sum(one.done for one in cells)} of {sum(one.cell.rows for one in cells)} rows")
    echo("; ".join(parts))
    if writer is not None:
        echo(f"written by {writer}")
    if progress:
        echo(running(progress))
    for one in cells:
        if one.error is not None:
            warn(f"failed: {one.cell.attack} against {one.cell.model}: {one.error.strip().splitlines()[-1]}")
