"""Examine a model on a few rows before attacking it, and name what would make the numbers meaningless.

Nothing is changed: modes are restored, no gradients are left behind, inputs are copied, and the random state is put
back. A model that raises an exception is a finding too.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sigmazero.core.findings import LOOK_FOR, MANY, ROUNDING, STEADY, Finding, coded
from sigmazero.core.inputs import Bounds, make_problem
from sigmazero.core.model import Stopped, ability_of, in_eval_mode, logits_in, looks_last
from sigmazero.models.normalize import KNOWN, Normalize
from sigmazero.models.wrapping import understood
from sigmazero.spaces.space import Columns, Space

ROWS = 64  # enough to tell chance from skill, few enough to be unnoticed before an attack
MIN_ROWS = 8  # below which even a good model can look like a guess, and rows show little of a space
CHANCE = 0.15  # guessing does at least this well with this probability: the accuracy says nothing
GOOD = 0.9  # of the rows right: a model this accurate is normalised correctly
UNLIKELY = 1e-3  # probability with which chance explains a difference that is reported
TINY = 1e-3  # of the margin: what all features together could move it by, to first order
BELOW = 0.1  # by which the accuracy may fall short of what is claimed, beyond what chance explains
RENUMBERED, IMPOSSIBLE = 0.3, 1e-6  # gain in accuracy, and its probability, by which other labels are proved
FAR = 100  # times as wide as what the rows show: bounds that were hardly meant
APART = 1000  # times as dear as the cheapest change
MAX_NAMES = 5  # features that a finding names


class Exam:
    """A model and up to 64 rows, evenly spread, with its answers to them."""

    def __init__(
        self, model: object, images: Tensor, labels: Tensor, bounds: Bounds, space: Space | None, claimed: float | None
    ) -> None:
        picks = torch.linspace(0, len(images) - 1, min(ROWS, len(images)), device="cpu").round().long()
        self.model: Any = understood(model)
        self.images, self.bounds, self.space, self.claimed = images, bounds, space, claimed
        x = images[picks.to(images.device)].clone().detach()
        self.x = x if x.is_floating_point() else x.float()
        self.y = labels[picks.to(labels.device)].clone().detach().to(x.device)
        self.given = self.x.clone()  # the copy that the model gets first
        self.first: Any = None
        self.second: Any = None
        self.flows: bool | None = None  # whether gradients reach the inputs; None where that was not checked

    @cached_property
    def right(self) -> Tensor:
        """Mark the rows that the model has right."""
        right: Tensor = self.first.argmax(1) == self.y
        return right

    def summary(self) -> str:
        """Say what was examined: rows, classes, range of the values, accuracy, and whether gradients flow."""
        low, high = float(self.images.min()), float(self.images.max())
        text = (
            f"values from {low:.4g} to {high:.4g}, {len(set(self.y.tolist()))} classes in {len(self.y)} rows examined"
        )
        if isinstance(self.first, Tensor) and self.first.ndim == 2 and len(self.first) == len(self.y):
            text += f", clean accuracy {float(self.right.double().mean()):.1%}"
        return text + {None: "", True: ", gradients flow", False: ", no gradients"}[self.flows]


def examine(
    model: object,
    images: Tensor,
    labels: Tensor,
    *,
    bounds: Bounds = (0.0, 1.0),
    space: Space | None = None,
    claimed: float | None = None,
    say: Callable[[str], object] | None = None,
) -> list[Finding]:
    """Return what is wrong with this model on these rows (at most 64, evenly spread), in the order of the codes.

    space    judged by all rows, in place of the bounds
    claimed  the accuracy, in percent, that the model is known to have
    say      is called with a line about rows, accuracy and gradients

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Softmax(dim=1)).eval()
    >>> [finding.code for finding in examine(net, torch.rand(2, 1, 2, 2), torch.tensor([0, 1]))]
    ['SZ001']
    """
    if images.ndim < 1 or len(images) == 0 or len(labels) != len(images):
        raise ValueError(
            f"at least one row and one label are needed, got {tuple(images.shape)} and {tuple(labels.shape)}"
        )
    devices = [images.device] if images.is_cuda else []
    # Leaving inference mode is what allows gradients when the caller forbids them.
    with torch.inference_mode(False), torch.random.fork_rng(devices=devices), torch.enable_grad():
        exam = Exam(model, images, labels, bounds, space, claimed)
        findings = [*_check_mode(exam)]  # before the mode is changed
        with in_eval_mode(exam.model):
            for check in CHECKS:
                findings += (found := list(check(exam)))
                if found and check in LAST:
                    break
        if say is not None:
            say(exam.summary())
    return sorted(findings, key=lambda finding: finding.code)


def _at_least(k: int, n: int, share: float) -> float:
    """Return the probability of k or more successes in n trials.

    >>> _at_least(2, 2, 0.5), _at_least(0, 3, 0.5)
    (0.25, 1.0)
    """
    return float(sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(k, n + 1)))


# Checks that need no answer of the model


def _check_mode(exam: Exam) -> Iterator[Finding]:
    moody = nn.modules.batchnorm._BatchNorm | nn.modules.dropout._DropoutNd
    parts = exam.model.modules() if isinstance(exam.model, nn.Module) else ()
    if kinds := sorted({type(part).__name__ for part in parts if isinstance(part, moody) and part.training}):
        detail = f"{', '.join(kinds)} would answer differently in training mode."
        yield coded("SZ002", detail, "call model.eval(); attacks run in eval mode and restore yours", "warning")


def _check_inputs(exam: Exam) -> Iterator[Finding]:
    x = exam.x
    if looks_last(tuple(x.shape)):
        fix = "give the inputs as (N, C, H, W), x.permute(0, 3, 1, 2), and the model as sz.wrap(model, channels='last')"
        yield coded("SZ021", f"Inputs have shape {tuple(x.shape[1:])}.", fix, "warning")
    if exam.space is not None:
        yield from examine_space(exam.space, exam.images)
        return
    low, high = (torch.as_tensor(bound, dtype=x.dtype, device=x.device) for bound in exam.bounds)
    inside = (x >= low) & (x <= high)  # a NaN is inside nothing
    if bool(inside.all()):
        return
    fix = "pass the bounds the inputs really have, or bring the inputs into the bounds"
    if float(x.min()) >= 0 and 1 < float(x.max()) <= 255:
        fix = "these look like 8-bit values: pass bounds=(0, 255) if the model takes them, else divide them by 255"
    elif float(x.min()) < 0:
        fix = "these look normalised: keep the inputs in [0, 1] and put the normalisation into the model"
    share = 1 - float(inside.double().mean())
    yield coded("SZ006", f"{share:.1%} of the values are outside, from {float(x.min()):g} to {float(x.max()):g}.", fix)


# Answers


def _check_call(exam: Exam) -> Iterator[Finding]:
    try:
        with torch.no_grad():
            exam.first, exam.second = (_answer(exam.model(x)) for x in (exam.given, exam.x.clone()))
    except Stopped:
        raise  # a limit that the caller set
    except Exception as error:  # a user's model may raise anything
        yield _raised(error)


def _answer(answer: Any) -> Any:
    """Return a copy of the logits in an answer, or the answer itself where there are none, for a check to name it."""
    try:
        return logits_in(answer).clone()  # some models give the same memory again
    except TypeError:
        return answer


def _raised(error: Exception) -> Finding:
    detail = f"{type(error).__name__}: {error}"
    return coded("SZ011", detail, "call the model on one batch yourself; check shape, type and device of the inputs")


def _check_shape(exam: Exam) -> Iterator[Finding]:
    fix = "return one tensor of shape (rows, classes); wrap the model if it returns a tuple or a dictionary"
    for logits in (exam.first, exam.second):
        if not isinstance(logits, Tensor):
            yield coded("SZ008", f"The model returned a {type(logits).__name__}.", fix)
        elif logits.shape in ((len(exam.x),), (len(exam.x), 1)) and logits.is_floating_point():
            seen = f"from {float(logits.min()):.4g} to {float(logits.max()):.4g}"
            fix = "sz.wrap(model, gives='probabilities') for a probability of class 1, gives='scores' for a score"
            yield coded("SZ009", f"The output has 1 column, with values {seen}.", fix)
        elif logits.ndim != 2 or len(logits) != len(exam.x) or not logits.is_floating_point() or logits.shape[1] < 2:
            yield coded("SZ008", f"{len(exam.x)} inputs gave {logits.dtype} of shape {tuple(logits.shape)}.", fix)
        else:
            continue
        return
    # A model may switch gradients on by itself, or answer from another device.
    exam.first, exam.second = (each.detach().to(exam.x.device) for each in (exam.first, exam.second))
    if exam.first.shape != exam.second.shape:
        yield coded("SZ003", f"Two calls gave {exam.first.shape[1]} and {exam.second.shape[1]} columns.", STEADY)


def _check_answers(exam: Exam) -> Iterator[Finding]:
    first, second = exam.first, exam.second
    if exam.given._version or not torch.equal(exam.x, exam.given):  # x.clamp_(0, 1) may change no value here
        fix = "write x = x - mean instead of x.sub_(mean); attacks here give it a copy, other tools may not"
        yield coded("SZ015", "A call wrote to the values it was given.", fix, "warning")
    if bad := int((~first.isfinite()).any(dim=1).sum()):
        fix = "look for a division by zero, log(0) or overflow; half precision overflows at 65,504"
        yield coded("SZ007", f"{bad} of {len(exam.x)} rows have NaN or infinite logits.", fix)
    tolerance = 1e-2 if torch.finfo(first.dtype).bits < 32 else 1e-4
    shares = (first >= 0).all() & ((first.sum(dim=1) - 1).abs() < tolerance).all()
    if ability_of(exam.model) != "labels" and bool(shares):
        fix = "return the values before the softmax, or sz.wrap(model, gives='probabilities')"
        yield coded("SZ001", "No output is negative and every row sums to 1.", fix, "warning")
    finite = first.isfinite() & second.isfinite()
    if bool(finite.any()):
        gap, scale = (first - second)[finite].abs().max(), first[finite].abs().max().clamp_min(1.0)
        if float(gap / scale) > ROUNDING * torch.finfo(first.dtype).eps:
            yield coded("SZ003", f"Two calls on the same rows differ by up to {float(gap):.3g}.", STEADY)


# Labels


def _check_labels(exam: Exam) -> Iterator[Finding]:
    y, classes = exam.y, exam.first.shape[1]
    if y.ndim != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        detail = f"The labels are {y.dtype} of shape {tuple(y.shape)}."
        yield coded("SZ010", detail, "give one whole number per row, the class; argmax undoes one-hot labels")
    elif len(wrong := y[(y < 0) | (y >= classes)]):
        detail = f"{len(wrong)} of {len(y)} labels are outside 0 to {classes - 1}, the first is {int(wrong[0])}."
        yield coded("SZ010", detail, "check that the data set belongs to the model and that labels count from 0")


def _check_accuracy(exam: Exam) -> Iterator[Finding]:
    (rows, classes), right = exam.first.shape, int(exam.right.sum())
    fix = "check the normalisation (inside the model or not at all), the order of channels and labels, the weights"
    if rows >= MIN_ROWS and _at_least(right, rows, 1 / classes) > CHANCE:
        detail = f"{right} of {rows} rows are right; guessing among {classes} classes gives {rows / classes:.1f}."
        yield coded("SZ005", detail, fix, "warning")
    elif exam.claimed is not None:
        share = min(max(exam.claimed / 100, 0.0), 1.0)
        if right / rows < share - BELOW and _at_least(rows - right, rows, 1 - share) <= UNLIKELY:
            detail = f"{right} of {rows} rows ({right / rows:.1%}) are right; {exam.claimed:g} % is claimed."
            yield coded("SZ030", detail, fix)


def _chance(now: Tensor, right: Tensor) -> tuple[int, float]:
    """Return how many more rows are right now, and the probability of such a gain by chance."""
    gained, lost = int((now & ~right).sum()), int((right & ~now).sum())
    return gained - lost, _at_least(gained, gained + lost, 0.5)


def _check_numbering(exam: Exam) -> Iterator[Finding]:
    """Find labels that are numbered otherwise than the model's classes: another numbering makes far more rows right."""
    labels, named = exam.y.tolist(), exam.first.argmax(1)
    numbering: dict[int, int] = {}
    for (label, other), count in Counter(zip(labels, named.tolist(), strict=True)).most_common():
        if count > 1 and label not in numbering and other not in numbering.values():
            numbering[label] = other
    now = torch.tensor([numbering.get(label, -1) for label in labels], device=named.device) == named
    gain, chance = _chance(now, exam.right)
    if gain >= RENUMBERED * len(named) and chance < IMPOSSIBLE:
        moved = [f"{label} is the model's {other}" for label, other in sorted(numbering.items()) if label != other]
        rows = f"{int(exam.right.sum())} of {len(named)} rows are right, with other numbers {int(now.sum())}"
        fix = "number the classes as the model does, or name them on both sides (model.classes, names of the folders)"
        yield coded("SZ034", f"{rows}: label {_some(moved)}.", fix)


def _some(words: list[str]) -> str:
    return ", ".join(words[:MAX_NAMES]) + (", ..." if len(words) > MAX_NAMES else "")


# Gradients


def _check_normalisation(exam: Exam) -> Iterator[Finding]:
    """Suspect a missing normalisation where one of the usual ones makes far more rows right."""
    x, right = exam.x, exam.right
    inside = x.ndim == 4 and bool((x >= 0).all() & (x <= 1).all())
    free = ability_of(exam.model) == "gradients" and isinstance(exam.model, nn.Module)  # more queries cost nothing
    if not (free and inside) or float(right.double().mean()) >= GOOD:
        return
    if any(isinstance(part, Normalize) for part in exam.model.modules()):
        return
    for name, (mean, std) in KNOWN.items():
        if len(mean) != x.shape[1]:
            continue
        with torch.no_grad():
            now = logits_in(exam.model(Normalize(mean, std).to(x)(x))).to(x.device).argmax(1) == exam.y
        if _chance(now, right)[1] < UNLIKELY:
            rows = f"{int(right.sum())} of {len(x)} rows are right, with {name}'s mean and deviation {int(now.sum())}"
            fix = f"put the normalisation of the training in front of the network, such as --normalize {name}"
            yield coded("SZ033", f"{rows}.", fix)
            return


def _check_gradient(exam: Exam) -> Iterator[Finding]:
    if ability_of(exam.model) != "gradients":
        return
    x, y = exam.x.clone().requires_grad_(), exam.y.long()
    fix = "remove detach(), no_grad(), numpy and rounding from the forward pass, or use a gradient-free attack"
    exam.flows = False
    try:
        logits = logits_in(exam.model(x.clone())).to(x.device)
        if not logits.requires_grad:
            yield coded("SZ012", "The logits carry no gradient.", fix)
            return
        true = logits.gather(1, y[:, None])[:, 0]
        margin = true - logits.scatter(1, y[:, None], -math.inf).amax(dim=1)
        gradient: Tensor | None = torch.autograd.grad(margin.sum(), x, allow_unused=True)[0]
    except Exception as error:
        yield _raised(error)
        return
    if gradient is None:
        yield coded("SZ012", "The logits do not depend on the inputs.", fix)
        return
    exam.flows = bool((gradient != 0).any())
    yield from _judge_gradients(gradient.flatten(1), margin.detach(), exam.x)


def _judge_gradients(flat: Tensor, margin: Tensor, x: Tensor) -> Iterator[Finding]:
    if zero := int((flat == 0).all(dim=1).sum()):
        detail = f"{zero} of {len(x)} rows ({zero / len(x):.0%}) have no gradient at all."
        yield coded("SZ004", detail, LOOK_FOR, "error" if zero > MANY * len(x) else "warning")
    # What moving every feature by as much as the rows show of it could change, to first order.
    reach = (flat.detach().abs() * (x.amax(0) - x.amin(0)).flatten()).sum(1)
    tiny = int(((reach > 0) & (reach < TINY * margin.abs())).sum())
    if len(x) > 1 and tiny > MANY * len(x):
        detail = f"{tiny} of {len(x)} rows have gradients that move the margin by less than {TINY:.1%} of it."
        yield coded("SZ032", detail, "look for a scale, a temperature or a saturated output; attack plain logits")
    if broken := int((~flat.isfinite()).any(dim=1).sum()):
        detail = f"{broken} of {len(x)} rows have NaN or infinite gradients."
        yield coded("SZ013", detail, "look for sqrt(0), division by zero or overflow in the model")


LAST = (_check_call, _check_shape, _check_labels)  # where one of these finds something, the next ones cannot run
CHECKS = (
    *(_check_inputs, _check_call, _check_shape, _check_answers, _check_labels, _check_accuracy, _check_numbering),
    *(_check_normalisation, _check_gradient),
)

# Spaces


def examine_space(space: Space, images: Tensor) -> list[Finding]:
    """Return what is wrong with a space for these inputs: inputs outside it, stuck features, odd bounds and costs."""
    x = images.detach() if images.is_floating_point() else images.detach().float()
    try:
        columns = space.columns(tuple(x.shape[1:]))
        problem = make_problem(x, torch.zeros(len(x), dtype=torch.int64, device=x.device), space=space)
    except (TypeError, ValueError) as error:
        what, _, fix = str(error).partition("; ")
        return [coded("SZ017", f"{what}.", fix or "correct the space")]
    free = (problem.domain.user_lower < problem.domain.user_upper).flatten(1).any(0).cpu().numpy()
    return [*_check_changes(columns, free), *_check_ends(columns, x, free)]


def _check_changes(columns: Columns, free: NDArray[np.bool_]) -> Iterator[Finding]:
    """Find features that are not declared fixed and still cannot change, and changes that cannot be paid."""
    if stuck := [columns.labels[k] for k in np.flatnonzero((columns.rise | columns.fall).any(0) & ~free)]:
        fix = 'say direction = "none" if that is meant; otherwise widen the ends or correct the direction'
        yield coded("SZ018", f"{len(stuck)} of {len(free)} features cannot change: {_some(stuck)}.", fix, "warning")
    if not free.any():
        yield coded("SZ018", "No feature can change at all.", "let some feature change, or there is nothing to attack")
    cost = columns.cost
    if len(cost) and cost.max() > APART * cost.min():
        (dear, high), (cheap, low) = ((columns.labels[k], cost[k]) for k in (int(cost.argmax()), int(cost.argmin())))
        fix = 'say direction = "none" for what must not change; a cost is a price, not a prohibition'
        yield coded("SZ020", f"Feature {dear} costs {high:g} and {cheap} costs {low:g}.", fix, "warning")


def _check_ends(columns: Columns, x: Tensor, free: NDArray[np.bool_]) -> Iterator[Finding]:
    """Find features whose bounds are far wider than the values of the rows, which look like another unit."""
    values = x.flatten(1).double().cpu().numpy()
    if len(values) < MIN_ROWS:
        return
    shown, room = np.ptp(values, axis=0), columns.upper - columns.lower
    if x.ndim > 2:  # pixels have one unit: those at the border may show next to nothing of it
        shown = np.full_like(shown, np.ptp(values))
    far = np.flatnonzero(free & np.isfinite(room) & (shown > 0) & (room > FAR * shown))
    if len(far):
        k = int(far[0])
        rows = f"the rows go from {values[:, k].min():g} to {values[:, k].max():g}"
        ends = f"Feature {columns.labels[k]} may go from {columns.lower[k]:g} to {columns.upper[k]:g} and {rows}"
        more = f", and {len(far) - 1} more features are like it" if len(far) > 1 else ""
        fix = "give ends in the units of the inputs, or leave it if such values are real"
        yield coded("SZ019", f"{ends}{more}.", fix, "warning")
