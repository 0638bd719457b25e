"""The question: which inputs, which goal, inside which box, counted in which unit.

`margin` points downhill for either goal: negative means reached, positive means not yet. At an exact tie it is 0
and `fooled` decides by argmax, which takes the lowest index; so no attack and no loss ever asks "if targeted".
"""

import math
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Literal

import torch
from torch import Tensor

from sigmazero.core import form as forms
from sigmazero.core.form import Form
from sigmazero.core.ops import scale
from sigmazero.core.space import Space
from sigmazero.core.space_sites import SiteLayout

Unit = Literal["feature", "pixel"]
BOX = ("lower", "upper", "free", "outer_lower", "outer_upper")  # one row for all samples, unless `own_box`


@dataclass(frozen=True)
class Problem:
    """One batch and one question about it.

    `lower` and `upper` have the rank of `x` and one row or, with `own_box`, one per sample; so has `free`. A feature
    that may not change has its clean value as both bounds: box and mask are one rule, and `clip` keeps both. `start`
    holds a starting point per sample, `pool` inputs to look for one in: all of the run's inputs, so that it does not
    depend on the batch.

    A problem in the unit box (see `unit_box`) also has the user's own inputs and bounds, `outer_x`, `outer_lower` and
    `outer_upper`. Its other tensors, but for `pool`, are in units of the box, and `outward` leads back.

    The goal must be reached by at least `least` in the logits; a search aims `beyond` that by some number per sample,
    where the clean input is near enough to the goal that it would take it for reached. `checks` is how often the model
    is asked about a point that is checked: twice where the caller's numbers are not the strict ones.

    `space` is what the user said may change, where it was said so; `form` is what of it a box cannot hold.
    """

    x: Tensor
    y: Tensor
    ids: Tensor
    lower: Tensor
    upper: Tensor
    free: Tensor | None = None
    targeted: bool = False
    unit: Unit = "feature"
    budget: int | None = None
    seed: int = 0
    start: Tensor | None = None
    pool: Tensor | None = None
    own_box: bool = False
    outer_x: Tensor | None = None
    outer_lower: Tensor | None = None
    outer_upper: Tensor | None = None
    least: float = 0.0
    beyond: Tensor | None = None
    checks: int = 1
    space: Space | None = None
    form: Form | None = None

    def __len__(self) -> int:
        """Number of samples."""
        return len(self.x)

    @property
    def features(self) -> int:
        """Number of scalars in one sample."""
        return math.prod(self.x.shape[1:])

    @property
    def grouped(self) -> bool:
        """Whether several features (the channels of a position) count as one."""
        return self.unit == "pixel" and self.x.ndim > 2 and self.x.shape[1] > 1

    @property
    def sites(self) -> int:
        """Number of things that can be changed, in the unit of the question."""
        if self._by_group:
            return self._layout.index.shape[1]
        return self.features // self.x.shape[1] if self.grouped else self.features

    @property
    def _by_group(self) -> bool:
        """Whether sites are groups of a space; in the inner problem these are channels of a position."""
        return self.form is not None and self.form.layout is not None and self.outer_x is None

    @property
    def _derives(self) -> bool:
        """Whether features of the user's follow from others; in the inner problem these stay as they are."""
        return self.form is not None and self.outer_x is None and self.form.derives

    @property
    def _layout(self) -> SiteLayout:
        assert self.form is not None
        assert self.form.layout is not None
        return self.form.layout

    @property
    def costs(self) -> Tensor | None:
        """What a change of each site costs, (sites,); None where a change costs 1."""
        return None if self.form is None else self.form.costs

    def take(self, rows: Tensor) -> "Problem":
        """The same question about some of the rows."""

        by_row = ["x", "y", "ids", "start", "outer_x", "beyond", *(BOX if self.own_box else ())]
        tensors = {name: getattr(self, name) for name in by_row}
        return replace(self, **{name: t[rows] for name, t in tensors.items() if t is not None})

    @property
    def narrow(self) -> bool:
        """Whether one class alone is the goal, rather than all but one: that takes more changes."""
        return self.targeted

    def downhill(self, score: Tensor) -> Tensor:
        """How well class y scores, as a number that falls towards the goal: y is to be left, or as a target reached."""
        return -score if self.targeted else score

    def margin(self, logits: Tensor) -> Tensor:
        """Own logit minus the best other one, or the reverse for a target: below 0 the goal is reached."""
        y = self.y[:, None]
        own = logits.gather(1, y).squeeze(1)
        return self.downhill(own - logits.scatter(1, y, -torch.inf).amax(1))

    def fooled(self, logits: Tensor) -> Tensor:
        """Whether the goal is reached, by argmax; the only place that decides it."""
        top = logits.argmax(1)
        return top == self.y if self.targeted else top != self.y

    def shifted(self, logits: Tensor) -> Tensor:
        """Logits (N, ..., classes) in which the goal is reached where in those given it is by all that is aimed for."""
        if self.least == 0 and self.beyond is None:
            return logits
        lead = torch.full_like(self.y, self.least, dtype=logits.dtype)
        lead = self.downhill(lead if self.beyond is None else lead + self.beyond)
        places, leads = (t.view(-1, *[1] * (logits.ndim - 1)).expand(*logits.shape[:-1], 1) for t in (self.y, lead))
        return logits.scatter_add(-1, places, leads.to(logits.dtype))

    def reached(self, logits: Tensor, more: Tensor | float = 0.0) -> Tensor:
        """Whether the goal is reached by at least `least` and as much `more` as is asked for."""
        return self.fooled(logits) & (self.margin(logits) <= -(self.least + more))

    def clip(self, x: Tensor) -> Tensor:
        """Nearest point inside the box; features outside the mask get their clean value back."""
        return torch.clamp(x, self.lower, self.upper)

    def feasible(self, x: Tensor) -> Tensor:
        """Whether a point lies inside the box and changes only what may be changed (NaN does not)."""
        inside = self.clip(x) == x
        if self._derives:  # their ends are judged by `Form.lawful`
            assert self.form is not None
            inside = ~self.form.chosen(~inside)
        return inside.flatten(1).all(1)

    def changed(self, x: Tensor) -> Tensor:
        """Which sites differ from the clean input, exactly: channels of a position joined if they count once."""
        different = x != self.x
        if self._derives:
            assert self.form is not None
            different = self.form.chosen(different)
        if self._by_group:
            return self._layout.sites(different.flatten(1)).any(1)
        return different.any(1, keepdim=True) if self.grouped else different

    def cost(self, x: Tensor) -> Tensor:
        """What the changes of a point cost together; their number where each costs 1."""
        changed = self.changed(x).flatten(1).to(self.x.dtype)
        return changed.sum(1) if self.costs is None else (changed * self.costs).sum(1)

    @property
    def nothing(self) -> Tensor | int:
        """More than all sites cost together: what a sample has as long as nothing was found."""
        return self.sites + 1 if self.costs is None else self.costs.sum() + 1

    def legal(self, x: Tensor, keys: Tensor | None = None) -> Tensor:
        """The legal point nearest to one in the units of the box: itself, where the space is a box.

        `keys`, of the shape of `x`, name features that may join in where a rule is broken (see `RuleKeeper.keep`).
        """
        return x if self.form is None or self.outer_x is None else forms.legal(self, x, keys)

    @property
    def outer(self) -> tuple[Tensor, Tensor, Tensor]:
        """The user's inputs and ends."""
        if self.outer_x is None or self.outer_lower is None or self.outer_upper is None:
            return self.x, self.lower, self.upper
        return self.outer_x, self.outer_lower, self.outer_upper

    def chosen(self, x: Tensor) -> Tensor:
        """Points of the user's in which derived features, which are not counted, have their clean values."""
        if not self._derives or self.form is None:
            return x
        return torch.where(self.form.chosen(x != self.x), x, self.x)

    def through(self, point: Tensor) -> Tensor:
        """The same points of the user's, through which gradients reach what derived features follow from."""
        keeper = None if self.form is None else self.form.keeper
        return point if keeper is None else keeper.through(point)

    @property
    def tied(self) -> bool:
        """Whether rules tie features of a space to each other."""
        return self.form is not None and self.form.keeper is not None

    @property
    def bounded(self) -> bool:
        """Whether every feature that may be chosen has finite ends."""
        open_ended = ~(self.upper - self.lower).isfinite()
        return not bool((open_ended if not self._derives or self.form is None else self.form.chosen(open_ended)).any())

    def l0(self, x: Tensor) -> Tensor:
        """Exact number of changed sites, in the unit of the question."""
        return self.changed(x).flatten(1).sum(1)

    def within_budget(self, changes: Tensor) -> Tensor:
        """Which numbers of changes the budget allows; any, if there is none."""
        return changes <= (torch.inf if self.budget is None else self.budget)

    def outward(self, point: Tensor) -> Tensor:
        """Points (N, ...) or several per sample (N, K, ...) in the user's own units, in which the model is asked.

        What is unchanged has the user's own bits, the ends of the box are its own, and no point inside it leaves it by
        rounding. Points outside, which some searches ask about, stay outside.
        """
        if self.outer_x is None:
            return point
        if self.form is not None:
            return forms.outward(self, point)
        clean, x, upper, end = (self._beside(t, point) for t in (self.x, self.outer_x, self.upper, self.outer_upper))
        offset, width = (self._beside(t, point) for t in self._scale())
        outer = offset + point * width
        outer = torch.where(point < upper, outer.minimum(end), torch.where(point == upper, end, outer))
        return torch.where(point == clean, x, outer)

    def inward(self, point: Tensor) -> Tensor:
        """Points of the user's in units of the box; they may lie outside it."""
        if self.outer_x is None:
            return point
        if self.form is not None:
            return forms.inward(self, point)
        offset, width = self._scale()
        return torch.where(point == self.outer_x, self.x, (point - offset) / width)

    def inward_slope(self, gradient: Tensor) -> Tensor:
        """A gradient with respect to the user's values, with respect to those in units of the box."""
        if self.form is not None and self.outer_x is not None:
            return forms.inward_slope(self, gradient)
        return gradient if self.outer_x is None else gradient * self._scale()[1]

    def _scale(self) -> tuple[Tensor, Tensor]:
        """Where the box begins and how wide it is in the user's units; 0 and 1 where it has no end or no width."""
        assert self.outer_lower is not None
        assert self.outer_upper is not None
        return scale(self.outer_lower, self.outer_upper)

    def _beside(self, own: Tensor | None, point: Tensor) -> Tensor:
        """A tensor of the problem, shaped to stand beside one point per sample or beside several."""
        assert own is not None
        return own if point.ndim == self.x.ndim else own.unsqueeze(1)

    def join(self, magnitude: Tensor) -> Tensor:
        """Largest magnitude within each site, kept broadcastable over the input."""
        return magnitude.amax(1, keepdim=True) if self.grouped else magnitude


def unit_box(problem: Problem) -> Problem:
    """The same question with every feature going from 0 to 1; a problem that is so already is returned as it is.

    Step sizes and thresholds of attacks are made for that box. A change of units so changes no result but by rounding.
    """
    if problem.form is not None:
        return forms.enter(problem)
    lower, upper = problem.lower, problem.upper
    offset, width = scale(lower, upper)
    if bool(((offset == 0) & (width == 1) | (lower == upper)).all()):
        return problem
    bounded, fixed = (upper - lower).isfinite(), lower == upper
    return replace(
        problem,
        x=(x := torch.clamp((problem.x - offset) / width, (lower - offset) / width, (upper - offset) / width)),
        lower=torch.where(fixed, (lower - offset) / width, torch.where(bounded, 0.0, lower)),
        upper=torch.where(fixed, (lower - offset) / width, torch.where(bounded, 1.0, upper)),
        start=None
        if problem.start is None
        else torch.where(problem.start == problem.x, x, (problem.start - offset) / width),
        outer_x=problem.x,
        outer_lower=lower,
        outer_upper=upper,
    )


def count_features(x_adv: Tensor, x: Tensor) -> Tensor:
    """Number of scalars that differ, per sample."""
    return (x_adv != x).flatten(1).sum(1)


def count_pixels(x_adv: Tensor, x: Tensor) -> Tensor:
    """Number of positions that differ, channels (dimension 1) joined; plain features for (N, D) inputs."""
    different = x_adv != x
    return (different.any(1) if x.ndim > 2 else different).flatten(1).sum(1)


def whole(number: object) -> bool:
    """Whether it is a whole number, whatever its type; True and False are none.

    >>> whole(3), whole(3.0), whole(2.5), whole(float("nan")), whole("3"), whole(True)
    (True, True, False, False, False, False)
    """
    return not isinstance(number, bool) and isinstance(number, Real) and float(number).is_integer()


def integer(number: object) -> bool:
    """Whether it is a whole number that can count steps: 3.0 cannot."""
    return not isinstance(number, bool) and isinstance(number, Integral)
