"""`sigmazero status`: how far a run is."""

from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from sigmazero.bench.cells import Missing, expand
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import read_plan
from sigmazero.cli import options
from sigmazero.cli.console import out, say, tell
from sigmazero.cli.plans import PlanPrecision, PlanStore, Trial, show_missing, store_path, trusted
from sigmazero.report.formats import LEFT, rich_table
from sigmazero.report.status import duration, running, status_rows, time_left
from sigmazero.store.store import CellStatus, Store


def status(
    source: Annotated[Path, typer.Argument(metavar="STORE|PLAN", help="A store (.db), or a plan (.toml).")],
    store: PlanStore = None,
    limit: Trial = None,
    device: options.DeviceName = "auto",
    precision: PlanPrecision = None,
    model_dir: options.ModelDir = None,
    data_dir: options.DataDir = None,
    trust_code: options.TrustCode = False,
) -> None:
    """Show which cells are done, running, failed or missing, and the time left.

    Of a store it shows the cells noted there; of a plan also those whose weights or data are absent. To know the cells
    of a plan its models are loaded: code that it names runs only if you trust it. Cells that leave their numbers to
    torch are others on a GPU than on a CPU: --device says which are meant.

    \b
    Example:
      sigmazero status runs/small.db
      sigmazero status experiments/small.toml
    """
    missing: list[Missing] = []
    if source.suffix == ".toml":
        asked = read_plan(source).override(limit=limit, precision=precision)
        trust = trusted(asked, options.trust(trust_code))
        loader = Loader("cpu", model_dir, data_dir, trust, runs_on=options.device(device, here=False))
        planned, missing = expand(asked.questions, loader)
        path = store_path(asked, store, limit)
        with Store(path) if path.is_file() else nullcontext() as opened:
            known = {} if opened is None else {one.cell.key: one for one in opened.status()}
            writer = None if opened is None else opened.writer()
            progress = {} if opened is None else opened.progress()
        cells = [known.get(c.info.key, CellStatus(c.info, 0, 0.0, None, "waiting")) for c in planned]
    else:
        with Store(source) as opened:
            cells, writer = opened.status(), opened.writer()
            progress = opened.progress()
    show(cells, missing, writer)
    if progress:
        say(running(progress))


def show(cells: list[CellStatus], missing: list[Missing], writer: str | None) -> None:
    """Print the cells and a line of totals."""
    if cells:
        out().print(rich_table(status_rows(cells), left=LEFT))
    counts = Counter(one.state for one in cells)
    left = [value for value in time_left(cells).values() if value is not None]
    parts = [f"{count} {state}" for state, count in counts.items()]
    if missing:
        parts.append(f"{sum(one.questions for one in missing)} missing")
    unknown = len(time_left(cells)) > len(left)
    when = "" if not time_left(cells) else f"; time left {'at least ' if unknown else ''}{duration(sum(left))}"
    rows = f"; {sum(one.done for one in cells)} of {sum(one.cell.rows for one in cells)} rows"
    say(f"{', '.join(parts)}{when}{rows if cells else ''}")
    if writer is not None:
        say(f"written by {writer}")
    for one in cells:
        if one.error is not None:
            tell(f"failed: {one.cell.attack} against {one.cell.model}: {one.error.strip().splitlines()[-1]}")
    show_missing(missing)
