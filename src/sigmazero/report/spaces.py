"""Describe features and their changes in the user's words: which count together, what they cost, from what to what."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from sigmazero.spaces import file as space_file
from sigmazero.spaces.space import MISSING, Columns
from sigmazero.store.facts import CellInfo

ARROW = " → "


@dataclass(frozen=True)
class NamedSite:
    """Features that count as one change; `labels` are what they are called, in a one-hot group the categories."""

    name: str
    members: tuple[int, ...]
    labels: tuple[str, ...]
    one_hot: bool = False
    cost: float = 1.0
    derived: bool = False  # computed from others by a law, so it is not counted

    @property
    def missing(self) -> bool:
        """Return whether it only says that a column of a table has no value: the column itself is another site."""
        return self.name.endswith(f"={MISSING}")


@dataclass(frozen=True)
class NamedChange:
    """A site that changed, with its value before and after."""

    site: NamedSite
    before: str
    after: str

    def __str__(self) -> str:
        """Return the change in a line: `age: 30 → 35`, `job: clerk → nurse`."""
        return f"{self.site.name}: {self.before}{ARROW}{self.after}"


def plain(value: float) -> str:
    """Return a number as people write it.

    >>> plain(35.0), plain(np.float32(0.1)), plain(1234567.0)
    ('35', '0.1', '1234567')
    """
    number = float(value)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.6g}"


def sites_of(names: Sequence[str], space: Columns | None) -> list[NamedSite]:
    """Return everything that counts as one change, in the order of the features."""
    found, grouped = [], set[int]()
    for group in () if space is None else space.groups:
        grouped |= set(group.members)
        labels = [names[k].removeprefix(f"{group.name}=") if group.one_hot else names[k] for k in group.members]
        cost = 1.0 if space is None else float(space.cost[group.members[0]])
        found.append(NamedSite(group.name, group.members, tuple(labels), group.one_hot, cost))
    for k, name in enumerate(names):
        if k not in grouped:
            cost, derived = (1.0, False) if space is None else (float(space.cost[k]), k in space.laws.at)
            found.append(NamedSite(f"{name} (follows)" if derived else name, (k,), (name,), False, cost, derived))
    return sorted(found, key=lambda site: site.members)


def changes_of(sites: Sequence[NamedSite], before: Any, after: Any) -> Iterator[NamedChange]:
    """Return what differs between two flat inputs, site by site and in words."""
    moved = set(np.flatnonzero(np.asarray(before) != np.asarray(after)).tolist())
    for site in sites:
        if moved.isdisjoint(site.members):
            continue
        pairs = [(label, before[k], after[k]) for label, k in zip(site.labels, site.members, strict=True)]
        if site.one_hot:
            old, new = (site.labels[int(np.argmax([row[k] for k in site.members]))] for row in (before, after))
            yield NamedChange(site, old, new)
        elif len(pairs) == 1:
            yield NamedChange(site, plain(pairs[0][1]), plain(pairs[0][2]))
        else:
            some = [(label, plain(old), plain(new)) for label, old, new in pairs if old != new]
            yield NamedChange(site, *(", ".join(f"{each[0]} {each[at]}" for each in some) for at in (1, 2)))


def columns(info: CellInfo) -> Columns | None:
    """Return the space of a cell for its inputs; None where it has none, or the inputs' shape is unknown."""
    text, shape = info.space_text, info.about.get("shape")
    return None if text is None or shape is None else _columns(text, tuple(shape))


@lru_cache(maxsize=16)
def _columns(text: str, shape: tuple[int, ...]) -> Columns:
    return space_file.parse(text, "the stored space").columns(shape)


def is_table(info: CellInfo) -> bool:
    """Return whether the inputs of a cell are rows of a table: flat, or with names for their features."""
    return len(info.about.get("shape", (0, 0))) == 1 or "names" in info.about


def named_sites(info: CellInfo) -> list[NamedSite]:
    """Return everything that counts as one change in a cell that knows the shape of its inputs."""
    features = int(np.prod(info.about["shape"]))
    return sites_of(info.about.get("names") or [f"feature {k}" for k in range(features)], columns(info))
