"""`sigmazero report --bundle`: a leaderboard over the models of one or several stores."""

from collections.abc import Sequence
from pathlib import Path

from sigmazero import models
from sigmazero.cli.console import wrote
from sigmazero.report import findings as doubts
from sigmazero.report import runs
from sigmazero.report.site.folder import write_site
from sigmazero.report.site.old.measure import Measured, fitting, load
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store


def write_bundle(path: Path, stores: Sequence[Path], ks: Sequence[float] | None, mix: bool) -> None:
    """Write the site over all models of the stores."""
    cells: list[Measured] = []
    told: doubts.CellFindings = {}
    for store in stores:
        with Store(store) as opened:
            here = load(opened)
            cells += here
            told |= doubts.findings(opened, runs.load(opened))
    write_site(
        path, cells, lambda info: {**describe(info), **doubted(info, cells, told)}, ks=ks or fitting(cells), mix=mix
    )
    wrote(path / "index.html")


def describe(info: CellInfo) -> dict[str, str]:
    """What the zoo knows of a cell's model; nothing of a model of one's own, which may bear the same name."""
    entry = models.find(str(info.origin.get("model", {}).get("spec", "")))
    if entry is None:
        return {}
    told = {
        "model": entry.title,
        "architecture": entry.architecture,
        "parameters": f"{entry.parameters:,}" if entry.parameters else "",
        "trained on": entry.dataset,
        "trained against": entry.threat_model,
        "RobustBench": entry.robustbench or "",
        "published at": entry.source,
        "note": entry.note,
    }
    return {name: text for name, text in told.items() if text}


def doubted(info: CellInfo, cells: Sequence[Measured], told: doubts.CellFindings) -> dict[str, str]:
    """What makes the figures of a cell's model doubtful, for its card; nothing if all is well."""
    same = (info.model, info.model_sha256)
    mine = {one.key: told.get(one.key, []) for one, _ in cells if (one.model, one.model_sha256) == same}
    found = doubts.errors(mine)
    return {"doubtful": "; ".join(f"{each.code}: {each.title}" for each in found)} if found else {}
