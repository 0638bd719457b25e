"""Findings: reasons to doubt an attack's numbers, each kind under a code that never changes."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]

MANY = 0.25  # of the rows: gradients that vanish there decide the figure
ROUNDING = 1e3  # units of the last place, of the largest logit, by which two answers to one input may differ
STEADY = "switch the randomness off, or fix its seed inside the model; else evaluate it with version='rand' of auto"
LOOK_FOR = "look for saturated outputs, hard rounding or clipping; more precision or plain logits often help"

CODES: dict[str, str] = {
    "SZ001": "The outputs look like probabilities: attacks need logits, whose gradients do not vanish.",
    "SZ002": "The model is in training mode: dropout and batch statistics change its answers.",
    "SZ003": "The outputs are random: the same input gives different logits in two calls.",
    "SZ004": "The gradient of the margin is exactly zero: gradient attacks cannot see where to go.",
    "SZ005": "The accuracy is at chance: the normalisation, the labels or the weights are probably wrong.",
    "SZ006": "Some inputs lie outside the bounds: the attack's box does not contain the data.",
    "SZ007": "Some logits are not finite: margins and gradients of those rows mean nothing.",
    "SZ008": "The output is not a table of logits: one row per input and one column per class is needed.",
    "SZ009": "The output has fewer than two classes: there is nothing to be confused with.",
    "SZ010": "Some labels are not columns of the output: they must be whole numbers from 0 to classes - 1.",
    "SZ011": "The model raised an exception on these inputs.",
    "SZ012": "The outputs do not depend differentiably on the inputs: only gradient-free attacks can work.",
    "SZ013": "Some input gradients are not finite: gradient attacks stop at those rows.",
    "SZ014": "A black-box attack beat the gradient-based ones: their gradients mislead, and robustness is overstated.",
    "SZ015": "The model writes to its input: it gets a copy, so that the original stays unchanged.",
    "SZ016": "The optimized copy gives other answers than the model: the search runs on the model itself.",
    "SZ017": "Some inputs are not legal in their own space: no attack may start there.",
    "SZ018": "Some features can change in no row: the space, or its ends, leaves them no other value.",
    "SZ019": "A feature's ends lie far beyond what the rows show: its units, or the ends, are probably wrong.",
    "SZ020": "Some costs are so far apart that cheap changes cost almost nothing compared with expensive ones.",
    "SZ021": "The channels seem to come last: where pixels are counted, dimension 1 must be the channels.",
    "SZ022": "The attack of another library returned every input unchanged: it found nothing, or did not run.",
    "SZ030": "The accuracy is far below the expected one: the normalisation, the labels or the weights are wrong.",
    "SZ031": "An attack does worse with more steps: its gradients mislead, and robustness is overstated.",
    "SZ032": "The gradients are tiny compared with the margins: gradient attacks may stall.",
    "SZ033": "The inputs are probably not normalised as in training: a usual normalisation makes far more rows right.",
    "SZ034": "The labels and the model number classes differently: other numbers make far more rows right.",
}


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, and what to do about it."""

    code: str
    title: str
    detail: str
    fix: str
    severity: Severity


def coded(code: str, detail: str, fix: str, severity: Severity = "error") -> Finding:
    """Return a finding with a code; the code gives the title."""
    return Finding(code, CODES[code].split(":")[0].removesuffix("."), detail, fix, severity)


def render(findings: list[Finding]) -> str:
    """Return findings as plain text for a terminal.

    >>> print(render([]))
    The doctor found nothing wrong.
    """
    if not findings:
        return "The doctor found nothing wrong."
    return "\n".join(
        f"{found.code} {found.severity}: {found.title}\n  {found.detail}\n  Fix: {found.fix}" for found in findings
    )


def gating(findings: Iterable[Finding], allow: Collection[str] = ()) -> list[Finding]:
    """Return the errors among findings whose codes are not allowed; refuse an unknown code.

    >>> found = [coded("SZ003", "Two calls differ.", "switch it off"), coded("SZ002", "Dropout.", "eval", "warning")]
    >>> [finding.code for finding in gating(found)], gating(found, ["SZ003"])
    (['SZ003'], [])
    """
    for code in allow:
        if code not in CODES:
            raise ValueError(f"{code} is not a code of a finding; there are {next(iter(CODES))} to {list(CODES)[-1]}")
    return [finding for finding in findings if finding.severity == "error" and finding.code not in allow]
