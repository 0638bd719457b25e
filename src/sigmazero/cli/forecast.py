"""What a plan would run, and how long that would take here."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from sigmazero.bench.cells import expand
from sigmazero.bench.forecast import Forecast, forecast
from sigmazero.bench.loader import Loader
from sigmazero.bench.plan import Question
from sigmazero.cli.console import out, say
from sigmazero.cli.fitting import show_rows
from sigmazero.cli.plans import show_missing
from sigmazero.report.formats import LEFT, count, number
from sigmazero.report.status import duration
from sigmazero.store.store import Store


def show_forecast(questions: Sequence[Question], loader: Loader, path: Path) -> None:
    """Print what would be run, and how long it would take here."""
    cells, missing = expand(questions, loader)
    with Store(path) if path.is_file() else nullcontext() as opened:
        coming = forecast(cells, loader, opened)
    if coming:
        show_rows(forecast_rows(coming), LEFT, out())
    left, seconds = sum(one.left for one in coming), sum(one.seconds for one in coming)
    todo = f"{count(len(coming), 'cell')}, {count(left, 'row')} left"
    say(f"{todo}, about {duration(seconds)} on {loader.device}; nothing was run")
    show_missing(missing)


def forecast_rows(coming: Sequence[Forecast]) -> list[dict[str, str]]:
    """One line per cell."""
    return [
        {
            "model": one.cell.info.model,
            "data": one.cell.info.dataset,
            "attack": one.cell.info.attack,
            "budget": number(one.cell.info.budget),
            "rows": f"{one.done}/{one.cell.info.rows}",
            "queries left": f"{one.queries:,}",
            "time left": duration(one.seconds) + ("" if one.measured or not one.left else ", a guess"),
        }
        for one in coming
    ]
