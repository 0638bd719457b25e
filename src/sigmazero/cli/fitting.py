"""Tables on a screen that may be too narrow for them: no heading and no number is broken."""

from collections.abc import Sequence

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from sigmazero.report.formats import TextRow, rich_table

WIDE = 300
BESIDE = 12  # rows that are tried beside each other


def fits(table: Table, screen: Console) -> bool:
    """Whether a screen has room for a table with every cell on one line."""
    return Measurement.get(screen, screen.options.update(max_width=WIDE), table).maximum <= screen.width


def show_rows(rows: Sequence[TextRow], left: Sequence[str], screen: Console) -> None:
    """Print a table; on a narrow screen its rows stand beside each other, as many as there is room for.

    A word that is left out since it is the one above is then said again.
    """
    whole = rich_table(rows, left=left)
    if fits(whole, screen):
        screen.print(whole)
        return
    rest: list[TextRow] = []
    for row in rows:
        above = rest[-1] if rest else {}
        rest.append({name: text or (above.get(name, "") if name in left else "") for name, text in row.items()})
    while rest:
        sizes = range(min(len(rest), BESIDE), 1, -1)
        many = next((size for size in sizes if fits(rich_table(rest[:size], down=True), screen)), 1)
        screen.print(rich_table(rest[:many], down=True))
        rest = rest[many:]
