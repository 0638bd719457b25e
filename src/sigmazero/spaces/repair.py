"""Repair of points that break a rule, and derived features.

A point that breaks a rule is led back: changed features that take part in the rule give way, the smallest changes
first, by as much as is needed and to legal values. What is unchanged stays so, unless an attack names features that
may join in, or nothing else keeps the rules. Rules may form a chain: what moved for one of them stays for the others,
and where one order of the rules fails the reverse is tried. Where nothing does, all that the rule ties together goes
back to the clean values, which keep it. Derived features are computed anew after that.

Sums are in float64. A rule holds if it holds but for rounding: nothing for whole numbers, a last digit for other
finite values, 16 of them, at the feature's range, for real values, which a search in other units rounds again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from sigmazero.core.domain import scale
from sigmazero.spaces.rules import Floats, Laws
from sigmazero.spaces.space import Columns

if TYPE_CHECKING:
    from sigmazero.spaces.compiled import CompiledSpace

DIGITS = 16.0  # last digits by which a real value may be off
EXACT = 1e-12  # part of a sum's terms by which float64 may be off
ROUNDS = 3  # times that features join in, in each order of the rules
LATER = 2.0  # unchanged features join in after changed ones; keys of attacks are below this


class Around(NamedTuple):
    """Clean inputs and ends in the user's units, shaped to fit points: (..., features)."""

    x: Tensor
    lower: Tensor
    upper: Tensor


@dataclass(frozen=True, eq=False)
class RuleRepair:
    """The laws of a space as tensors over flat features.

    derived  which features are derived                loose  those that a repair may move: neither these nor categories
    aims     sums over features that are not derived, of every rule and then of every derived feature; `shift` is what
             is to be added to them
    rules, sums  rules and derived features as declared; `ties` marks what goes back with each of them
    digits   by how many last digits the values of each feature may be off; `reach` is how large they are
    exact    which derived features are whole numbers
    when     sums of the conditions, over features that are not derived; `when_shift` is what is to be added to them
    order    the place of each feature in the first rule that it takes part in, -1 where it is in none
    """

    laws: Laws
    shape: tuple[int, ...]
    exact: tuple[bool, ...]
    derived: Tensor
    loose: Tensor
    aims: Tensor
    shift: Tensor
    rules: Tensor
    least: Tensor
    most: Tensor
    sums: Tensor
    ties: Tensor
    digits: Tensor
    reach: Tensor
    order: Tensor
    when: Tensor
    when_shift: Tensor
    when_least: Tensor
    when_most: Tensor

    @classmethod
    def make(cls, columns: Columns, shape: tuple[int, ...], device: torch.device) -> RuleRepair | None:
        """Return None where nothing ties features to each other."""
        laws = columns.laws
        if not laws:
            return None
        n = len(columns.kind)
        derived, fixed = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        derived[list(laws.at)] = True
        for group in columns.groups:
            fixed[list(group.members)] |= group.one_hot
        aims, shift, when, when_shift = _substituted(laws)
        ends = np.stack([np.abs(columns.lower), np.abs(columns.upper)])
        reach = np.where(np.isfinite(ends), ends, 0).max(0)
        for row, k in enumerate(laws.at):
            reach[k] = max(reach[k], np.abs(aims[len(laws.rules) + row]) @ reach)
        whole = (columns.per == 1) & (columns.times == np.round(columns.times))
        some = (columns.per > 0) | np.isin(np.arange(n), list(columns.tables))
        order = np.full(n, -1)
        for row in aims[::-1]:
            at = np.flatnonzero(row)
            order[at] = np.arange(len(at))
        arrays = (derived, ~(derived | fixed), aims, shift, laws.rules, laws.least, laws.most, laws.sums)
        ties = _ties(columns, np.abs(aims) + np.concatenate([np.abs(when), np.zeros((len(laws.at), n))]))
        more = (ties, np.where(whole, 0.0, np.where(some, 1.0, DIGITS)), reach, order)
        conditions = (when, when_shift, laws.when_least, laws.when_most)
        tensors = (torch.as_tensor(array, device=device) for array in (*arrays, *more, *conditions))
        return cls(laws, shape, tuple(bool(whole[k]) for k in laws.at), *tensors)

    def derive(self, flat: Tensor, x: Tensor) -> Tensor:
        """Compute the derived features of points (..., features); values of the clean input keep its bits."""
        for row, k in enumerate(self.laws.at):
            value, off = self._value(row, flat.detach())
            value, clean = value.detach(), x[..., k]
            near = (value - clean.double()).abs() <= off + self._rounding(row, clean)
            flat = torch.cat(
                [flat[..., :k], torch.where(near, clean, value.to(flat.dtype))[..., None], flat[..., k + 1 :]], -1
            )
        return flat

    def through(self, point: Tensor) -> Tensor:
        """Return the same points, through which gradients also reach what derived features follow from."""
        flat = point.flatten(1)
        for row, k in enumerate(self.laws.at):
            value = self._value(row, flat)[0]
            if value.requires_grad:
                own = flat[:, k].detach() + (value - value.detach()).to(flat.dtype)
                flat = torch.cat([flat[:, :k], own[:, None], flat[:, k + 1 :]], -1)
        return flat.view_as(point)

    def broken(self, flat: Tensor, around: Around, space: CompiledSpace) -> Tensor:
        """Return which rules points break, and which derived values are illegal: (..., rules and derived)."""
        values = flat.double()
        n = len(self.laws.rules)
        found = []
        if n:
            total, off = torch.inner(values, self.rules), self._slack(flat, self.rules)
            found.append(~((total <= self.most + off) & (total >= self.least - off)) & self._applies(flat))
        for row, k in enumerate(self.laws.at):
            value, off = self._value(row, flat.detach())
            own, off = values[..., k], off + self._rounding(row, flat[..., k])
            good = ((value - own).abs() <= off) & (own <= around.upper[..., k] + off)
            good = good & (own >= around.lower[..., k] - off)
            legal = (space.values.nearest(flat)[..., k] - own).abs() <= off + self._rounding(row, flat[..., k])
            found.append(~(good & (legal | (flat[..., k] == around.x[..., k])))[..., None])
        return torch.cat(found, -1)

    def apply(self, flat: Tensor, around: Around, space: CompiledSpace, keys: Tensor | None = None) -> Tensor:
        """Repair points (..., features) that are legal but for rules.

        `keys` name features that may join in where a rule is broken, those of the smallest first; infinity is for
        those that may not. Nothing is looked at on a device.
        """
        host = not flat.is_cuda
        found = self.derive(flat, around.x)
        if host and not bool(self.broken(found, around, space).any()):
            return found
        if keys is not None:
            flat = self._joined(flat, around, space, keys)
        led = flat
        for outward in (False, True, False):  # back to the clean values first; beyond them only if that was not enough
            for row in range(len(self.aims)):
                led = self._aim(row, led, around, space, None, outward)
        found = self.derive(led, around.x)
        bad = self.broken(found, around, space).any(-1, keepdim=True)
        if not host or bool(bad.any()):
            free = torch.where(space.touched(flat != around.x), torch.inf, torch.zeros_like(flat))
            other = self.derive(self._joined(flat, around, space, free), around.x)
            found = torch.where(bad & ~self.broken(other, around, space).any(-1, keepdim=True), other, found)
        back = self.broken(found, around, space).to(self.ties.dtype) @ self.ties > 0
        found = self.derive(torch.where(back, around.x, found), around.x)
        good = ~self.broken(found, around, space).any(-1, keepdim=True)
        return torch.where(good, found, around.x)

    def partners(self, features: list[int]) -> int:
        """Count the features that might join in where a change of these breaks a rule: of the largest rule."""
        rows = (self.aims != 0) & self.loose
        mine = (self.aims[:, features] != 0).any(1)
        mine[: len(self.when)] |= (self.when[:, features] != 0).any(1)
        return int((rows.sum(1) * mine).amax()) if bool(mine.any()) else 0

    def _joined(self, flat: Tensor, around: Around, space: CompiledSpace, keys: Tensor) -> Tensor:
        """Let features join in, rule by rule; what moved for one rule stays for the others.

        Where one order of the rules leaves some broken and the reverse does not, the reverse counts.
        """
        found, rules = [], range(len(self.aims))
        for order in (rules, rules[::-1]):
            moved, free = flat, keys
            for _ in range(ROUNDS):
                for row in order:
                    before, moved = moved, self._aim(row, moved, around, space, free, True)
                    free = torch.where(moved != before, torch.inf, free)
            found.append(moved)
        broken = [self.broken(self.derive(one, around.x), around, space).any(-1, keepdim=True) for one in found]
        return torch.where(broken[0] & ~broken[1], found[1], found[0])

    def _applies(self, flat: Tensor) -> Tensor:
        """Return which rules (..., rules) must hold, by their conditions."""
        if not bool(self.laws.when.any()):
            return torch.ones((), dtype=torch.bool, device=flat.device)
        total, off = torch.inner(flat.double(), self.when) + self.when_shift, self._slack(flat, self.when)
        return (total <= self.when_most + off) & (total >= self.when_least - off)

    def _aim(
        self, row: int, flat: Tensor, around: Around, space: CompiledSpace, keys: Tensor | None, outward: bool
    ) -> Tensor:
        """Move features back, in order, until a sum is within its ends: to the clean value, or to an end."""
        x, lower, upper = around
        total, off = torch.inner(flat.double(), self.aims[row]) + self.shift[row], self._slack(flat, self.aims[row])
        least, most = self._ends(row, around)
        over = (total - most).clamp(min=0) - (least - total).clamp(min=0)
        need = torch.where(over.abs() <= off, 0.0, over.abs())[..., None]
        if row < len(self.laws.rules) and self.laws.when[row].any():
            need = need * self._applies(flat)[..., row, None]
        if not flat.is_cuda and not bool(need.any()):
            return flat
        factor = self.aims[row] * over.sign()[..., None]
        changed = space.touched(flat != x)
        _, width = scale(lower, upper)
        values, end = flat.double(), torch.where(factor > 0, lower, upper)
        goal = (end if outward else x.expand_as(end)).double()
        room = torch.where(self.loose & (lower < upper) & (factor != 0), factor * (values - goal), 0.0).clamp(min=0)
        if keys is None:
            room = torch.where(changed, room, 0.0)
            order = (flat - x).abs() / width
        else:
            room = torch.where(keys.isfinite(), room, 0.0)
            order = torch.where(changed, keys, keys + LATER)
        place = order.to(room.dtype).masked_fill(room == 0, torch.inf).argsort(dim=-1, stable=True)
        sorted_room = room.gather(-1, place)
        before = sorted_room.cumsum(-1) - sorted_room
        before = torch.where(before.isnan(), torch.inf, before)  # after a feature without an end nothing is left to do
        take = torch.zeros_like(room).scatter(-1, place, (need - before).clamp(min=0).minimum(sorted_room))
        target = values - take / torch.where(factor == 0, 1.0, factor)
        target = space.values.beyond(target, goal > values)
        target = torch.clamp(target, torch.minimum(values, goal), torch.maximum(values, goal))
        return torch.where(take > 0, space.own_bits(target, x), flat)

    def _ends(self, row: int, around: Around) -> tuple[Tensor, Tensor]:
        """Return the two numbers between which a sum must be."""
        if row < len(self.laws.rules):
            return self.least[row], self.most[row]
        k = self.laws.at[row - len(self.laws.rules)]
        return around.lower[..., k].double(), around.upper[..., k].double()

    def _slack(self, flat: Tensor, factors: Tensor) -> Tensor:
        """Return by how much sums may miss their ends by rounding."""
        size = flat.double().abs()
        eps = torch.finfo(flat.dtype).eps
        return torch.inner(size.maximum(self.reach) * (self.digits * eps) + size * EXACT, factors.abs())

    def _rounding(self, row: int, value: Tensor) -> Tensor:
        """Return by how much a derived value that was computed elsewhere may be off."""
        return value.double().abs() * (EXACT if self.exact[row] else torch.finfo(value.dtype).eps)

    def _value(self, row: int, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value of a derived feature in float64, and by how much it may be off."""
        function = self.laws.functions[row]
        if function is None:
            # Not as a product of matrices: that rounds by the number of rows.
            value = (flat.double() * self.sums[row]).sum(-1) + float(self.laws.constants[row])
            return value, self._slack(flat.detach(), self.sums[row])
        points = flat.reshape(-1, *self.shape)
        value = torch.as_tensor(function(points), device=flat.device)
        if value.shape != (len(points),):
            label = self.laws.labels[self.laws.at[row]]
            words = f"shape {tuple(value.shape)} for {len(points)} points; return one number per point"
            raise ValueError(f"space: the function of derived feature {label} returned {words}")
        value = value.view(flat.shape[:-1]).double()
        size = value.detach().abs().maximum(self.reach[self.laws.at[row]])
        return value, size * (4 * DIGITS * torch.finfo(flat.dtype).eps)

    def check(self, x: Tensor, around: Around, space: CompiledSpace) -> None:
        """Refuse clean inputs (rows, features) that break a rule, or whose derived features do not follow."""
        labels = self.laws.labels
        for row, k in enumerate(self.laws.at):
            value, off = self._value(row, x)
            wrong = ~((value - x[:, k].double()).abs() <= off + self._rounding(row, x[:, k]))
            if bool(wrong.any()):
                at = int(wrong.nonzero()[0])
                words = f"feature {labels[k]} of input row {at} is {float(x[at, k]):g}"
                follows = f"by what it is derived from it is {float(value[at]):g}"
                raise ValueError(f"space: {words}, but {follows}; recompute it in the data or correct derived=")
            self._check_function(row, x)
        wrong = self.broken(x, around, space)
        if bool(wrong.any()):
            at, rule = (int(v) for v in wrong.nonzero()[0])
            if rule < len(self.laws.rules):
                total = float((x[at].double() * self.rules[rule]).sum())
                words = f"input row {at} breaks the rule {self.laws.describe(rule)}: the sum is {total:g}"
                raise ValueError(f"space: {words}; correct the input or the rule")
            k = self.laws.at[rule - len(self.laws.rules)]
            words = f"derived feature {labels[k]} of input row {at} is {float(x[at, k]):g}"
            raise ValueError(f"space: {words}, which its own kind or ends do not allow; change these")

    def _check_function(self, row: int, x: Tensor) -> None:
        """Refuse a function that looks at its own feature, or at one that is computed after it."""
        if self.laws.functions[row] is None or not len(x):
            return
        later = list(self.laws.at[row:])
        blank = x.clone()
        blank[:, later] = torch.nan
        if bool(self._value(row, blank)[0].isnan().any()):
            label = self.laws.labels[self.laws.at[row]]
            raise ValueError(
                f"space: derived feature {label} depends on itself, or on a derived feature that is given after it; "
                "let its function look at other features alone"
            )


def _substituted(laws: Laws) -> tuple[Floats, Floats, Floats, Floats]:
    """Return rules and derived sums over chosen features: (rules and derived, features), and what is added to them.

    The conditions of the rules follow, in the same way.

    A feature that a function computes stays one of its own: what it follows from is not known.
    """
    n = laws.rules.shape[1]
    known: dict[int, tuple[Floats, float]] = {}

    def chosen(row: Floats) -> tuple[Floats, float]:
        found, more = row.copy(), 0.0
        for k, (terms, constant) in known.items():
            found[k], more = 0.0, more + row[k] * constant
            found += row[k] * terms
        return found, more

    for row, k in enumerate(laws.at):
        if laws.functions[row] is None:
            terms, constant = chosen(laws.sums[row])
            known[k] = terms, constant + float(laws.constants[row])
    derived = [known.get(k, (np.zeros(n), 0.0)) for k in laws.at]
    both, when = [*(chosen(row) for row in laws.rules), *derived], [chosen(row) for row in laws.when]
    sums = [np.array([terms for terms, _ in rows]).reshape(-1, n) for rows in (both, when)]
    more = [np.array([more for _, more in rows], dtype=float) for rows in (both, when)]
    return sums[0], more[0], sums[1], more[1]


def _ties(columns: Columns, aims: Floats) -> Floats:
    """Return what goes back with every rule and derived feature: all that rules and groups tie together."""
    laws, n = columns.laws, aims.shape[1]
    sets = [set(np.flatnonzero(row).tolist()) for row in aims]
    for row, function in enumerate(laws.functions):
        if function is not None:
            sets[len(laws.rules) + row] = set(range(n))
    sets += [set(group.members) for group in columns.groups]
    found = np.zeros((len(aims), n))
    for row in range(len(aims)):
        all_of_it: set[int] = set(sets[row])
        while grown := [one for one in sets if one & all_of_it and not one <= all_of_it]:
            all_of_it |= set().union(*grown)
        found[row, sorted(all_of_it)] = 1.0
    return found
