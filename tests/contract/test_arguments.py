"""What `run` and `check` are given: nothing is ignored without a word, and both know the same models."""

import numpy as np
import pytest
import torch

import sigmazero as sz

X = torch.rand(4, 6, generator=torch.Generator().manual_seed(0))
Y = torch.zeros(4, dtype=torch.long)
TAKE = {"start": {"bb", "bb-dataset", "label-swap", "swap-search"}, "pool": {"bb", "bb-dataset"}}


def never_asked(x):
    raise AssertionError("the model was asked")


@pytest.mark.parametrize("argument", TAKE)
@pytest.mark.parametrize("name", sorted(sz.ATTACKS))
def test_what_an_attack_would_ignore_is_refused(name, argument):
    attack = sz.ATTACKS[name]
    options = {"budget": 3} if attack.kind == "budget" else {}
    if name in TAKE[argument]:
        with pytest.raises(AssertionError, match="was asked"):
            attack.run(never_asked, X, Y, **options, **{argument: X})
    else:
        with pytest.raises(ValueError, match=rf"{name} .*{argument}=.*bb") as caught:
            attack.run(never_asked, X, Y, **options, **{argument: X})
        assert all(taker in str(caught.value) for taker in TAKE[argument])
