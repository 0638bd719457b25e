"""`sigmazero suite`: how far attacks are from the truth."""

from typing import Annotated

import typer

from sigmazero.certifier import suite as exact
from sigmazero.certifier.digits import NAMES
from sigmazero.cli import options
from sigmazero.cli.console import out, say, tell
from sigmazero.report.formats import rich_table

Entrants = Annotated[
    str, typer.Option("--attacks", metavar="NAMES", help="Attacks, with spaces or commas between them; or all.")
]
OnNetworks = Annotated[
    str, typer.Option("--networks", metavar="NAMES", help=f"Of {', '.join(NAMES)}, with commas between them; or all.")
]
AllowedQueries = Annotated[
    int, typer.Option(metavar="N", help="Forwards and backwards that an attack may ask for an image.")
]
FirstImages = Annotated[int | None, typer.Option("--limit", metavar="N", help="The first N of the 200 images.")]


def suite(
    attacks: Entrants = "sigma-zero,sigma-swap",
    networks: OnNetworks = "all",
    queries: AllowedQueries = 1000,
    limit: FirstImages = None,
    seed: options.Seed = None,
) -> None:
    """Run attacks on six small networks whose fewest changes are proved, and print how far they are from the truth.

    \b
    Example:
      sigmazero suite --attacks sigma-zero sigma-swap --queries 500
      sigmazero suite --attacks all --networks mlp-sparse
    """
    methods = exact.entrants() if attacks == "all" else _listed(attacks)
    chosen = NAMES if networks == "all" else _listed(networks)
    rows, better = [], 0
    for method in methods:
        for score in exact.run(method, chosen, queries=queries, limit=limit, seed=seed or 0):
            rows.append(figures(score))
            better += score.better
        tell(f"{method}: done")
    say(f"the exact suite, about {queries} queries", style="bold")
    out().print(rich_table(rows, left=("attack", "network")))
    if better:
        say(f"{better} times an attack needs fewer changes than were known: the suite's open images can be narrowed")


def figures(score: exact.SuiteScore) -> dict[str, str]:
    """A row of the table."""
    gap = f"{100 * score.gap:.1f}"
    most = f"{100 * score.gap_most:.1f}"
    return {
        "attack": score.attack,
        "network": score.network,
        "gap %": gap if gap == most else f"{gap} to {most}",
        "optimal %": f"{100 * score.optimal:.1f}",
        "fooled %": f"{100 * score.asr:.1f}",
        "median": f"{score.median_l0:g}",
        "queries": f"{score.queries:.0f}",
    }


def _listed(words: str) -> list[str]:
    return [word for word in words.replace(",", " ").split() if word]
