"""`sigmazero report --bundle`: a leaderboard over the models of one or several stores."""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from sigmazero.bench.loader import Loader, clean_rows
from sigmazero.board.pages import zoo_card
from sigmazero.cli.console import wrote
from sigmazero.report.pages import leaderboard
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

LEAD = (
    "Robust accuracy: the share of samples that stay correct although some input values change. A sample counts as "
    "fooled if any of the attacks fooled it, and every success was verified on the model. A better attack can only "
    "lower these numbers."
)


def write_bundle(path: Path, stores: Sequence[Path], ks: Sequence[float] | None, mix: bool) -> None:
    """Write the site over all models of the stores."""
    with ExitStack() as opened:
        sources = [
            leaderboard.Source(store, describe, partial(clean_rows, store, loader=Loader("cpu")))
            for store in (opened.enter_context(Store(each)) for each in stores)
        ]
        leaderboard.write_site(path, leaderboard.TITLE, LEAD, leaderboard.boards(sources, lambda _: ks, mix))
    wrote(path / "index.html")


def describe(info: CellInfo) -> leaderboard.Card:
    """Return what is known of a cell's model: what the zoo says of its own models, how it was loaded, and its hash."""
    given = info.origin.get("model", {})
    # A file's name without its folders, which may tell who ran it.
    loaded = {
        key: str(given[key]).replace("\\", "/").rpartition("/")[2] for key in ("spec", "weights") if given.get(key)
    }
    words = {"spec": "loaded as", "weights": "weights file"}
    about = zoo_card(str(given.get("spec", "")))
    about |= {words[key]: text for key, text in loaded.items() if text != info.model}
    return leaderboard.Card({**about, "SHA-256 of the weights": info.model_sha256})
