"""The question, and the subproblems that it is split into: groups of sites first, then boxes of values.

`SiteGroups` allow at most one site from each of t ranges. Where every range is one site and no bound is good enough,
`ValueBoxes` hold parts of the values of these sites. Both have sizes and can be split.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn

from sigmazero.certifier.bounds import NetworkBounds, Strength
from sigmazero.certifier.graph import image
from sigmazero.certifier.layers import UNIT, Value
from sigmazero.certifier.regions import OneSitePerGroup
from sigmazero.certifier.rounding import model_error
from sigmazero.core import ops

NARROWEST = 2.0**-14  # share of the width of the box at which a part is given up
MAX_CORNERS = 16  # corners of a box that are tried
ROWS = 256  # points in a batch of the model


@dataclass(eq=False)
class Question:
    """Inputs in torch's layout with their classes, and a box of the same shape.

    rounding   whether a proof must hold for the model's own arithmetic, where that is possible
    """

    model: nn.Module
    bounds: NetworkBounds
    x: Tensor
    y: Tensor
    lower: Tensor
    upper: Tensor
    pixels: bool = False
    rounding: bool = False

    @cached_property
    def slack(self) -> Tensor:
        """Return what a margin must exceed in a proof (rows, classes)."""
        return torch.zeros_like(self.clean[-1].value[:, 0, 0])

    @cached_property
    def over_reals(self) -> Tensor:
        """Return for which inputs a proof holds over the real numbers only."""
        return torch.full_like(self.y, not self.rounding, dtype=torch.bool)

    def allow_for_rounding(self, rows: Tensor, t: int) -> None:
        """Set the slack of some inputs to the model's own rounding error of a margin with t changes.

        Where that is most of the margin of the input itself, proofs hold over the real numbers only.
        """
        if not self.rounding:
            return
        logits, label = self.clean[-1].value[rows][:, 0, 0], self.y[rows][:, None]
        margin = (logits.gather(1, label) - logits).scatter(1, label, torch.inf)
        error = self._model_error(rows, t, Strength.INTERVALS)
        share = (error / margin).amax(1)
        again = ((share > 0.1) & (share < 100)).nonzero()[:, 0]  # where tighter ranges may help
        if len(again):
            error[again] = torch.minimum(error[again], self._model_error(rows[again], t, Strength.FULL))
        shown = (2 * error < margin).all(1)
        self.slack[rows] = torch.where(shown[:, None], error, 0.0)
        self.over_reals[rows] = ~shown

    def _model_error(self, rows: Tensor, t: int, strength: Strength) -> Tensor:
        region = OneSitePerGroup(self.whole(rows, t).sites(self.order), *self.ends, rows, self.pixels)
        return model_error(self.bounds, self.clean, region, self.y[rows], strength)

    @cached_property
    def points(self) -> Tensor:
        """Return the inputs as (rows, height, width, channels), in float64."""
        return image(self.x.double()).contiguous()

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Return how far each feature may move (rows, height, width, channels), around 0."""
        lo, hi = (image(t.double()).contiguous() - self.points for t in (self.lower, self.upper))
        return lo * (1 + 4 * UNIT), hi * (1 + 4 * UNIT)

    @cached_property
    def clean(self) -> list[Value]:
        """Return the values of every layer for the inputs."""
        return self.bounds.network.values(self.points, self.bounds.tick)

    @cached_property
    def order(self) -> Tensor:
        """Return the sites along a curve that keeps neighbours together."""
        h, w, c = self.points.shape[1:]
        return curve(h, w, 1 if self.pixels else c).to(self.x.device)

    @property
    def sites(self) -> int:
        """Return the number of sites."""
        return len(self.order)

    @property
    def features(self) -> int:
        """Return the number of features of a site."""
        return self.points.shape[3] if self.pixels else 1

    def whole(self, rows: Tensor, t: int) -> "SiteGroups":
        """Return one subproblem per row, which allows any t sites."""
        shape = (len(rows), t)
        return SiteGroups(rows, rows.new_zeros(shape), rows.new_full(shape, self.sites))

    def outside(self, points: Tensor) -> Tensor:
        """Return points (rows, height, width, channels) in torch's layout and the inputs' number format."""
        return points.movedim(-1, 1).reshape(len(points), *self.x.shape[1:]).to(self.x.dtype)

    def fooled(self, points: Tensor, rows: Tensor) -> Tensor:
        """Return whether points in torch's layout get another class than their rows.

        The model's output is compared with that of the traced layers at every point.
        """
        found = [torch.zeros(0, dtype=torch.bool, device=points.device)]
        for part, row in zip(torch.split(points, ROWS), torch.split(rows, ROWS), strict=True):
            self.bounds.tick()
            with torch.no_grad():
                logits = self.model(part)
                self.bounds.network.compare(logits, part)
            found.append(logits.argmax(1) != self.y[row])
        return torch.cat(found)

    def prove(self, clean: list[Value], region: OneSitePerGroup, rows: Tensor, strength: Strength) -> Tensor:
        """Return for which regions, each of one of the question's rows, a bound proves that the class stays."""
        return (self.bounds.margins(clean, region, self.y[rows], strength) > self.slack[rows]).all(1)


@dataclass(frozen=True, eq=False)
class _Batch:
    """A batch of subproblems: tensors with an entry for each; `rows` says which input it is about."""

    rows: Tensor

    def __len__(self) -> int:
        """Return the number of subproblems."""
        return len(self.rows)

    def take(self, chosen: Tensor | slice) -> Self:
        """Return some of the subproblems."""
        return ops.each(lambda values: values[chosen], self)


@dataclass(frozen=True, eq=False)
class SiteGroups(_Batch):
    """The begins and ends of each subproblem's ranges (subproblems, t).

    Sites are numbered along a curve that keeps neighbours together, so a range is a compact patch of the image. A range
    that occurs several times allows as many of its sites to change. Two ranges of a subproblem are equal, and then side
    by side, or have no site in common.
    """

    begin: Tensor
    end: Tensor

    @property
    def longest(self) -> Tensor:
        """Return the number of sites of each longest range."""
        return (self.end - self.begin).amax(1)

    def sizes(self, question: Question) -> Tensor:
        """Return the power of two that holds the longest range of each."""
        return self.longest.double().log2().ceil().long()

    def sites(self, order: Tensor) -> Tensor:
        """Return the sites of each range (subproblems, t, places), -1 beyond its end."""
        width = int(self.longest.max())
        place = self.begin[:, :, None] + torch.arange(width, device=order.device)
        inside = place < self.end[:, :, None]
        return torch.where(inside, order[place.clamp_max(len(order) - 1)], -1)

    def proved(self, question: Question, strength: Strength) -> Tensor:
        """Return which subproblems a bound proves."""
        sites = self.sites(question.order)
        region = OneSitePerGroup(sites, *question.ends, self.rows, question.pixels)
        return question.prove(question.clean, region, self.rows, strength)

    def split(self) -> "SiteGroups":
        """Split each longest range in two; together the parts allow what these allow.

        A range that occurs m times becomes j times its first half and m - j times its second, for every j, but never
        more often than a half has sites.
        """
        length = self.end - self.begin
        longest = length.amax(1, keepdim=True)
        first = (length == longest).to(torch.int8).argmax(1, keepdim=True)
        place = torch.arange(length.shape[1], device=length.device)
        start, stop = self.begin.gather(1, first), self.end.gather(1, first)
        middle = (start + stop) // 2
        same = (self.begin == start) & (self.end == stop)
        times = same.sum(1, keepdim=True)
        children = []
        for j in range(length.shape[1] + 1):
            left = same & (place < first + j)
            right = same & ~left
            fits = (j <= times) & (j <= middle - start) & (times - j <= stop - middle)
            begin = torch.where(right, middle, self.begin)
            end = torch.where(left, middle, self.end)
            children.append(SiteGroups(self.rows, begin, end).take(fits[:, 0]))
        found: SiteGroups = join(children)
        return found


@dataclass(frozen=True, eq=False)
class ValueBoxes(_Batch):
    """Chosen sites (boxes, t), and the ends of the values of their features (boxes, t, features)."""

    sites: Tensor
    low: Tensor
    high: Tensor

    @staticmethod
    def whole(question: Question, rows: Tensor, sites: Tensor) -> "ValueBoxes":
        """Return boxes of all values that sites (boxes, t) may have."""
        ends = []
        for end in (question.lower, question.upper):
            by_site = image(end.double()).reshape(len(end), -1, question.features)
            ends.append(by_site.expand(len(question.x), -1, -1)[rows[:, None], sites])
        return ValueBoxes(rows, sites, ends[0], ends[1])

    @property
    def middle(self) -> Tensor:
        """Return the middles, rounded to float32 where that stays inside, so that the model can be asked about them."""
        exact = (self.low + self.high) / 2
        rounded = exact.float().double()
        return torch.where((rounded > self.low) & (rounded < self.high), rounded, exact)

    def points(self, question: Question, values: Tensor) -> Tensor:
        """Return inputs with these values (boxes, t, features) at the sites."""
        base = question.points[self.rows]
        flat = base.reshape(len(base), -1, values.shape[2])
        return flat.scatter(1, self._index(values), values).view_as(base)

    def _index(self, values: Tensor) -> Tensor:
        return self.sites[:, :, None].expand_as(values)

    def corners(self, question: Question) -> tuple[Tensor, Tensor]:
        """Return points at corners of the boxes that fool the model, and their rows."""
        features = self.low[0].numel()
        if 2**features <= MAX_CORNERS:
            bits = torch.arange(2**features, device="cpu")[:, None] >> torch.arange(features, device="cpu") & 1
        else:  # some of them, always the same
            bits = torch.randint(2, (MAX_CORNERS, features), generator=torch.Generator().manual_seed(0), device="cpu")
        bits = bits.bool().to(self.rows.device).view(-1, *self.low.shape[1:])
        found, rows = [], []
        for corner in bits:
            tried = question.outside(self.points(question, torch.where(corner, self.high, self.low)))
            good = question.fooled(tried, self.rows)
            found.append(tried[good])
            rows.append(self.rows[good])
        return torch.cat(found), torch.cat(rows)

    def proved(self, question: Question, strength: Strength) -> Tensor:
        """Return which boxes a bound proves."""
        middle = self.middle
        base = self.points(question, middle)
        clean = question.bounds.network.values(base, question.bounds.tick)
        rows = torch.arange(len(self), device=self.rows.device)
        ends = []
        for end in (self.low, self.high):
            flat = torch.zeros_like(base).reshape(len(base), -1, middle.shape[2])
            ends.append(flat.scatter(1, self._index(middle), end - middle).view_as(base))
        region = OneSitePerGroup(self.sites[:, :, None], ends[0], ends[1], rows, question.pixels)
        return question.prove(clean, region, self.rows, strength)

    def _widths(self, question: Question) -> Tensor:
        """Return the widths as shares of the whole (boxes, features)."""
        whole = ValueBoxes.whole(question, self.rows, self.sites)
        return ((self.high - self.low) / (whole.high - whole.low).clamp_min(1e-30)).flatten(1)

    def sizes(self, question: Question) -> Tensor:
        """Return the power of two of each box's share of all values: minus the number of halvings, at most -1."""
        return self._widths(question).clamp_min(1e-9).log2().sum(1).floor().long().clamp_max(-1)

    def split(self, question: Question) -> tuple["ValueBoxes", "ValueBoxes"]:
        """Halve boxes at the widest feature; return the halves, and the boxes that are too narrow."""
        width = self._widths(question)
        widest, place = width.max(1)
        between = ((self.middle > self.low) & (self.middle < self.high)).flatten(1)  # float64 has a number there
        good = (widest > NARROWEST) & between.gather(1, place[:, None])[:, 0]
        wide, place = self.take(good), place[good]
        cut = torch.nn.functional.one_hot(place, width.shape[1]).bool().view_as(wide.low)
        lower = ValueBoxes(wide.rows, wide.sites, wide.low, torch.where(cut, wide.middle, wide.high))
        upper = ValueBoxes(wide.rows, wide.sites, torch.where(cut, wide.middle, wide.low), wide.high)
        return join([lower, upper]), self.take(~good)


Subproblems = SiteGroups | ValueBoxes


def join(parts: list[Any]) -> Any:
    """Join several batches of one kind of subproblem."""
    return ops.each(lambda *values: torch.cat(values), *parts)


def curve(height: int, width: int, channels: int) -> Tensor:
    """Order sites (height, width, channels) along a Z-shaped curve; the channels of a position stay together.

    >>> curve(2, 4, 1).tolist()
    [0, 1, 4, 5, 2, 3, 6, 7]
    """
    y, x = torch.meshgrid(torch.arange(height, device="cpu"), torch.arange(width, device="cpu"), indexing="ij")
    code = torch.zeros_like(y)
    for bit in range(max(height, width).bit_length()):
        code |= ((y >> bit & 1) << (2 * bit + 1)) | ((x >> bit & 1) << (2 * bit))
    place = code.flatten().argsort()
    return (place[:, None] * channels + torch.arange(channels, device="cpu")).flatten()
