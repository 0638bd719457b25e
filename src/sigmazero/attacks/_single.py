"""All single changes of a problem: what `corner` asks about one after the other."""

from itertools import product
from typing import NamedTuple

import torch
from torch import Tensor

from sigmazero.attacks._budget import by_site
from sigmazero.core import ops
from sigmazero.core.problem import Problem

MOST = 4096  # legal values of a feature; of more the ends alone are tried
WHOLE = 4  # features of a site whose ends are tried in every combination; of a larger one all lower, then all upper
JOIN = 8  # features that are tried as the first to join in where a change breaks a rule
LOWER, UPPER, VALUE = 0, 1, 2


class Moves(NamedTuple):
    """Their sites (M,), and for each feature of a site (features, M) an end of the box, or a value of the user's.

    Where rules tie a site to others, a change is there once more for each feature that may join in first: `turn` (M,)
    numbers these from 1, and is 0 where none joins in.
    """

    site: Tensor
    kind: Tensor
    value: Tensor
    turn: Tensor


def moves(p: Problem) -> Moves:
    """The single changes of a problem, whether possible for a sample or not."""
    sites, kinds, values, turns = [], [], [], []
    depth = p.features // p.sites if p.form is None or p.form.layout is None else len(p.form.layout.index)
    for site in range(p.sites):
        for (kind, value), turn in product(_changes(p, site, depth), range(1 + _partners(p, site))):
            sites.append(site)
            kinds.append(kind + [LOWER] * (depth - len(kind)))
            values.append(value + [0.0] * (depth - len(value)))
            turns.append(turn)
    device = p.x.device
    return Moves(
        torch.tensor(sites, dtype=torch.int64, device=device),
        torch.tensor(kinds, dtype=torch.int64, device=device).view(-1, depth).T,
        torch.tensor(values, dtype=torch.float64, device=device).view(-1, depth).T,
        torch.tensor(turns, dtype=torch.int64, device=device),
    )


def _members(p: Problem, site: int) -> list[int]:
    """The flat features of a site."""
    if p.form is not None and p.form.layout is not None:
        found: list[int] = p.form.layout.index[:, site][~p.form.layout.pad[:, site]].tolist()
        return found
    return list(range(site, p.features, p.sites))


def _partners(p: Problem, site: int) -> int:
    """How many features might join in to keep the rules of a site."""
    if p.form is None or p.form.keeper is None:
        return 0
    return min(JOIN, p.form.keeper.partners(_members(p, site)))


def keys(p: Problem, turn: Tensor) -> Tensor:
    """In which order features join in, (..., features of the problem's inputs), by whose turn (...) it is."""
    assert p.form is not None
    assert p.form.keeper is not None
    order = p.form.keeper.order
    first = torch.remainder(order - (turn[..., None] - 1), JOIN + 1) / (JOIN + 1)
    found = torch.where((turn[..., None] == 0) | (order < 0), torch.inf, first)
    return p.form.inside(found.flatten(0, -2)).view(*turn.shape, *p.x.shape[1:])


def _changes(p: Problem, site: int, depth: int) -> list[tuple[list[int], list[float]]]:
    """The changes of one site: for each feature an end, or a value."""
    form = p.form
    members, one_hot = _members(p, site), False
    if form is not None and form.layout is not None:
        one_hot = form.layout.one_hot is not None and bool(form.layout.one_hot[site])
    n = len(members)
    if form is not None and form.keeper is not None and members[0] in form.keeper.laws.at:
        return []  # it follows from others
    if one_hot:
        return [([VALUE] * n, [float(k == chosen) for k in range(n)]) for chosen in range(n)]
    choices = form.choices(members[0], MOST) if form is not None and n == 1 else None
    if choices is not None:
        return [([VALUE], [float(value)]) for value in choices]
    ends = product((LOWER, UPPER), repeat=n) if n <= WHOLE else [(end,) * n for end in (LOWER, UPPER)]
    return [(list(end), [0.0] * n) for end in ends]


def inner(p: Problem, every: Moves) -> Tensor:
    """The values of all changes in units of the box: (rows, features of a site, M)."""
    shape = (len(p), len(every.kind), len(every.site))
    where = every.site.expand(shape)
    lower, upper = (by_site(p, v).gather(2, where) for v in (p.lower, p.upper))
    ends = torch.where(every.kind == LOWER, lower, upper)
    if p.form is None or p.outer_lower is None or p.outer_upper is None:
        return ends
    offset, width = ops.scale(p.outer_lower.flatten(1), p.outer_upper.flatten(1))
    offset, width = (by_site(p, p.form.inside(v)).gather(2, where) for v in (offset, width))
    inside = (every.value - offset.double()) / width.double().clamp(min=torch.finfo(torch.float64).tiny)
    return torch.where(every.kind == VALUE, inside.to(ends.dtype), ends)
