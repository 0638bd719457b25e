"""Points from anywhere are judged as our own are."""

import pytest
import torch

import sigmazero as sz
from tests.helpers.networks import linear_problem


def test_our_own_points():
    model, x, y = linear_problem((3, 4, 4), 9)
    y[0] = (y[0] + 1) % 3  # wrong already
    result = sz.get("sigma-zero", steps=40).run(model, x, y, unit="pixel")
    found = sz.check(model, x, y, result.x_adv, unit="pixel", batch_size=4)
    for name in ("x_adv", "success", "l0", "l0_pixel", "outcome", "margin", "prediction", "clean_prediction", "ids"):
        assert torch.equal(getattr(found, name), getattr(result, name)), name
    assert found.forwards.tolist() == [1, *[2] * 8]
    assert found.backwards.tolist() == [0] * 9
    assert found.unit == "pixel"
    with pytest.raises(ValueError, match=r"x_adv has shape \(5, 3, 4, 4\), expected \(9, 3, 4, 4\)"):
        sz.check(model, x, y, x[:5])
    with pytest.raises(ValueError, match="batch_size=0 must be a whole number"):
        sz.check(model, x, y, x, batch_size=0)


def test_what_does_not_count():
    """A point that does not fool, leaves the box or the mask, or is not by enough; and one that is the input itself."""
    model, x, y = linear_problem((12,), 6)
    good = sz.get("sigma-zero", steps=60).run(model, x, y).x_adv
    points, mask = good.clone(), torch.ones(12, dtype=torch.bool)
    points[0] = x[0]
    points[1, 0] = 1.5
    with pytest.warns(UserWarning, match="1 of 6 points leave the box and count as failures; clip them"):
        found = sz.check(model, x, y, points)
    assert found.success.tolist() == [False, False, True, True, True, True]
    assert found.l0[:2].isinf().all()
    mask[int((good[2] != x[2]).nonzero()[0])] = False
    with pytest.warns(UserWarning, match="leave the box or the mask"):
        assert not sz.check(model, x, y, good, mask=mask).success[2]
    margins = sz.check(model, x, y, good).margin
    least = float(-margins.median())
    assert torch.equal(sz.check(model, x, y, good, margin=least).success, margins <= -least)
