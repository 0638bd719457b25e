"""Build an example of a leaderboard from the data and models on this machine."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sigmazero import models
from sigmazero.bench.loader import ABSENT, Loader
from sigmazero.bench.plan import DataSpec
from sigmazero.board.change import add
from sigmazero.board.folder import Leaderboard, new_board
from sigmazero.core.domain import Unit
from sigmazero.core.messages import one_line
from sigmazero.models.zoo import entries
from sigmazero.report.formats import count

DIGITS, PHOTOS, TABLE = "mnist-5k-heldout", "cifar10", "adult-sample"
# Name, data, unit and columns of each board, and the models that stand on it.
BOARDS: tuple[tuple[str, str, Unit, tuple[int, ...], tuple[str, ...]], ...] = (
    ("digits", DIGITS, "feature", (1, 4, 10, 24), ("demo", "M1", "M2")),
    ("adult", TABLE, "feature", (1, 2, 3, 4), ("adult-mlp", "adult-mlp-robust")),
    ("photos-features", PHOTOS, "feature", (1, 4, 10, 24), ("resnet20", "prn18-linf")),
    ("photos-pixels", PHOTOS, "pixel", (1, 4, 10, 24), ("resnet20", "prn18-linf")),
)
BY = "the example"


def build_example(folder: Path, loader: Loader, *, rows: int = 20, version: str = "quick") -> Iterator[str]:
    """Make boards and add models; yield a line of text for each, also for those whose files are not here."""
    if (folder / "board.toml").exists():
        raise ValueError(f"{folder} has a leaderboard already; name another folder")
    on: dict[str, list[str]] = {}
    for name, source, unit, ks, known in BOARDS:
        # The first photos are the same whether all or a few are here; digits are sorted by class, so some are drawn.
        first = source == PHOTOS
        spec = DataSpec(name, source, f"0:{rows}") if first else DataSpec(name, source, limit=rows, seed=0)
        try:
            made = new_board(folder, name, spec, unit, ks)
        except ABSENT as error:
            yield f"board {name} is left out: {one_line(error)}"
            continue
        yield f"board {name}: {len(made)} rows of {source}"
        for model in known:
            on.setdefault(model, []).append(name)
    for model, names in on.items():
        try:
            models.load(model)
        except ABSENT as error:
            yield f"{model} is left out: {one_line(error)}"
            continue
        with tempfile.TemporaryDirectory() as place:
            card, page = Path(place) / "card.toml", entries()[model].source.partition(",")[0]
            keys = {"name": model, "model": model, "boards": names}
            keys |= {"code": page} if page.startswith("https://") else {}
            card.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()), encoding="utf-8")
            done = add(Leaderboard(folder), card, loader, by=BY, version=version, allow=["SZ014"])
        yield f"{model}: " + ", ".join(
            f"{change.board} {count(len(change.lowered), 'sample')} fooled" for change in done
        )
