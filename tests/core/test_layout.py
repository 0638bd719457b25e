"""Channels last: the same answers as channels first, and a doubt where nobody said which it is."""

from typing import Any

import pytest
import torch
from torch import nn

import sigmazero as sz

NET = nn.Sequential(nn.Flatten(), nn.Linear(3 * 6 * 5, 4)).requires_grad_(False)
X = torch.rand(5, 3, 6, 5, generator=torch.Generator().manual_seed(0))
Y = NET(X).argmax(1)
LAST = X.movedim(1, -1)


def channels_last(x):
    return NET(x.movedim(-1, 1))


@pytest.mark.parametrize("unit", ["feature", "pixel"])
@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap"])
def test_channels_last_are_counted_as_channels_first(unit, name):
    attack, upper = sz.get(name, steps=20), torch.linspace(1, 2, 90).view(3, 6, 5)
    mask = torch.rand(3, 6, 5, generator=torch.Generator().manual_seed(1)) < 0.9
    one = attack.run(NET, X, Y, unit=unit, bounds=(0, upper), mask=mask)
    turned: Any = {"bounds": (0, upper.movedim(0, -1)), "mask": mask.movedim(0, -1)}
    other = attack.run(channels_last, LAST, Y, unit=unit, layout="NHWC", **turned)
    assert torch.equal(one.x_adv.movedim(1, -1), other.x_adv)
    assert torch.equal(one.l0, other.l0)
    assert torch.equal(one.l0_pixel, other.l0_pixel)


def test_an_undeclared_layout_is_doubted():
    attack = sz.get("sigma-zero", steps=5)
    with pytest.warns(
        UserWarning, match=r"shape \(5, 6, 5, 3\) look like images with the channels last.*layout='NHWC'"
    ):
        attack.run(channels_last, LAST, Y, unit="pixel")
    attack.run(channels_last, LAST, Y, unit="pixel", layout="NCHW")
    attack.run(NET, X, Y, unit="pixel")
    attack.run(channels_last, LAST, Y)


def test_layouts_that_cannot_be():
    attack = sz.get("sigma-zero")
    with pytest.raises(ValueError, match=r"unit='pixel' is for images; inputs of shape \(5, 90\) have features"):
        attack.run(NET, X.flatten(1), Y, unit="pixel")
    with pytest.raises(ValueError, match=r"layout='NHWC' is for images"):
        attack.run(NET, X.flatten(1), Y, layout="NHWC")
    with pytest.raises(ValueError, match="layout='HWC' is not one of 'NCHW', 'NHWC'"):
        attack.run(NET, X, Y, layout="HWC")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layout='NHWC' and space are both given"):
        attack.run(NET, LAST, Y, layout="NHWC", space=sz.Space(lower=0, upper=1))


def test_benchmarks_and_cascades_take_channels_last(tmp_path):
    attack = sz.get("sigma-zero", steps=20)
    mask = torch.rand(3, 6, 5, generator=torch.Generator().manual_seed(1)) < 0.9
    wanted = attack.run(NET, X, Y, unit="pixel", mask=mask)
    how: Any = {"unit": "pixel", "layout": "NHWC", "mask": mask.movedim(0, -1)}
    evaluation = sz.evaluate(channels_last, (LAST, Y), [attack], store=tmp_path / "s.db", **how)
    assert evaluation.facts(evaluation.keys[0]).l0_pixel.tolist() == wanted.l0_pixel.tolist()
    assert not evaluation.verify().disagreements
    cascade = sz.SparseAutoAttack(channels_last, version="custom", attacks_to_run=[attack], verbose=False, **how)
    assert torch.equal(cascade.run_standard_evaluation(LAST, Y), wanted.x_adv.movedim(1, -1))


def test_a_model_that_takes_channels_last_is_asked_with_channels_first():
    assert torch.equal(sz.wrap(channels_last, layout="NHWC")(X), NET(X))
    numpy = sz.wrap(lambda x: channels_last(torch.from_numpy(x)).numpy(), takes="numpy", layout="NHWC")
    assert torch.equal(numpy(X), NET(X))
