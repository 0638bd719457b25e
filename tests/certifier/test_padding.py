"""Zeros around an image, as layers of their own and as torch's padding="same", also where they are uneven."""

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.certifier.graph import trace
from sigmazero.certifier.operations import UnknownOperation
from tests.certifier.soundness import examined, with_weights

UNEVEN = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")  # torch copies the input


def padded(seed):
    """A network whose edges are unlike on all sides, and the shape of its inputs."""
    torch.manual_seed(seed)
    size, dilation = ((2, 3), (1, 2)) if seed % 2 else ((4, 2), 1)
    first = nn.Conv2d(2, 4, size, padding="same", dilation=dilation, groups=1 + seed % 2)
    second = nn.Conv2d(4, 3, 2, padding="valid")
    body = (nn.ZeroPad2d((1, 0, 0, 2)), first, nn.ReLU(), nn.ZeroPad2d((0, 1, 2, 0)), second, nn.ReLU(), nn.Flatten())
    width = nn.Sequential(*body)(torch.rand(1, 2, 4, 3)).shape[1]
    return with_weights(nn.Sequential(*body, nn.Linear(width, 3))), (2, 4, 3)


@UNEVEN
def test_bounds_hold():
    found = [examined(seed, padded) for seed in range(8)]
    assert sum(each.wrong for each in found) == 0
    assert min(each.nearest for each in found) < 0.05, "the points never come near a bound: nothing is tested"


@UNEVEN
def test_same_is_what_it_says():
    """The same proofs as for the network with the zeros of "same" written out."""
    torch.manual_seed(0)
    named = nn.Conv2d(1, 3, (2, 4), padding="same")
    written = nn.Conv2d(1, 3, (2, 4))
    head = (nn.ReLU(), nn.Flatten(), nn.Linear(27, 2))
    x = torch.rand(4, 1, 3, 3)
    one, other = with_weights(nn.Sequential(named, *head)), nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), written, *head)
    written.load_state_dict(named.state_dict())
    found, expected = (sz.certify(model.eval(), x, one(x).argmax(1), up_to=3) for model in (one, other))
    assert found.lower.tolist() == expected.lower.tolist()
    assert len(set(found.lower.tolist())) > 1, "all inputs are alike: little is shown"


@pytest.mark.parametrize(
    "layer",
    [
        nn.ConstantPad2d(1, 0.5),
        nn.ZeroPad2d((-1, 0, 0, 0)),
        nn.ReflectionPad2d(1),
        nn.ConstantPad3d((0, 0, 0, 0, 1, 0), 0.0),
    ],
)
def test_other_edges_are_refused(layer):
    with pytest.raises(UnknownOperation, match="not known"):
        trace(nn.Sequential(layer, nn.Flatten()).eval(), torch.rand(2, 2, 4, 3))
