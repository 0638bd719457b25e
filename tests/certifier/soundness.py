"""Random tiny networks of all kinds of layers, and what their margins really are: none may be below a bound."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.certifier.bounds import NetworkBounds, Strength
from sigmazero.certifier.graph import trace
from sigmazero.certifier.regions import OneSitePerGroup
from sigmazero.certifier.subproblems import Question, SiteGroups
from sigmazero.models.normalize import Normalize

POINTS = 150  # of each region that are tried
TASKS = 4


class Residual(nn.Module):
    """A sum of two ways."""

    def __init__(self, inner: nn.Module, beside: nn.Module) -> None:
        super().__init__()
        self.inner, self.beside = inner, beside

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = self.inner(x) + self.beside(x)
        return total


def random_network(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    """A network in eval mode, and the shape of its inputs."""
    torch.manual_seed(seed)

    def pick(*choices):
        return choices[int(torch.randint(len(choices), ()))]

    def bend():
        return pick(nn.ReLU(), nn.ReLU(inplace=True), nn.LeakyReLU(pick(0.1, 0.4)))

    classes = pick(2, 3)
    if seed % 5 == 0:
        width, features = pick(5, 9), pick(6, 9)
        layers = [nn.Linear(features, width), bend(), nn.Linear(width, 6), nn.BatchNorm1d(6), bend()]
        return with_weights(nn.Sequential(*layers, nn.Linear(6, classes))), (features,)
    channels, size = pick(1, 2), pick(5, 6)
    first = nn.Conv2d(channels, 4, pick(2, 3), stride=pick(1, 2), padding=pick(0, 1), bias=pick(True, False))
    layers = [first, pick(nn.BatchNorm2d(4), nn.Identity()), bend()]
    middle = pick("conv", "grouped", "dilated", "residual", "down", "none")
    if middle == "residual":
        way = nn.Sequential(nn.BatchNorm2d(4), bend(), nn.Conv2d(4, 4, 3, padding=1))
        layers.append(Residual(way, nn.Identity()))
    elif middle == "down":
        layers.append(Residual(nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 1, stride=2)))
    elif middle != "none":
        how: Any = {"conv": {}, "grouped": {"groups": 2}, "dilated": {"dilation": 2}}[middle]
        layers += [nn.Conv2d(4, 4, 2, padding=1, **how), bend()]
    pool = pick("max", "wide", "average", "global", "none")
    pools = {"max": nn.MaxPool2d(2), "wide": nn.MaxPool2d(3, 2, 1), "average": nn.AvgPool2d(2, 1)}
    layers += [{**pools, "global": nn.AdaptiveAvgPool2d(1), "none": nn.Identity()}[pool], nn.Flatten()]
    mean = [0.3] * channels
    body = nn.Sequential(*([Normalize(mean, [0.7] * channels)] if pick(True, False) else []), *layers).eval()
    try:
        width = body(torch.rand(2, channels, size, size)).shape[1]
    except RuntimeError:  # the image became smaller than a window
        return random_network(seed + 1_000_003)
    head = pick([nn.Linear(width, classes)], [nn.Linear(width, 5), bend(), nn.Linear(5, classes)])
    return with_weights(nn.Sequential(body, *head)), (channels, size, size)


def with_weights(model: nn.Module) -> nn.Module:
    """With statistics of norms as training leaves them, and weights that matter."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            for statistic, low, high in ((module.running_mean, -0.5, 0.5), (module.running_var, 0.3, 2.0)):
                assert statistic is not None
                statistic.uniform_(low, high)
            nn.init.normal_(module.weight)
            nn.init.normal_(module.bias, std=0.3)
        elif isinstance(module, nn.Conv2d | nn.Linear):
            with torch.no_grad():
                module.weight.mul_(1.7)
    return model.requires_grad_(False).eval()


@dataclass
class Found:
    """Of how many bounds how many were wrong, and how near the points came: the least difference to a bound."""

    bounds: int
    wrong: int
    nearest: float


def examined(seed: int, make: Callable[[int], tuple[nn.Module, tuple[int, ...]]] = random_network) -> Found:
    """The bounds of one random network on random regions, against many points of each."""
    model, shape = make(seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(2, *shape, generator=generator)
    y = model(x).argmax(1)
    pixels = seed % 3 == 0 and len(shape) == 3
    bounds = NetworkBounds(trace(model, x), 2**12)
    question = Question(model, bounds, x, y, torch.zeros_like(x), torch.ones_like(x), pixels)
    rows = torch.randint(2, (TASKS,), generator=generator)
    region, chosen = _groups(question, rows, generator)
    points = _points(question, rows, chosen, generator)
    logits = model.double()(points.movedim(-1, 1).reshape(-1, *shape)).view(TASKS, POINTS, -1)
    margins = logits.gather(2, y[rows][:, None, None].expand(-1, POINTS, 1)) - logits
    least = margins.amin(1).scatter(1, y[rows][:, None], torch.inf)
    found = Found(0, 0, torch.inf)
    for strength in Strength:
        bound = bounds.margins(question.clean, region, y[rows], strength)
        room = (least - bound)[bound.isfinite()]
        found = Found(
            found.bounds + len(room), found.wrong + int((room < 0).sum()), min(found.nearest, float(room.min()))
        )
    return found


def _groups(question: Question, rows: Tensor, generator: torch.Generator):
    """Return ranges of sites, now and then the same twice, and for each point the sites that change."""
    t = int(torch.randint(1, 4, (), generator=generator))
    size = int(torch.randint(1, 4, (), generator=generator))
    slots = question.sites // size
    begin = torch.randint(slots, (TASKS, t), generator=generator).sort(1).values * size
    tasks = SiteGroups(rows, begin, begin + size)
    sites = tasks.sites(question.order)
    chosen = sites.gather(2, torch.randint(size, (TASKS, t, POINTS), generator=generator)).transpose(1, 2)
    return OneSitePerGroup(sites, *question.ends, rows, question.pixels), chosen


def _points(question: Question, rows: Tensor, chosen: Tensor, generator: torch.Generator) -> Tensor:
    """Inputs with values at the chosen sites (tasks, points, sites; -1 for none): corners, and numbers between."""
    base = question.points[rows][:, None].expand(-1, POINTS, -1, -1, -1)
    channels = base.shape[4] if question.pixels else 1
    flat = base.reshape(TASKS * POINTS, -1, channels)
    flat = torch.cat((flat, torch.zeros_like(flat[:, :1])), 1)  # a place for sites that are none
    sites = torch.where(chosen < 0, flat.shape[1] - 1, chosen).reshape(TASKS * POINTS, -1)
    value = torch.rand(*sites.shape, channels, dtype=torch.float64, generator=generator)
    corner = torch.rand(*sites.shape, channels, generator=generator) < 0.7
    value = torch.where(corner, value.round(), value)
    flat = flat.scatter(1, sites[:, :, None].expand(-1, -1, channels), value)[:, :-1]
    return flat.reshape(TASKS * POINTS, *base.shape[2:])
