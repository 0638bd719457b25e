"""When the sites are decided: boxes of their values, halved until each is proved or fools the model."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sigmazero.certifier.bounds import Effort, Unchanged
from sigmazero.certifier.inquiry import Inquiry
from sigmazero.certifier.operations import image
from sigmazero.certifier.piles import join
from sigmazero.certifier.regions import Groups

NARROW = 2.0**-14  # of the width of the box: a part that is neither proved nor a witness is given up
CORNERS = 16  # of a box that are tried at most


@dataclass(frozen=True, eq=False)
class Boxes:
    """Rows of inputs, chosen sites (boxes, t), and the ends of the values of their features (boxes, t, features)."""

    rows: Tensor
    sites: Tensor
    low: Tensor
    high: Tensor

    def __len__(self) -> int:
        """Number of boxes."""
        return len(self.rows)

    def take(self, chosen: Tensor | slice) -> "Boxes":
        """Some of the boxes."""
        return Boxes(self.rows[chosen], self.sites[chosen], self.low[chosen], self.high[chosen])

    @property
    def middle(self) -> Tensor:
        """The middles, as numbers that float32 has where there is one between, so that a witness is the model's."""
        exact = (self.low + self.high) / 2
        rounded = exact.float().double()
        return torch.where((rounded > self.low) & (rounded < self.high), rounded, exact)


def whole_boxes(inquiry: Inquiry, rows: Tensor, sites: Tensor) -> Boxes:
    """All values that the sites may have."""
    channels = inquiry.points.shape[3] if inquiry.pixels else 1
    ends = [image_ends(inquiry, t, channels)[rows[:, None], sites] for t in (inquiry.lower, inquiry.upper)]
    return Boxes(rows, sites, *ends)


def image_ends(inquiry: Inquiry, ends: Tensor, channels: int) -> Tensor:
    """The ends of the box by site (rows, sites, features)."""
    return image(ends.double()).reshape(len(ends), -1, channels).expand(len(inquiry.x), -1, -1)


def points(inquiry: Inquiry, boxes: Boxes, values: Tensor) -> Tensor:
    """Inputs with these values (boxes, t, features) at the boxes' sites."""
    base = inquiry.points[boxes.rows]
    flat = base.reshape(len(base), -1, values.shape[2])
    index = boxes.sites[:, :, None].expand_as(values)
    return flat.scatter(1, index, values).view_as(base)


def corners(inquiry: Inquiry, boxes: Boxes) -> tuple[Tensor, Tensor]:
    """Points at corners of the boxes that fool the model, and their rows: one for each input at most."""
    features = boxes.low[0].numel()
    if 2**features <= CORNERS:
        bits = torch.arange(2**features, device="cpu")[:, None] >> torch.arange(features, device="cpu") & 1
    else:  # some of them, always the same
        bits = torch.randint(2, (CORNERS, features), generator=torch.Generator().manual_seed(0), device="cpu")
    bits = bits.bool().to(boxes.rows.device).view(-1, *boxes.low.shape[1:])
    found, rows = [], []
    for corner in bits:
        tried = inquiry.outside(points(inquiry, boxes, torch.where(corner, boxes.high, boxes.low)))
        good = inquiry.fooled(tried, boxes.rows)
        found.append(tried[good])
        rows.append(boxes.rows[good])
    return torch.cat(found), torch.cat(rows)


def middles(inquiry: Inquiry, boxes: Boxes) -> Tensor:
    """The inputs in the middle of each box, in torch's shape."""
    return inquiry.outside(points(inquiry, boxes, boxes.middle))


def proved(inquiry: Inquiry, boxes: Boxes, effort: Effort) -> Tensor:
    """Which boxes hold no input that fools the network."""
    middle = boxes.middle
    base = points(inquiry, boxes, middle)
    with torch.inference_mode():
        clean = Unchanged.of(inquiry.bounder.network, base)
    rows = torch.arange(len(boxes), device=boxes.rows.device)
    ends = []
    for end in (boxes.low, boxes.high):
        flat = torch.zeros_like(base).reshape(len(base), -1, middle.shape[2])
        ends.append(flat.scatter(1, boxes.sites[:, :, None].expand_as(middle), end - middle).view_as(base))
    region = Groups(boxes.sites[:, :, None], ends[0], ends[1], rows, inquiry.pixels)
    return inquiry.bounder.margins(clean, rows, inquiry.y[boxes.rows], region, effort).amin(1) > 0


def _widths(inquiry: Inquiry, boxes: Boxes) -> Tensor:
    """The widths of the boxes as shares of the whole (boxes, features)."""
    whole = whole_boxes(inquiry, boxes.rows, boxes.sites)
    return ((boxes.high - boxes.low) / (whole.high - whole.low).clamp_min(1e-30)).flatten(1)


def levels(inquiry: Inquiry, boxes: Boxes) -> Tensor:
    """How often each box was halved, as a number below 0."""
    return _widths(inquiry, boxes).clamp_min(1e-9).log2().sum(1).floor().long().clamp_max(-1)


def halved(inquiry: Inquiry, boxes: Boxes) -> tuple[Boxes, Boxes]:
    """The halves of boxes at the widest feature, and the boxes that are too narrow for that."""
    width = _widths(inquiry, boxes)
    widest, place = width.max(1)
    between = ((boxes.middle > boxes.low) & (boxes.middle < boxes.high)).flatten(1)  # float64 has a number there
    good = (widest > NARROW) & between.gather(1, place[:, None])[:, 0]
    kept, place = boxes.take(good), place[good]
    cut = torch.nn.functional.one_hot(place, width.shape[1]).bool().view_as(kept.low)
    middle = kept.middle
    lower = Boxes(kept.rows, kept.sites, kept.low, torch.where(cut, middle, kept.high))
    upper = Boxes(kept.rows, kept.sites, torch.where(cut, middle, kept.low), kept.high)
    return join([lower, upper]), boxes.take(~good)
