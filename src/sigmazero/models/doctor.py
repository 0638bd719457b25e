"""Look at a model on a few rows before attacking it, and name what would make the numbers meaningless.

Nothing is changed: modes are restored, no gradients are left behind, inputs are copied, and the random state is put
back. A model that raises an exception is a finding too.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from sigmazero.core.findings import LOOK_FOR, MANY, ROUNDING, STEADY, Finding, coded
from sigmazero.core.inputs import Bounds
from sigmazero.core.model import ability_of, in_eval_mode, logits_in, looks_last
from sigmazero.core.oracle import Model
from sigmazero.models.any import understood
from sigmazero.models.doctor_scale import examine_scale
from sigmazero.models.doctor_space import examine_space
from sigmazero.spaces.space import Space

ROWS = 64  # enough to tell chance from skill, few enough to be unnoticed before an attack
CHANCE = 0.15  # guessing does at least this well with this probability: the score says nothing

TINY = 1e-3  # of the margin: what all features together could move it by, to first order
BELOW = 0.1  # by which the accuracy may fall short of what is claimed, beyond what chance explains
SURE = 1e-3  # probability with which chance does explain it


def examine(
    model: object,
    images: Tensor,
    labels: Tensor,
    *,
    bounds: Bounds = (0.0, 1.0),
    space: Space | None = None,
    claimed: float | None = None,
) -> list[Finding]:
    """What is wrong with this model on these rows (at most 64, evenly spread), in the order of the codes.

    With a space also what is wrong with that, judged by all rows. `claimed` is the accuracy, in percent, that the model
    is known to have; None if nobody says.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Softmax(dim=1)).eval()
    >>> [finding.code for finding in examine(net, torch.rand(2, 1, 2, 2), torch.tensor([0, 1]))]
    ['SZ001']
    """
    if images.ndim < 1 or len(images) == 0 or len(labels) != len(images):
        raise ValueError(
            f"the doctor needs at least one row and one label per row, got images {tuple(images.shape)} and "
            f"labels {tuple(labels.shape)}"
        )
    picks = torch.linspace(0, len(images) - 1, min(ROWS, len(images)), device="cpu").round().long()
    network = understood(model)
    findings: list[Finding] = []
    # Leaving inference mode is what allows gradients when the caller forbids them.
    devices = [images.device] if images.is_cuda else []
    with torch.inference_mode(False), torch.random.fork_rng(devices=devices), torch.enable_grad():
        x = images[picks.to(images.device)].clone().detach()
        y = labels[picks.to(labels.device)].clone().detach().to(x.device)
        x = x if x.is_floating_point() else x.float()
        findings += _check_bounds(x, bounds) if space is None else examine_space(space, images)
        findings += _check_layout(x)
        if isinstance(network, nn.Module):
            findings += _check_mode(network)
        with in_eval_mode(network):
            findings += _check_answers(network, x, y, claimed)
    return sorted(findings, key=lambda finding: finding.code)


def _check_bounds(x: Tensor, bounds: Bounds) -> list[Finding]:
    low, high = (torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in bounds)
    inside = (x >= low) & (x <= high)  # a NaN is inside nothing
    if bool(inside.all()):
        return []
    fix = "pass the bounds the inputs really have, or bring the inputs into the bounds"
    if float(x.min()) >= 0 and 1 < float(x.max()) <= 255:
        fix = "these look like 8-bit values: divide them by 255"
    elif float(x.min()) < 0:
        fix = "these look normalised: keep the inputs in [0, 1] and put the normalisation into the model"
    share = 1 - float(inside.double().mean())
    detail = f"{share:.1%} of the values are outside; inputs range from {float(x.min()):g} to {float(x.max()):g}."
    return [coded("SZ006", detail, fix)]


def _check_layout(x: Tensor) -> list[Finding]:
    if not looks_last(tuple(x.shape)):
        return []
    fix = "give the inputs as (N, C, H, W), x.permute(0, 3, 1, 2), and the model as sz.wrap(model, channels='last')"
    return [coded("SZ021", f"Inputs have shape {tuple(x.shape[1:])}.", fix, "warning")]


def _check_mode(model: nn.Module) -> list[Finding]:
    batch_norm = nn.modules.batchnorm._BatchNorm
    dropout = nn.modules.dropout._DropoutNd
    kinds = sorted(
        {type(part).__name__ for part in model.modules() if isinstance(part, batch_norm | dropout) and part.training}
    )
    if not kinds:
        return []
    detail = f"{', '.join(kinds)} would answer differently in training mode."
    return [coded("SZ002", detail, "call model.eval(); attacks run in eval mode and restore yours", "warning")]


def _check_answers(model: Model, x: Tensor, y: Tensor, claimed: float | None) -> list[Finding]:
    """Everything that needs the model to be called."""
    try:
        with torch.no_grad():
            first, second = _copy(_read(model(given := x.clone()))), _read(model(x.clone()))
    except Exception as error:
        return [_raised(error)]
    shape_problems = _check_shape(first, x) or _check_shape(second, x)
    if shape_problems:
        return shape_problems
    # A model may switch gradients on by itself, or answer from another device.
    first, second = first.detach().to(x.device), second.detach().to(x.device)
    if first.shape != second.shape:
        return [coded("SZ003", f"Two calls gave {first.shape[1]} and {second.shape[1]} columns.", STEADY)]
    findings = [
        *_check_writes(x, given),
        *_check_finite(first),
        *(_check_probabilities(first) if ability_of(model) != "labels" else []),
        *_check_random(first, second),
    ]
    label_problems = _check_labels(first, y)
    if label_problems:
        return findings + label_problems
    findings += _check_chance(first, y) or _check_claim(first, y, claimed)
    # A model that says it has no gradients is asked for none, and for nothing that is only suspected.
    if ability_of(model) != "gradients":
        return findings
    return [*findings, *examine_scale(model, x, y, first), *_check_gradient(model, x, y.long())]


def _read(answer: Any) -> Any:
    """The logits in an answer, or the answer itself where they are not found, for `_check_shape` to name it."""
    try:
        return logits_in(answer)
    except TypeError:
        return answer


def _copy(answer: Any) -> Any:
    """What the next call must not change, as some models give the same memory again; it may be no tensor at all."""
    return answer.clone() if isinstance(answer, Tensor) else answer


def _check_writes(x: Tensor, given: Tensor) -> list[Finding]:
    if not given._version and torch.equal(x, given):  # x.clamp_(0, 1) may change no value here
        return []
    fix = "write x = x - mean instead of x.sub_(mean); attacks here give it a copy, other tools may not"
    return [coded("SZ015", "A call wrote to the values it was given.", fix, "warning")]


def _raised(error: Exception) -> Finding:
    detail = f"{type(error).__name__}: {error}"
    return coded("SZ011", detail, "call the model on one batch yourself; check shape, type and device of the inputs")


def _check_shape(logits: object, x: Tensor) -> list[Finding]:
    fix = "return one tensor of shape (rows, classes); wrap the model if it returns a tuple or a dictionary"
    if not isinstance(logits, Tensor):
        return [coded("SZ008", f"The model returned a {type(logits).__name__}.", fix)]
    if logits.ndim != 2 or len(logits) != len(x) or not logits.is_floating_point():
        detail = f"{len(x)} inputs gave {logits.dtype} of shape {tuple(logits.shape)}."
        return [coded("SZ008", detail, fix)]
    if logits.shape[1] < 2:
        fix = "for a model with one score s, return the two columns (-s, s)"
        return [coded("SZ009", f"The output has {logits.shape[1]} column(s).", fix)]
    return []


def _check_finite(logits: Tensor) -> list[Finding]:
    bad = int((~logits.isfinite()).any(dim=1).sum())
    if not bad:
        return []
    fix = "look for a division by zero, log(0) or overflow; half precision overflows at 65,504"
    return [coded("SZ007", f"{bad} of {len(logits)} rows have NaN or infinite logits.", fix)]


def _check_probabilities(logits: Tensor) -> list[Finding]:
    tolerance = 1e-2 if torch.finfo(logits.dtype).bits < 32 else 1e-4
    if not bool((logits >= 0).all() & ((logits.sum(dim=1) - 1).abs() < tolerance).all()):
        return []
    fix = "return the values before the softmax, or return the logarithm of the probabilities"
    return [coded("SZ001", "No output is negative and every row sums to 1.", fix, "warning")]


def _check_random(first: Tensor, second: Tensor) -> list[Finding]:
    finite = first.isfinite() & second.isfinite()
    if not bool(finite.any()):
        return []
    gap, scale = (first - second)[finite].abs().max(), first[finite].abs().max().clamp_min(1.0)
    if float(gap / scale) <= ROUNDING * torch.finfo(first.dtype).eps:
        return []
    return [coded("SZ003", f"Two calls on the same rows differ by up to {float(gap):.3g}.", STEADY)]


def _check_labels(logits: Tensor, y: Tensor) -> list[Finding]:
    classes = logits.shape[1]
    if y.ndim != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        detail = f"The labels are {y.dtype} of shape {tuple(y.shape)}."
        return [coded("SZ010", detail, "give one whole number per row, the class; argmax undoes one-hot labels")]
    wrong = y[(y < 0) | (y >= classes)]
    if not len(wrong):
        return []
    detail = f"{len(wrong)} of {len(y)} labels are outside 0 to {classes - 1}, the first is {int(wrong[0])}."
    return [coded("SZ010", detail, "check that the data set belongs to the model and that labels count from 0")]


def _check_chance(logits: Tensor, y: Tensor) -> list[Finding]:
    rows, classes = logits.shape
    right = int((logits.argmax(dim=1) == y).sum())
    chance = 1 / classes
    as_good = sum(math.comb(rows, k) * chance**k * (1 - chance) ** (rows - k) for k in range(right, rows + 1))
    # Below eight rows even a good model can look like a guess.
    if rows < 8 or as_good <= CHANCE:
        return []
    detail = f"{right} of {rows} rows are right; guessing among {classes} classes gives {rows * chance:.1f}."
    fix = "check the normalisation (inside the model or not at all), the label order and that weights were loaded"
    return [coded("SZ005", detail, fix, "warning")]


def _check_claim(logits: Tensor, y: Tensor, claimed: float | None) -> list[Finding]:
    """Whether a model that is as accurate as claimed would be right so seldom in these rows."""
    if claimed is None:
        return []
    rows, right = len(y), int((logits.argmax(dim=1) == y).sum())
    share = min(max(claimed / 100, 0.0), 1.0)
    as_bad = sum(math.comb(rows, k) * share**k * (1 - share) ** (rows - k) for k in range(right + 1))
    if right / rows >= share - BELOW or as_bad > SURE:
        return []
    detail = f"{right} of {rows} rows ({right / rows:.1%}) are right; {claimed:g} % is claimed."
    fix = "check the normalisation (inside the model or not at all), the order of channels and labels, and the weights"
    return [coded("SZ030", detail, fix)]


def _check_gradient(model: Model, x: Tensor, y: Tensor) -> list[Finding]:
    x = x.clone().requires_grad_()
    fix = "remove detach(), no_grad(), numpy and rounding from the forward pass, or use a gradient-free attack"
    try:
        logits = logits_in(model(x.clone())).to(x.device)
        if not logits.requires_grad:
            return [coded("SZ012", "The logits carry no gradient.", fix)]
        true = logits.gather(1, y[:, None])[:, 0]
        rival = logits.scatter(1, y[:, None], -math.inf).amax(dim=1)
        margin = true - rival
        gradient: Tensor | None = torch.autograd.grad(margin.sum(), x, allow_unused=True)[0]
    except Exception as error:
        return [_raised(error)]
    if gradient is None:
        return [coded("SZ012", "The logits do not depend on the inputs.", fix)]
    flat, findings = gradient.flatten(1), []
    zero, broken = int((flat == 0).all(dim=1).sum()), int((~flat.isfinite()).any(dim=1).sum())
    if zero:
        detail = f"{zero} of {len(x)} rows ({zero / len(x):.0%}) have no gradient at all."
        findings.append(coded("SZ004", detail, LOOK_FOR, "error" if zero > MANY * len(x) else "warning"))
    # What moving every feature by as much as the rows show of it could change, to first order.
    reach = (flat.detach().abs() * (x.detach().amax(0) - x.detach().amin(0)).flatten()).sum(1)
    tiny = int(((reach > 0) & (reach < TINY * margin.detach().abs())).sum())
    if len(x) > 1 and tiny > MANY * len(x):
        detail = f"{tiny} of {len(x)} rows have gradients that move the margin by less than {TINY:.1%} of it."
        fix = "look for a scale, a temperature or a saturated output that hides them; attack plain logits"
        findings.append(coded("SZ032", detail, fix))
    if broken:
        detail = f"{broken} of {len(x)} rows have NaN or infinite gradients."
        findings.append(coded("SZ013", detail, "look for sqrt(0), division by zero or overflow in the model"))
    return findings
