"""In random spaces too what an attack claims is true: legality, counts and costs by code that shares none with it."""

from dataclasses import replace
from itertools import product
from math import inf
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import sigmazero as sz
from tests.helpers.judge import facts_of, lost, space_facts
from tests.helpers.spaces import Plain, SpaceCase, make_space, numbered
from tests.helpers.trial import NIGHTLY, Count, claims_of, small, space_trial

IN_SPACES = [name for name, attack in sorted(sz.ATTACKS.items()) if attack.spaces]
KINDS = [
    SpaceCase(finite=finite, rules=rules, priced=priced, budget=budget, targeted=targeted)
    for finite, rules, priced, budget, targeted in product(
        (True, False), (True, False), (True, False), (None, 2), (False, True)
    )
]


def fit(case: SpaceCase) -> SpaceCase:
    """The same, with a budget where the attack needs one."""
    budget = 2 if case.budget is None and sz.ATTACKS[case.attack].kind == "budget" else case.budget
    return replace(case, budget=budget)


@pytest.mark.parametrize("name", IN_SPACES)
def test_claims_are_true_in_every_kind_of_space(name, judge):
    """By day a fifth of the kinds, other ones for each attack."""
    first = IN_SPACES.index(name)
    chosen = KINDS if NIGHTLY else Random(first).sample(KINDS, len(KINDS) // 5)
    asked = [fit(replace(kind, attack=name, seed=100 * first + k)) for k, kind in enumerate(chosen)]
    wrong = {case: said for case in asked if (said := space_trial(case, judge))}
    assert not wrong, "\n".join(f"{case}: {said}" for case, said in wrong.items())


CASES = st.builds(
    SpaceCase,
    attack=st.sampled_from(IN_SPACES),
    seed=st.integers(0, 2**16),
    finite=st.booleans(),
    rules=st.booleans(),
    priced=st.booleans(),
    budget=st.sampled_from((None, 0, 1, 3, 10**6)),
    targeted=st.booleans(),
    steps=st.sampled_from((4, 9, 30)),
)


@settings(max_examples=4000 if NIGHTLY else 40, derandomize=not NIGHTLY, print_blob=False)
@given(case=CASES.map(fit))
def test_claims_are_true_in_any_space(judge, case):
    assert space_trial(case, judge) == []


def test_random_spaces_have_every_outcome():
    """Else nothing would be claimed, and nothing could be false."""
    seen = set()
    for seed in range(12):
        case = SpaceCase("sparse-rs-min", seed, priced=True, budget=1)
        plain, x, y, net = make_space(case)
        seen |= set(small(case).run(net, x, y, space=plain.space(), budget=1).outcome.tolist())
    assert {sz.Outcome.ALREADY, sz.Outcome.FOUND, sz.Outcome.NOT_FOUND, sz.Outcome.BEYOND_BUDGET} <= seen


@pytest.mark.parametrize(
    ("name", "dear", "budget"),
    [
        *((name, 5.0, 1) for name in IN_SPACES),
        *((name, 2.0, None) for name in IN_SPACES if sz.ATTACKS[name].kind != "budget"),
    ],
)
def test_the_better_of_two_answers_is_kept_where_changes_cost(name, dear, budget):
    """One dear change fools the network, and so do two cheap ones: within a budget of one the first is the answer.

    And so it is where both cost the same.
    """
    costs = [dear, 1.0, 1.0]
    plain = Plain([[0.0, 1.0]] * 3, [(0.0, 1.0)] * 3, ["binary"] * 3, [0.0] * 3, [["both"] * 3], costs, [inf] * 3)
    x, y = numbered(plain, torch.zeros(1, 3, dtype=torch.float64)), torch.tensor([0])
    net = nn.Linear(4, 2, dtype=torch.float64).requires_grad_(False)
    net.weight.copy_(torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.5, 0.6, 0.6, 0.0]]))
    net.bias.copy_(torch.tensor([1.0, 0.0]))
    count = Count(net)
    found = small(SpaceCase(name, steps=30)).run(
        net, x, y, space=plain.space(), budget=budget, hardware=sz.Hardware(prepare="none")
    )
    asked = space_facts(plain, x, y, net, budget=budget, unit="feature", targeted=False)
    assert list(lost(asked, claims_of(found), torch.cat(count.shown).numpy())) == []


@pytest.mark.parametrize("seed", range(6))
def test_refining_makes_no_point_worse_or_illegal(seed):
    case = SpaceCase("sparse-rs-min", seed, finite=seed % 2 == 0, rules=seed % 3 == 0, priced=seed > 2, steps=30)
    plain, x, y, net = make_space(case)
    before = small(case).run(net, x, y, space=plain.space()).x_adv
    after = sz.refine(net, x, y, before, queries=60, space=plain.space())
    asked, rows = facts_of(case), np.arange(len(x))
    assert asked.legal(rows, after.numpy()) == []
    old, new = (asked.per_sample(rows, points.numpy()) for points in (before, after))
    assert (new["cost"] <= old["cost"]).all()
