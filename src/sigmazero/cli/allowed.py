"""What --space, --bounds and --mask say, and changes in words."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from sigmazero.bench.constraints import DEFAULT_BOUNDS, Allowed
from sigmazero.cli.console import say
from sigmazero.core.messages import class_name
from sigmazero.core.result import Outcome, Result
from sigmazero.data import Rows
from sigmazero.report.spaces import changes_of, sites_of
from sigmazero.spaces.space import Space

SHOWN = 5  # rows whose changes are printed
PER_ROW = 6  # changes that are printed of one


def allowed(
    rows: Rows, space: Path | None, bounds: tuple[float, float] | None = None, mask: Path | None = None
) -> Allowed:
    """What may change in some rows: what the options say, else what the data says."""
    for name, given in (("--bounds", bounds), ("--mask", mask)):
        if space is not None and given is not None:
            raise ValueError(f"{name} and --space are both given; say in {space} what may change, and leave {name} out")
    said = None if space is None else read_space(space)
    found = Allowed(DEFAULT_BOUNDS if bounds is None else bounds, None if mask is None else _mask(mask), said)
    return found.on(rows) if bounds is None else found  # a box that is said holds, also the usual one


def read_space(path: Path) -> Space:
    """The space in a file."""
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; sigmazero space draft DATA prints one to begin with")
    return Space.from_toml(path)


def _mask(path: Path) -> Tensor:
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; it should hold one boolean per input value")
    try:
        read = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{path}: not an array of booleans ({error}); write it with numpy.save") from None
    if not isinstance(read, np.ndarray) or read.dtype != np.bool_:
        held = read.dtype if isinstance(read, np.ndarray) else "several arrays"
        raise ValueError(f"{path}: holds {held}; give booleans, true where a value may change")
    return torch.from_numpy(read)


def show_changes(result: Result, rows: Rows, space: Space | None) -> None:
    """Print what was changed in the first samples that were fooled, by name, where the inputs are rows of a table."""
    names = rows.names or (None if space is None else space.names)
    if rows.images.ndim > 2 and names is None:
        return
    shape = rows.images.shape[1:]
    columns = None if space is None else space.columns(shape)
    sites = sites_of(names or [f"feature {k}" for k in range(shape.numel())], columns)
    found = (result.outcome.cpu() == Outcome.FOUND).nonzero().squeeze(1).tolist()
    for place in found[:SHOWN]:
        before, after = rows.images[place].flatten().tolist(), result.x_adv[place].flatten().cpu().tolist()
        changes = [str(change) for change in changes_of(sites, before, after)]
        more = f", and {len(changes) - PER_ROW} more" if len(changes) > PER_ROW else ""
        old, new = (
            class_name(rows.classes, int(each[place]), "class ")
            for each in (result.clean_prediction, result.prediction)
        )
        say(f"row {int(rows.ids[place])}, {old} → {new}: {', '.join(changes[:PER_ROW])}{more}")
    if len(found) > SHOWN:
        say(f"... and {len(found) - SHOWN} rows more")
