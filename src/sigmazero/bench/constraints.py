"""Constraints of a question: a space or a box, and a mask; and how a store keeps them.

The identity of a cell includes the text of its space file, so a store alone shows what was legal. Functions in a space
(`accept`, and features derived by code) cannot be stored; they are identified by their source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import torch
from torch import Tensor

from sigmazero.bench import identity
from sigmazero.core.domain import Domain
from sigmazero.core.inputs import Bound, Bounds, make_problem
from sigmazero.core.problem import Problem
from sigmazero.core.source import code_hash
from sigmazero.data import Rows
from sigmazero.spaces import file as space_file
from sigmazero.spaces.space import Space
from sigmazero.store.facts import CellInfo
from sigmazero.store.store import Store

DEFAULT_BOUNDS: Bounds = (0.0, 1.0)
ACCEPT = "accept"
OPTIONS = ("kind", "values", "lower", "upper", "around", "grid", "direction", "cost")


@dataclass(frozen=True, eq=False)
class Allowed:
    """A box or a space, with or without a mask. By default the space of the data, else the box from 0 to 1.

    They are compared by their text.
    """

    bounds: Bounds = DEFAULT_BOUNDS
    mask: Tensor | None = None
    space: Space | None = None

    def __post_init__(self) -> None:
        """Refuse bounds next to a space."""
        if self.space is not None and not isinstance(self.space, Space):
            raise TypeError(f"space is a {type(self.space).__name__}; make one with sigmazero.Space(...)")
        if self.space is not None and not self.default_bounds:
            raise ValueError(
                "bounds and space are both given; give the bounds in the space: Space(lower=..., upper=...)"
            )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Allowed) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @cached_property
    def _text(self) -> str:
        return identity.canonical(self.identity(None))

    @property
    def default_bounds(self) -> bool:
        """Return whether the bounds are the default ones."""
        return not any(isinstance(each, Tensor) for each in self.bounds) and tuple(self.bounds) == DEFAULT_BOUNDS

    def on(self, rows: Rows) -> Allowed:
        """Return the constraints for some rows: without a space or bounds, the rows' own space."""
        if self.space is None and self.default_bounds and rows.space is not None:
            return replace(self, space=rows.space)
        return self

    def pose(self, x: Tensor, y: Tensor, **how: Any) -> Problem:
        """Return the problem of some inputs, as `make_problem` makes it."""
        return make_problem(x, y, bounds=self.bounds, mask=self.mask, space=self.space, **how)

    def identity(self, shape: tuple[int, ...] | None) -> dict[str, Any]:
        """Return the constraints of inputs with this shape as JSON holds them, tensors by their hashes."""
        space = {} if self.space is None else {"space": described(self.space, shape)}
        mask = None if self.mask is None else identity.hash_tensors({"mask": self.mask})
        return {"bounds": [_plain(bound) for bound in self.bounds], "mask": mask, **space}


def _plain(bound: Bound) -> float | str:
    return identity.hash_tensors({"bound": bound}) if isinstance(bound, Tensor) and bound.ndim else float(bound)


def described(space: Space, shape: tuple[int, ...] | None) -> dict[str, Any]:
    """Return a space as JSON holds it: its text and, where it has functions, their hashes."""
    functions = functions_of(space)
    plain = without_functions(space)
    by_index = bool(plain.values) or any(isinstance(getattr(plain, name), Mapping) for name in OPTIONS)
    if plain.names is None and by_index and shape is not None:
        plain = replace(plain, names=[str(k) for k in range(prod(shape))])  # a file needs names
    # Without a shape the text need only be unique in this process.
    text = f"object {id(space)}" if plain.names is None and by_index else plain.to_toml()
    code = {name: f"{identity.name_of(function)} {code_hash(function)}" for name, function in functions.items()}
    return {"text": text, "code": code} if code else {"text": text}


def functions_of(space: Space) -> dict[str, Callable[..., Any]]:
    """Return the functions that a space was given in Python, by their use."""
    found: dict[str, Callable[..., Any]] = {} if space.accept is None else {ACCEPT: space.accept}
    return found | {f"derived {name}": how for name, how in space.derived.items() if callable(how)}


def without_functions(space: Space) -> Space:
    """Return the same space, as far as a file can hold it."""
    texts = {name: how for name, how in space.derived.items() if not callable(how)}
    return replace(space, accept=None, derived=texts) if functions_of(space) else space


def keep(store: Store, allowed: Allowed) -> None:
    """Store masks and bounds that are tensors, under the hashes in a cell's identity."""
    for name, tensor in (("bound", allowed.bounds[0]), ("bound", allowed.bounds[1]), ("mask", allowed.mask)):
        if isinstance(tensor, Tensor) and tensor.ndim:
            store.keep_arrays(identity.hash_tensors({name: tensor}), tensor=tensor.detach().cpu().numpy())


def recall(store: Store, info: CellInfo, given: Mapping[str, Space] | None = None) -> Allowed:
    """Return the constraints of a stored cell.

    `given` are spaces with functions, by `space_key`. Without its function `accept` is left out; a cell with
    features derived by code is refused.
    """
    question = info.identity
    if not question:
        return Allowed()
    lower, upper = (_bound(store, bound) for bound in question["bounds"])
    mask = None if question["mask"] is None else _tensor(store, question["mask"]).bool()
    text = question.get("space")
    if text is None:
        return Allowed((lower, upper), mask)
    space = (given or {}).get(space_key(text))
    if space is None:
        lost = [name for name in text.get("code", {}) if name != ACCEPT]
        if lost:
            raise LookupError(f"its space has functions, which a store does not hold ({lost[0]}); verify it in Python")
        space = space_file.parse(text["text"], "the stored space")
    return Allowed(mask=mask, space=space)


def space_key(described: Mapping[str, Any]) -> str:
    """Return the key by which a described space is found."""
    return identity.canonical(described)


def judge_missing(info: CellInfo, domain: Domain) -> bool:
    """Return whether a cell's space had a function `accept` that is not here."""
    return domain.accept is None and ACCEPT in (info.identity.get("space") or {}).get("code", {})


def _bound(store: Store, bound: float | str) -> Bound:
    return _tensor(store, bound) if isinstance(bound, str) else float(bound)


def _tensor(store: Store, name: str) -> Tensor:
    arrays = store.arrays(name)
    if arrays is None or "tensor" not in arrays:
        raise LookupError("its bounds or its mask were tensors, and the store does not hold them")
    return torch.from_numpy(arrays["tensor"])
