"""What SparseFool is made of: DeepFool (https://arxiv.org/abs/1511.04599) and the walk to a plane inside a box.

Rows need different numbers of DeepFool steps; each step asks only about the rows that still need one.
"""

import torch
from torch import Tensor

from sigmazero.core import ops
from sigmazero.core.oracle import Oracle


def rank_classes(logits: Tensor, y: Tensor, most: int | None) -> Tensor:
    """The class of each row, then the others by decreasing logit: (N, classes), `most` of them at most."""
    others = logits.scatter(1, y[:, None], -torch.inf).argsort(1, descending=True)[:, :-1]
    return torch.cat([y[:, None], others[:, : None if most is None else most - 1]], 1)


def deepfool(
    oracle: Oracle, rows: Tensor, start: Tensor, classes: Tensor, *, steps: int, overshoot: float, clipped: bool
) -> tuple[Tensor, Tensor]:
    """A nearby point of another class for some of the rows, and that class.

    As published (not `clipped`), steps may leave the box and are at least 1e-4 long, and the point tested lies
    `overshoot` further away than the point returned. With `clipped`, each step is longer by `overshoot` and ends
    inside the box. The class is the one reached, or the one last aimed at.
    """
    points, reached = start.clone(), classes[:, 1].clone()
    active = torch.arange(len(rows), device=rows.device)
    for _ in range(steps):
        part = oracle.part(rows[active])
        logits, slopes = part.jacobian(points[active], classes[active])
        move, aim = _nearest(logits.gather(1, classes[active]), slopes, 0.0 if clipped else 1e-4)
        if clipped:
            test = moved = part.domain.clip(points[active] + (1 + overshoot) * move)
        else:
            moved = points[active] + move
            test = start[active] + (1 + overshoot) * (moved - start[active])
        points[active] = moved
        answer = part.logits(test)
        oracle.absorb(part, rows[active])
        fooled = part.goal.fooled(answer)
        aimed = classes[active].gather(1, aim[:, None] + 1).squeeze(1)
        reached[active] = torch.where(fooled, answer.argmax(1), aimed)
        active = active[~fooled]
        if not len(active):
            break
    return points, reached


def _nearest(z: Tensor, slopes: Tensor, least: float) -> tuple[Tensor, Tensor]:
    """The step to the nearest linearised boundary, and which: logits (N, K) and gradients (N, K, ...), own first."""
    f, w = (z[:, 1:] - z[:, :1]).abs(), slopes[:, 1:] - slopes[:, :1]
    length = w.flatten(2).norm(dim=2)
    # A class whose gradient does not differ is never nearest; where none differs the point stays.
    distance = torch.where(length > 0, f / length.clamp(min=1e-30), torch.inf)
    aim = distance.argmin(1)
    every = torch.arange(len(z), device=z.device)
    far, w, length = distance[every, aim], w[every, aim], length[every, aim]
    scale = torch.where(far.isfinite(), far.clamp(min=least) / length.clamp(min=1e-30), 0.0)
    return ops.per_row(scale, w) * w, aim


def walk_to_plane(start: Tensor, normal: Tensor, through: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """SparseFool's linear solver: move coordinates by decreasing |normal| until the plane is crossed. All (N, d).

    Each goes 0.001 beyond the plane or as far as the box lets it, so all but the last one end at the box, and the
    sequence is a cumulative sum. Where the start lies beyond the plane already, the method pushes every coordinate,
    each by the distance at its turn.
    """
    steepness, order = normal.abs().sort(dim=1, descending=True, stable=True)
    room = torch.where(normal > 0, upper - start, start - lower).gather(1, order)
    usable = steepness > 0
    room = torch.where(usable, room, 0.0)
    gain = torch.where(usable, steepness * room, 0.0)
    height = (normal * (start - through)).sum(1, keepdim=True)
    gained = gain
    # Below the plane the first round is final. Above it, a round settles one more coordinate that the box does not
    # stop; such coordinates double the height, so they are few.
    for _ in range(40):
        before = height + gained.cumsum(1) - gained
        wanted = before.abs() + 0.001
        step = torch.where(height > 0, torch.minimum(gain, wanted), gain)
        if torch.equal(step, gained):
            break
        gained = step
    walking = usable & ((height > 0) | (before < 0))
    amount = torch.where(walking, torch.minimum(room, wanted / steepness.clamp(min=1e-30)), 0.0)
    signed = torch.zeros_like(start).scatter(1, order, amount) * normal.sign()
    return torch.minimum(torch.maximum(start + signed, lower), upper)
