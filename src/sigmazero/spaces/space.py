"""What may change, to which values, at what cost: declared once, per feature, in the user's own units.

>>> space = Space(names=["age", "sex", "gain"], kind={"age": "integer", "sex": "binary"}, lower=0,
...               upper={"age": 99, "gain": 5e4}, direction={"age": "up", "sex": "none"}, cost={"gain": 3})
>>> space.columns((3,)).cost.tolist()
[1.0, 1.0, 3.0]

`spaces.compiled` turns a space into tensors, `spaces.domain` makes the domain of a search, `spaces.file` reads and
writes it.
"""

import difflib
import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from sigmazero.core.domain import Accept, Domain, Unit
from sigmazero.spaces.rules import Derive, Formula, Laws, Rule, laws

Floats = NDArray[np.float64]
SLACK = 1e-9  # of a step: by so much may an end miss a legal value by rounding
WHOLE = 1e-3  # no whole number is off by more, however large it is
NEAR = 1e-6  # part of a step by which 1/n may be off: as wide as 1/255 in single precision, or with six digits
KINDS = ("real", "integer", "binary", "values")
MISSING = "<missing>"  # `column=<missing>` is the feature that is 1 where a row of a table has no value
DIRECTIONS = {"both": (True, True), "up": (True, False), "down": (False, True), "none": (False, False)}


@dataclass(frozen=True)
class FeatureGroup:
    """Features that count once: of a one-hot group exactly one is 1, those of a tied one change as they like."""

    name: str
    one_hot: bool
    members: tuple[int, ...]


@dataclass(frozen=True)
class Columns:
    """A space for inputs of a known shape: arrays over the flat features.

    A legal value of a stepped feature is k · times / per with a whole k (per is 0 where there are no steps); features
    with a finite set of values have it in `tables`; `likely` are values to try inside a range.
    `rise` and `fall` have one row for all samples, or one each.
    """

    kind: list[str]
    lower: Floats
    upper: Floats
    around: Floats
    times: Floats
    per: Floats
    tables: dict[int, Floats]
    likely: list[Floats]
    rise: NDArray[np.bool_]
    fall: NDArray[np.bool_]
    cost: Floats
    groups: tuple[FeatureGroup, ...]
    labels: list[str]
    laws: Laws


@dataclass(frozen=True, kw_only=True, eq=False)
class Space:
    """Declare what may change; experimental.

    An option is one value for all features, a sequence, or a mapping by name or index.

    kind       "real", "integer", "binary" (0 or 1) or "values" (a finite set)
    values     the finite sets: {feature: [values]}; their kind is "values"
    lower, upper  the ends of each feature; 0 and 1 by default
    around     how far from the input a feature may go, on top of that: x ± around
    grid       legal values are the whole multiples of this step: 1/255 for 8-bit images
    direction  "both", "up", "down" or "none"; a sequence of such sequences is one per sample
    cost       what a change of this feature costs; within a group all cost the same, and a group costs once
    one_hot    {name: features}: exactly one of them is 1, and another category is one change
    tied       {name: features} or a sequence of features: they count once together
    rules      linear rules between features: [Rule({"length": 1, "host": -1}, ">=", 0)]
    derived    {feature: Formula, mapping of terms, or function of points}: follows from others, is never counted
    likely     values that searches try inside a range, besides random ones: {feature: [values]}, quantiles of the data
               or thresholds of a model; others stay legal
    smallest   whether values that were found go back towards the clean ones as far as the goal stays reached, with the
               same changes; None does so for rows of named features
    names      of the features, in their order
    accept     a function of (points, clean inputs) that says which rows are legal; called when a success is verified
    """

    kind: Any = "real"
    values: Mapping[Any, Sequence[float]] = field(default_factory=dict)
    lower: Any = 0.0
    upper: Any = 1.0
    around: Any = math.inf
    grid: Any = 0.0
    direction: Any = "both"
    cost: Any = 1.0
    one_hot: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tied: Any = field(default_factory=dict)
    rules: Sequence[Rule] = ()
    derived: Mapping[Any, Formula | Mapping[Any, float] | Derive] = field(default_factory=dict)
    likely: Mapping[Any, Sequence[float]] = field(default_factory=dict)
    smallest: bool | None = None
    names: Sequence[str] | None = None
    accept: Accept | None = None

    def __post_init__(self) -> None:
        """Refuse what is wrong whatever the inputs."""
        _check_words(self)
        if self.names is None:
            return
        twice = [name for k, name in enumerate(self.names) if name in list(self.names)[:k]]
        if twice:
            raise ValueError(f"space: two features are called {twice[0]!r}; rename one of them")
        self.columns((len(self.names),))

    @classmethod
    def infer(cls, x: Any, names: Sequence[str] | None = None) -> "Space":
        """Draft a space from data: kinds, ends and one-hot groups as the rows show them; pixels are all alike."""
        from sigmazero.spaces.file import draft

        return draft(x, names)

    @classmethod
    def from_toml(cls, path: str | Path) -> "Space":
        """Read a space from a file."""
        from sigmazero.spaces.file import read

        return read(path)

    def to_toml(self) -> str:
        """Return the space as the text of such a file."""
        from sigmazero.spaces.file import written

        return written(self)

    def domain(self, x: Tensor, unit: Unit = "feature", mask: Tensor | None = None) -> Domain:
        """Make the domain of inputs; an input outside the space is named."""
        from sigmazero.spaces.domain import make_domain

        return make_domain(self, x, unit, mask)

    @classmethod
    def image8(cls, **more: Any) -> "Space":
        """Make a space of images of 8 bits per value, scaled to 0 to 1: every value a multiple of 1/255."""
        return cls(grid=1 / 255, **more)

    @classmethod
    def patches(cls, shape: Sequence[int], size: int, **more: Any) -> "Space":
        """Make a space of images (channels, height, width) in which a square of `size` × `size` pixels counts once."""
        at = _image(shape)
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"space: size={size!r} of a patch must be a whole number of pixels, 1 or more")
        _, height, width = at.shape
        corners = [(i, j) for i in range(0, height, size) for j in range(0, width, size)]
        named = {f"patch {i},{j}": at[:, i : i + size, j : j + size].ravel().tolist() for i, j in corners}
        return cls(tied=named, **more)

    @classmethod
    def pixels(cls, shape: Sequence[int], **more: Any) -> "Space":
        """Make a space of images (channels, height, width) in which a pixel counts once for all its channels."""
        return cls.patches(shape, 1, **more)

    @classmethod
    def rows(cls, shape: Sequence[int], **more: Any) -> "Space":
        """Make a space of images (channels, height, width) in which a row counts once."""
        at = _image(shape)
        return cls(tied={f"row {i}": at[:, i].ravel().tolist() for i in range(at.shape[1])}, **more)

    @classmethod
    def image_columns(cls, shape: Sequence[int], **more: Any) -> "Space":
        """Make a space of images (channels, height, width) in which a column counts once."""
        at = _image(shape)
        return cls(tied={f"column {j}": at[:, :, j].ravel().tolist() for j in range(at.shape[2])}, **more)

    def label(self, index: int) -> str:
        """Name a feature in an error."""
        return repr(self.names[index]) if self.names is not None else str(index)

    def columns(self, shape: Sequence[int]) -> Columns:
        """Return the space of inputs of a shape; refuse every contradiction by name."""
        shape = tuple(shape)
        n = math.prod(shape)
        if self.names is not None and len(self.names) != n:
            raise ValueError(f"space: {len(self.names)} names for {n} features; name each feature once")
        labels = [self.label(k) for k in range(n)]
        tables, tied = self._tables("values", n), laws(self, n, labels)
        some = self._tables("likely", n)
        kind = [str(word) for word in self._each("kind", self.kind, "real", shape)]
        kind = ["values" if k in tables else word for k, word in enumerate(kind)]
        self._words("kind", kind, KINDS)
        lower, upper = self._ends(kind, tables, shape, tied.at)
        grid = self._numbers("grid", self.grid, 0.0, shape)
        cost = self._numbers("cost", self.cost, 1.0, shape)
        around = self._numbers("around", self.around, math.inf, shape)
        for name, values, words in (("grid", grid, "0 or more"), ("around", around, "0 or more")):
            self._refuse(name, values, values < 0, words)
        self._refuse("cost", cost, ~((cost > 0) & np.isfinite(cost)), "a finite number greater than 0")
        times, per = _steps(kind, grid, tables, labels)
        rise, fall = self._directions(shape)
        groups = self._groups(n)
        alone = [group.members[0] for group in groups if group.one_hot and len(group.members) == 1]
        rise[:, alone] = fall[:, alone] = False  # a category of one word has no other
        likely = [some.get(k, np.zeros(0)) for k in range(n)]
        likely = [values[(values >= lower[k]) & (values <= upper[k])] for k, values in enumerate(likely)]
        found = Columns(kind, lower, upper, around, times, per, tables, likely, rise, fall, cost, groups, labels, tied)
        _check_groups(found)
        return found

    def place(self, feature: Any, features: int) -> int:
        """Return the index of a feature that is given by name or by index."""
        if isinstance(feature, str):
            if self.names is None:
                raise ValueError(f"space: feature {feature!r} is given by name, but there are no names; pass names=")
            if feature not in self.names:
                raise ValueError(f"space: there is no feature {feature!r}; {_near(feature, self.names)}")
            return list(self.names).index(feature)
        if not isinstance(feature, numbers.Integral):
            raise ValueError(f"space: there is no feature {feature!r}; give its name or its index")
        if not 0 <= int(feature) < features:
            raise ValueError(f"space: there is no feature {feature}; an input has features 0 to {features - 1}")
        return int(feature)

    def _each(self, name: str, given: Any, default: Any, shape: tuple[int, ...]) -> list[Any]:
        """Return one value per flat feature, from one for all, from a sequence or from a mapping."""
        n = math.prod(shape)
        if isinstance(given, Mapping):
            found = [default] * n
            for feature, value in given.items():
                found[self.place(feature, n)] = value
            return found
        array = np.asarray(given.cpu() if isinstance(given, Tensor) else given)
        if array.size == n and array.ndim == 1:
            return list(array.tolist())
        try:
            return list(np.broadcast_to(array, shape).ravel().tolist())
        except ValueError:
            raise ValueError(f"space: {name} of shape {array.shape} does not fit inputs of shape {shape}") from None

    def _numbers(self, name: str, given: Any, default: float, shape: tuple[int, ...]) -> Floats:
        try:
            values = np.array([float(value) for value in self._each(name, given, default, shape)])
        except (TypeError, ValueError) as error:
            if str(error).startswith("space:"):
                raise
            raise ValueError(f"space: {name}={given!r} must be numbers") from None
        self._refuse(name, values, np.isnan(values), "a number")
        return values

    def _refuse(self, name: str, values: Floats, wrong: NDArray[np.bool_], words: str) -> None:
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"space: {name}={values[k]:g} of feature {self.label(k)} must be {words}")

    def _words(self, name: str, words: Sequence[str], known: Sequence[str]) -> None:
        for k, word in enumerate(words):
            if word not in known:
                raise ValueError(f"space: {name}={word!r} of feature {self.label(k)} is not one of {', '.join(known)}")

    def _tables(self, name: str, n: int) -> dict[int, Floats]:
        found = {}
        for feature, values in getattr(self, name).items():
            k = self.place(feature, n)
            try:
                table = np.unique(np.asarray(values, dtype=np.float64))
            except (TypeError, ValueError):
                table = np.array([math.nan])
            if not len(table) or not np.isfinite(table).all():
                raise ValueError(f"space: {name} of feature {self.label(k)} must be one or more finite numbers")
            found[k] = table
        return found

    def _ends(
        self, kind: list[str], tables: dict[int, Floats], shape: tuple[int, ...], derived: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """Return the ends of each feature; by default a finite set has its own, and a derived feature none."""
        lower = self._numbers("lower", self.lower, 0.0, shape)
        upper = self._numbers("upper", self.upper, 1.0, shape)
        for k in {*tables, *derived}:
            first, last = (tables[k][0], tables[k][-1]) if k in tables else (-math.inf, math.inf)
            lower[k] = lower[k] if self._given(self.lower, 0.0, k, len(kind)) else first
            upper[k] = upper[k] if self._given(self.upper, 1.0, k, len(kind)) else last
        for k, word in enumerate(kind):
            if word == "binary":  # its own ends hold; one value for all features is not meant for it
                lower[k] = 0.0 if isinstance(self.lower, int | float) else max(lower[k], 0.0)
                upper[k] = 1.0 if isinstance(self.upper, int | float) else min(upper[k], 1.0)
            if word == "values" and k not in tables:
                raise ValueError(f"space: feature {self.label(k)} has kind 'values' but no values; pass values=")
        wrong = lower > upper
        if wrong.any():
            k = int(np.flatnonzero(wrong)[0])
            ends = f"lower={lower[k]:g} lies above upper={upper[k]:g}"
            both = self._given(self.lower, 0.0, k, len(kind)) and self._given(self.upper, 1.0, k, len(kind))
            fix = "swap them" if both else "give both; the defaults are 0 and 1"
            raise ValueError(f"space: {ends} for feature {self.label(k)}; {fix}")
        return lower, upper

    def _given(self, ends: Any, usual: float, k: int, n: int) -> bool:
        """Return whether the end of a feature was given, rather than left at the default."""
        if isinstance(ends, Mapping):
            return k in {self.place(feature, n) for feature in ends}
        return not isinstance(ends, int | float) or ends != usual

    def _directions(self, shape: tuple[int, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which features may rise and which may fall: one row, or one per sample."""
        given, n = self.direction, math.prod(shape)
        per_sample = isinstance(given, list | tuple) and bool(given) and not isinstance(given[0], str)
        array = given if isinstance(given, np.ndarray) else None
        if array is not None and array.size != n and array.shape[1:] in (shape, (n,)):
            per_sample, given = True, array.reshape(len(array), n).tolist()
        words = [self._each("direction", row, "both", shape) for row in (given if per_sample else [given])]
        for row in words:
            self._words("direction", [str(word) for word in row], tuple(DIRECTIONS))
        ways = np.array([[DIRECTIONS[str(word)] for word in row] for row in words], dtype=bool)
        return ways[..., 0], ways[..., 1]

    def _groups(self, n: int) -> tuple[FeatureGroup, ...]:
        tied = self.tied if isinstance(self.tied, Mapping) else {f"tied {k}": g for k, g in enumerate(self.tied)}
        found, owner = [], dict[int, str]()
        for one_hot, named in ((True, self.one_hot), (False, tied)):
            for name, features in named.items():
                members = tuple(self.place(feature, n) for feature in features)
                for k in members:
                    if k in owner:
                        both = f"{owner[k]!r} and {name!r}" if owner[k] != name else f"{name!r} twice"
                        raise ValueError(f"space: feature {self.label(k)} is in {both}; leave it in one group")
                    owner[k] = name
                if not members:
                    raise ValueError(f"space: group {name!r} has no features; name some or leave it out")
                found.append(FeatureGroup(str(name), one_hot, members))
        return tuple(found)


def _check_groups(columns: Columns) -> None:
    """Refuse groups of unequal features."""
    labels, cost = columns.labels, columns.cost
    for group in columns.groups:
        at, first = list(group.members), group.members[0]
        words = f"space: group {group.name!r} is of unequal features"
        for k in at:
            if k in columns.laws.at:
                both = f"feature {labels[k]} is derived and in group {group.name!r}"
                raise ValueError(f"space: {both}; take it out of the group, as it follows from others")
            if cost[k] != cost[first]:
                costs = f"{labels[first]} costs {cost[first]:g}, {labels[k]} costs {cost[k]:g}"
                raise ValueError(f"{words}: {costs}; a group has one cost")
            if group.one_hot and columns.kind[k] != "binary":
                raise ValueError(f"{words}: {labels[k]} is {columns.kind[k]}; make all of a one-hot group binary")
        ways = np.concatenate([columns.rise[:, at], columns.fall[:, at]], 1)
        if group.one_hot and not (ways == ways[:, :1]).all():
            raise ValueError(f"{words}: give all of a one-hot group direction 'both', or all of them 'none'")


def _check_words(space: Space) -> None:
    """Refuse a text where several are meant, whose letters would be taken one by one, and groups without a name."""
    if space.names is not None:
        wrong = [space.names] if isinstance(space.names, str) else [n for n in space.names if not isinstance(n, str)]
        if wrong:
            raise ValueError(f"space: names has {wrong[0]!r}; give a sequence of texts, one per feature")
    if space.smallest not in (None, True, False):
        raise ValueError(f"space: smallest={space.smallest!r}; give True, False or None")
    for what in ("values", "likely", "derived"):
        if not isinstance(given := getattr(space, what), Mapping):
            raise ValueError(f"space: {what} is {given!r}; write it by feature: {{feature: ...}}")
    named = {"one_hot": space.one_hot, "tied": space.tied if isinstance(space.tied, Mapping) else {}}
    for what, groups in named.items():
        if not isinstance(groups, Mapping):
            raise ValueError(f"space: {what} is a {type(groups).__name__}; write it as {{group: [features]}}")
        for name, members in groups.items():
            if isinstance(members, str) or not isinstance(members, Iterable):
                raise ValueError(f"space: {what} of group {name!r} is {members!r}; give a list of features")


def _near(word: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, names, 1)
    return f"did you mean {close[0]!r}?" if close else f"there are {', '.join(list(names)[:10])}"


def _image(shape: Sequence[int]) -> NDArray[np.int64]:
    """Return the flat indices of an image's values."""
    if len(shape) != 3:
        raise ValueError(f"space: images have shape (channels, height, width); {tuple(shape)} is none")
    return np.arange(math.prod(shape)).reshape(tuple(shape))


def _steps(kind: list[str], grid: Floats, tables: dict[int, Floats], labels: list[str]) -> tuple[Floats, Floats]:
    """Return the step of each feature as times / per; 1/n stays 1 over n, so that its multiples round as k/n."""
    times, per = np.ones(len(grid)), np.zeros(len(grid))
    for k, step in enumerate(grid):
        whole = kind[k] in ("integer", "binary")
        if k in tables or not (whole or step > 0):
            continue
        step = step if step > 0 else 1.0
        if whole and step != round(step):
            raise ValueError(
                f"space: grid={step:g} of feature {labels[k]} is no whole number, and its kind is {kind[k]}"
            )
        parts = round(1 / step) if step < 1 else 1
        exact = abs(parts * step - 1) < NEAR if step < 1 else False
        times[k], per[k] = (1.0, float(parts)) if exact else (float(step), 1.0)
    return times, per
