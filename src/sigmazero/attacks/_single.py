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
LOWER, UPPER, VALUE = 0, 1, 2


class Moves(NamedTuple):
    """Their sites (M,), and for each feature of a site (features, M) an end of the box, or a value of the user's."""

    site: Tensor
    kind: Tensor
    value: Tensor


def moves(p: Problem) -> Moves:
    """The single changes of a problem, whether possible for a sample or not."""
    sites, kinds, values = [], [], []
    depth = p.features // p.sites if p.form is None or p.form.layout is None else len(p.form.layout.index)
    for site in range(p.sites):
        for kind, value in _changes(p, site, depth):
            sites.append(site)
            kinds.append(kind + [LOWER] * (depth - len(kind)))
            values.append(value + [0.0] * (depth - len(value)))
    device = p.x.device
    return Moves(
        torch.tensor(sites, dtype=torch.int64, device=device),
        torch.tensor(kinds, dtype=torch.int64, device=device).view(-1, depth).T,
        torch.tensor(values, dtype=torch.float64, device=device).view(-1, depth).T,
    )


def _changes(p: Problem, site: int, depth: int) -> list[tuple[list[int], list[float]]]:
    """The changes of one site: for each feature an end, or a value."""
    form = p.form
    members, one_hot = list(range(depth)), False
    if form is not None and form.layout is not None:
        members = form.layout.index[:, site][~form.layout.pad[:, site]].tolist()
        one_hot = form.layout.one_hot is not None and bool(form.layout.one_hot[site])
    elif depth == 1:
        members = [site]
    n = len(members)
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
