"""Explain each attack to people: the idea in two sentences, what a step costs, what each parameter means."""

import inspect
from dataclasses import fields

from sigmazero.attacks.budget import MinimumNorm
from sigmazero.attacks.registry import ATTACKS
from sigmazero.core.attack import Attack

IDEAS = {
    "sigma-zero": (
        "Descends on the loss plus a smooth stand-in for the number of changed features, and sets small changes to "
        "zero after every step. The threshold for that rises while a sample is fooled and falls while it is not."
    ),
    "sigma-swap": (
        "A short σ-zero finds a fair example. Then changed sites are exchanged for others, one change below the "
        "best, until the queries are spent."
    ),
    "swap-search": (
        "Makes an adversarial example sparser by exchanging the sites it changes. It starts from points that are "
        "given, and is what `sz.refine` runs."
    ),
    "query-swap": (
        "Swap search for models that give scores alone. It learns from its own queries which sites matter, and may "
        "be led by a network that resembles the model."
    ),
    "label-swap": (
        "For models that name a class and nothing else. It starts far away and puts changes back, or exchanges "
        "them, as long as the class stays wrong."
    ),
    "corner": (
        "Asks about every single change to an end of the box, then about pairs of the best ones, then goes on "
        "greedily. For few features it is close to exhaustive."
    ),
    "corner-at": (
        "The same within a budget: no point with more changes is asked about. At one change its answer is exact "
        "over the corners that it tries."
    ),
    "saliency": (
        "Changes one feature after the other, each time the one whose gradient promises most. It is one of the "
        "oldest sparse attacks, and a baseline."
    ),
    "genetic": (
        "Breeds sets of changes from the better half of a population, for models that give scores. It is known "
        "from attacks on malware detectors, and a baseline."
    ),
    "fmn": (
        "Moves along the gradient inside an l0 ball that shrinks while the sample is fooled and grows while it is "
        "not. It is fast, and was the usual choice before σ-zero."
    ),
    "pdpgd": (
        "Treats the wish for few changes and the wish to fool as two players, and takes primal and dual steps in "
        "turn. A proximal operator sets small changes to zero."
    ),
    "ead": (
        "Adds the l1 norm of the changes to the loss (the elastic net) and searches for the weight of the loss. "
        "The l1 norm makes changes sparse without counting them."
    ),
    "pgd-l0": (
        "Gradient steps within a budget: after each, all but the k largest changes are undone. It restarts from "
        "random points."
    ),
    "sparsefool": (
        "Takes the boundary for flat near the input and walks to it along single coordinates. It needs few steps, "
        "each of them a whole DeepFool run."
    ),
    "vfga": (
        "Greedy: each step changes one more feature, by a random amount that is the best of several. It stops as "
        "soon as the sample is fooled."
    ),
    "bb": (
        "Starts at an adversarial point far away and follows the decision boundary towards the input. It solves a "
        "small optimisation problem in every step."
    ),
    "sparse-rs": (
        "Random search within a budget: exchanges some of the k changed sites and keeps what is better. It needs "
        "no gradients, so it tells whether gradients mislead."
    ),
    "sparse-rs-inner": (
        "Sparse-RS with values from anywhere in the box. Defences that throw away extreme values do not throw away "
        "these."
    ),
    "spgd-unprojected": (
        "Learns a mask of k sites and the values at them, each by gradient steps, within a budget. A mask that "
        "stays the same for long is drawn anew."
    ),
    "minimum": (
        "An attack within a budget, run again and again: a search by halves finds the smallest budget at which it "
        "succeeds. Steps are shared among the tries."
    ),
}

COSTS = {
    "sigma-zero": "2 queries a step",
    "sigma-swap": "at most `queries`, or 2 × steps",
    "swap-search": "`proposals` + 1 queries a step",
    "query-swap": "1 query a step",
    "label-swap": "1 query a step",
    "corner": "`width` queries a step",
    "corner-at": "`width` queries a step",
    "saliency": "2 queries a step",
    "genetic": "`population` queries a step",
    "fmn": "2 queries a step",
    "pdpgd": "2 queries a step",
    "ead": "3 queries a step, `binary_search_steps` times",
    "pgd-l0": "2 queries a step, `restarts` times",
    "sparsefool": "a DeepFool run a step: dozens of queries",
    "vfga": "2 × `samples` + 2 queries a step",
    "bb": "2 queries a step, and a start",
    "sparse-rs": "1 query a step",
    "sparse-rs-inner": "1 query a step",
    "spgd-unprojected": "2 queries a step",
    "minimum": "as its attack, `steps` steps in all",
}

MEANINGS = {
    "steps": "how many steps a sample gets at most",
    "step_size": "length of a step, in units of the box",
    "step_size_end": "what is left of the step size at the end, as a share",
    "beta2": "Adam's weight of past squared gradients",
    "loss": "what is descended on: see `sigmazero.core.losses`",
    "smoothing": "how smooth the stand-in for the count is; smaller is closer to the count",
    "threshold": "changes below it are set to zero, at first",
    "threshold_rate": "how fast the threshold rises and falls",
    "normalize": "divide gradients by their norm",
    "grad_norm": "the norm of `normalize`: inf for the largest entry, or its p, such as 2",
    "adaptive_threshold": "let the threshold follow success; off for an ablation",
    "projection": "set changes below the threshold to zero; off for an ablation",
    "l0_term": "add the stand-in for the count to the loss; off for an ablation",
    "optimizer": "how steps follow gradients: adam or sgd",
    "order": "released: as the authors' code; paper: as their pseudo-code",
    "proposals": "points per step; the last one asks for a gradient too where there is one",
    "radius": "how far “near” reaches, for inputs with positions",
    "sharpness": "power of the gain by which sites are drawn",
    "choices": "what a whole new choice is expected to save at first, in exchanges; 0 for none",
    "trust": "how many proposals the first expectation of a place is worth",
    "heat": "share of its margin that a stuck point may lose at the start of a long search",
    "momentum": "weight of the past in the running gradient",
    "jitter": "largest relative noise on a gain in a whole new choice",
    "queries": "the most that a sample may ask, forwards and backwards",
    "share": "part of the queries for the first phase",
    "warm_up": "fewest steps of the first phase",
    "first": "the σ-zero of the first phase",
    "warm_up_hard": "the same for hard problems: large inputs, or a target class",
    "first_hard": "the σ-zero of the first phase of hard problems",
    "surrogate": "a network with gradients that resembles the model; on the command line its name",
    "openings": "whole choices that are tried after the first look",
    "width": "points per step",
    "pairs": "steps for pairs of the best single changes",
    "beam": "points that get one more change in each step after the pairs",
    "population": "points of a generation, each of them a query",
    "parents": "points that the next generation comes from",
    "mutations": "how many changed sites of a child mutate, and how many others, on average",
    "penalty": "what changing every site would count, where the clean margin counts 1",
    "budget_rate": "how fast the ball shrinks and grows at first, as a share of its size",
    "budget_rate_end": "what is left of that rate at the end, as a share",
    "proximal": "which operator sets small changes to zero",
    "random_start": "how far from the input a run begins, in units of the box; 0 at the input",
    "dual_ratio": "weight of the distance beside the loss at first",
    "dual_ratio_min": "the least such weight",
    "dual_step_size": "length of a dual step",
    "dual_step_size_end": "what is left of it at the end, as a share",
    "dual_momentum": "weight of the past in the dual variable",
    "proximal_steps": "inner steps of the proximal operator at most",
    "proximal_tolerance": "change below which these inner steps end",
    "rule": "which adversarial point the method returns: smallest l1 norm, or smallest elastic net",
    "binary_search_steps": "rounds of the search for the weight of the loss",
    "initial_const": "the first weight of the loss",
    "regularization": "weight of the l1 norm",
    "confidence": "by how much the logits must be wrong",
    "abort_early": "end a round that improves no more",
    "restarts": "how often it begins anew",
    "group": "unit: the budget counts what the run counts; pixel: pixels with all their channels",
    "pull": "how fast it walks towards the boundary, the paper's λ",
    "overshoot": "how far beyond the boundary a step aims",
    "inner_steps": "steps of the DeepFool inside at most",
    "classes": "how many classes DeepFool looks at; None for all",
    "variant": "published: as the paper; torchattacks: as that library",
    "samples": "random amounts tried for each of the two features",
    "radius_batch": "the batch for which the reference chose its radius",
    "radius_decay": "what the radius is multiplied by when it shrinks",
    "radius_decays": "how often it shrinks in a run",
    "halvings": "halvings of the way from the start to the input",
    "tolerance": "changes this small, as a share of the box, are undone",
    "start_from": "noise: random points; pool: inputs of other classes",
    "directions": "random points that are tried as a start at most",
    "blends": "places between the input and a start that are tried",
    "initial_share": "share of the changed sites that are exchanged at first",
    "gradient": "projected: move values at the chosen sites only; unprojected: at every site",
    "mask_step_size": "length of a step of the mask",
    "patience": "steps without a new mask before it is drawn anew",
    "patience_counts": "whether these steps must be consecutive",
    "attack": "the attack within a budget that is run",
    "rounds": "a try has steps / rounds steps",
    "first_budget": "the first budget to try",
    "persistent": "spend steps that are left on more tries at one change less",
    "bb.radius": "the first trust radius per feature",
    "ead.step_size": "length of a step at first; it falls to 0",
    "query-swap.steps": "queries of the search",
    "query-swap.share": "part of the queries for a first look at all sites, in tiles",
    "label-swap.steps": "queries of the search",
    "sparse-rs.steps": "queries",
    "sparse-rs-inner.steps": "queries",
    "genetic.steps": "generations",
    "minimum.steps": "steps of the attack inside, over all tries",
}


def base(attack: Attack) -> str:
    """The name under which an attack is explained: its own, or that of the attack it is a preset of.

    >>> base(ATTACKS["sigma-zero-star"]), base(ATTACKS["pgd-l0-min"])
    ('sigma-zero', 'minimum')
    """
    own = next(field.default for field in fields(attack) if field.name == "name")
    if isinstance(own, str) and own in ATTACKS:
        return own
    return "minimum" if isinstance(attack, MinimumNorm) else attack.name


def idea(attack: Attack) -> str:
    """Two sentences; the docstring of an attack of the user's own."""
    return IDEAS.get(base(attack)) or inspect.cleandoc(type(attack).__doc__ or "").partition("\n\n")[0]


def cost(attack: Attack) -> str:
    """What a sample's search asks of the model; nothing is known of an attack of the user's own."""
    return COSTS.get(base(attack), "")


def meaning(attack: Attack, parameter: str) -> str:
    """What a parameter of an attack is."""
    return MEANINGS.get(f"{base(attack)}.{parameter}") or MEANINGS.get(parameter, "")


def parameter_rows(attack: Attack) -> list[dict[str, str]]:
    """A row for each parameter: its default and what it means."""
    return [
        {"parameter": name, "default": _shown(value), "meaning": meaning(attack, name)}
        for name, value in attack.parameters().items()
    ]


def _shown(value: object) -> str:
    """A default as one would write it; of an attack inside another what differs from the registry's."""
    if not isinstance(value, Attack):
        return repr(value)
    usual = ATTACKS[value.name].parameters()
    differing = ", ".join(f"{key}={held!r}" for key, held in value.parameters().items() if held != usual[key])
    return f"{value.name}({differing})" if differing else value.name
