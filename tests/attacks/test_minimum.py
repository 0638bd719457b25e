"""Fixed-budget attacks as minimum-norm ones: the search itself, where the smallest budget is known."""

import pytest
import torch

import sigmazero as sz
from sigmazero.attacks.budget import MinimumNorm
from sigmazero.attacks.pgd_l0 import PGDL0
from tests.helpers.networks import linear_problem

NEEDED = torch.tensor([1.0, 2, 3, 7, 15, 16, 29, 30, 31])  # the last one needs more than the 30 free features


def threshold_model(x):
    """Class 1 as soon as the features add up to more than the last one, which may not change."""
    x = x.flatten(1)
    return torch.stack([x[:, -1] - x[:, :-1].sum(1), torch.zeros_like(x[:, -1])], 1)


def threshold_problem(targeted: bool = False):
    x = torch.zeros(len(NEEDED), 31, dtype=torch.float64)
    x[:, -1] = NEEDED - 0.5
    mask = torch.ones(31, dtype=torch.bool)
    mask[-1] = False
    y = torch.full((len(x),), int(targeted))
    return x, y, {"mask": mask, "bounds": (0.0, torch.where(mask, 1.0, 40.0).double()), "targeted": targeted}


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("first", [1, 4, 100])
def test_finds_the_smallest_budget(first, targeted):
    x, y, options = threshold_problem(targeted)
    attack = sz.get("pgd-l0-min", steps=150, rounds=10, first_budget=first)
    result = attack.run(threshold_model, x, y, **options)
    assert torch.equal(result.l0[:-1], NEEDED[:-1].double())
    assert not result.success[-1]


def test_a_persistent_search_spends_its_steps_and_finds_no_more_changes():
    model, x, y = linear_problem((3, 4, 4), 8, seed=5)
    once, often = (sz.get("sparse-rs-min", steps=600, persistent=on).run(model, x, y) for on in (False, True))
    assert (often.l0 <= once.l0).all()
    assert often.l0.sum() < once.l0.sum()
    spent = often.forwards - 3  # less the clean check and two checks of the point
    assert (spent[often.l0 > 1] == 600).all()
    assert (once.forwards - 3 < 600).any()
    x, y, options = threshold_problem()
    result = sz.get("pgd-l0-min", steps=150, persistent=True).run(threshold_model, x, y, **options)
    assert torch.equal(result.l0[:-1], NEEDED[:-1].double())
    assert result.backwards[0] < 150  # nothing is left to find


def test_a_new_version_of_the_search_or_of_its_attack_is_a_new_version():
    class Newer(MinimumNorm):
        version = MinimumNorm.version + 2

    class NewerAttack(PGDL0):
        version = PGDL0.version + 4

    made = (kind(name="", attack=attack()).version for kind in (MinimumNorm, Newer) for attack in (PGDL0, NewerAttack))
    present, *others = made
    assert others == [present + 4, present + 2, present + 6]


def test_in_a_space_a_search_goes_on_until_its_queries_are_spent():
    """One value of any feature fools, and nothing says which: the first try of three steps rarely finds it."""

    def one_value(x):
        return torch.stack([0.5 - (x == 17).any(1).double(), torch.zeros_like(x[:, 0])], 1)

    space = sz.Space(names=[f"f{k}" for k in range(5)], kind="integer", lower=0, upper=30)
    x, attack = torch.zeros(8, 5, dtype=torch.float64), sz.get("sparse-rs-min", steps=30)
    result = attack.run(one_value, x, torch.zeros(8, dtype=torch.int64), space=space)
    assert int(result.success.sum()) >= 7
    assert int(result.forwards.max()) <= 30 + 70  # smallest values and checks take the rest
