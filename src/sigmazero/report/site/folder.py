"""The site as a folder: it appears whole, and takes the place of an older site and of nothing else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from sigmazero.core import faults
from sigmazero.core.metrics import DEFAULT_KS
from sigmazero.report.site import index, model
from sigmazero.report.site.old.measure import Measured
from sigmazero.report.site.ranking import ModelId, boards, unique
from sigmazero.store.facts import CellInfo

MARKER = "sigmazero-site.json"
TITLE = "Robustness to sparse changes"
Describe = Callable[[CellInfo], Mapping[str, str]]


def write_site(
    path: Path, cells: Sequence[Measured], describe: Describe, *, ks: Sequence[float] = DEFAULT_KS, mix: bool = False
) -> int:
    """Write the site and return the number of models on it.

    `describe` tells what is known of the model of a cell besides what the store holds.
    """
    refuse_foreign(path)
    pages = make_pages(cells, describe, ks=ks, mix=mix)
    place_site(path, pages)
    return len(pages) - 1


def place_site(path: Path, pages: Mapping[str, str]) -> None:
    """Write pages, by their names in the folder, in place of an older site."""
    refuse_foreign(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.mkdir()
        for name, text in pages.items():
            (part / name).parent.mkdir(exist_ok=True)
            (part / name).write_text(text, encoding="utf-8")
        about = {"sigmazero": version("sigmazero"), "files": sorted(pages)}
        (part / MARKER).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        faults.reach("site.written")
        _put(part, path)
        faults.reach("site.placed")
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _put(part: Path, path: Path) -> None:
    """Exchange the old site for the new one; the old one comes back if that fails."""
    if not path.exists():
        os.replace(part, path)
        return
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    os.replace(path, old)
    faults.reach("site.moved")
    try:
        os.replace(part, path)
    except OSError:
        os.replace(old, path)
        raise
    shutil.rmtree(old)


def refuse_foreign(path: Path) -> None:
    """Raise unless the folder is absent, empty, or an older site that holds nothing else."""
    if path.is_symlink():
        raise ValueError(f"{path} is a link; name the folder itself")
    if not path.exists():
        return
    if not path.is_dir():
        raise ValueError(f"{path} is a file; name a folder")
    held = {file.relative_to(path).as_posix() for file in path.rglob("*") if not file.is_dir()}
    if not held:
        return
    if MARKER not in held:
        raise ValueError(f"{path} has files that are no site made by sigmazero; name another folder")
    try:
        made = set(json.loads((path / MARKER).read_text(encoding="utf-8"))["files"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path / MARKER} is damaged; remove the folder, or name another") from error
    if extra := sorted(held - made - {MARKER}):
        names = ", ".join(extra[:3]) + (f" and {len(extra) - 3} more" if len(extra) > 3 else "")
        raise ValueError(f"{path} also has {names}, which would be lost; move that away, or name another folder")


def make_pages(
    cells: Sequence[Measured], describe: Describe, *, ks: Sequence[float] = DEFAULT_KS, mix: bool = False
) -> dict[str, str]:
    """The text of every page by its name in the folder."""
    found = boards(unique(cells), mix)
    asked = sorted(set(ks))
    models: dict[ModelId, CellInfo] = {s.model: s.cells[0][0] for board in found for s in board.standings}
    cards = {one: card(info, describe(info)) for one, info in models.items()}
    pages = {"index.html": index.page(TITLE, found, cards, asked)}
    for one in models:
        on = [board for board in found if any(standing.model == one for standing in board.standings)]
        pages[f"models/{one.slug}.html"] = model.page(one, on, cards[one], asked, mix)
    return pages


def card(info: CellInfo, known: Mapping[str, str]) -> dict[str, str]:
    """What there is to know of a model: what is told, then how it was loaded, and the hash of its weights."""
    origin = info.origin.get("model", {})
    # The file's name without its folders: these may tell who ran it.
    loaded = {
        name: str(origin[name]).replace("\\", "/").rpartition("/")[2]
        for name in ("spec", "weights")
        if origin.get(name)
    }
    words = {"spec": "loaded as", "weights": "weights file"}
    told = {words[name]: text for name, text in loaded.items() if text != info.model}
    return {**known, **told, "SHA-256": info.model_sha256}
