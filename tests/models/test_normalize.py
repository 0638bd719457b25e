import pytest
import torch

from sigmazero.models import Normalize, parse_normalize


def test_broadcasts_over_channels_of_any_number_of_dimensions():
    module = Normalize((0.1, 0.2, 0.3), (1.0, 2.0, 4.0))
    x = torch.rand(5, 3, 4, 4)
    wanted = (x - torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)) / torch.tensor([1.0, 2.0, 4.0]).view(1, 3, 1, 1)
    assert torch.equal(module(x), wanted)
    assert torch.equal(module(x[..., 0, 0]), wanted[..., 0, 0])
    assert not module.state_dict()


def test_scalars_serve_any_number_of_channels():
    module = Normalize(*parse_normalize("0.5,0.25"))
    assert torch.equal(module(torch.ones(2, 3, 4, 4)), torch.full((2, 3, 4, 4), 2.0))
    assert torch.equal(module(torch.ones(7)), torch.full((7,), 2.0))


def test_wrong_number_of_channels_is_refused():
    with pytest.raises(ValueError, match=r"normalisation has 3 channels, the input has shape \(1, 1, 28, 28\)"):
        Normalize((0.1, 0.2, 0.3), (1.0, 2.0, 4.0))(torch.zeros(1, 1, 28, 28))


def test_names_and_channels():
    assert parse_normalize("ImageNet")[1] == (0.229, 0.224, 0.225)
    assert parse_normalize("0.49:0.48:0.44, 0.2:0.2:0.2") == ((0.49, 0.48, 0.44), (0.2, 0.2, 0.2))


@pytest.mark.parametrize("text", ["", "0.5", "0.5,x", "0.5,0.2,0.1", "0.5:0.5,0.2", "0.5,0", "0.5,-1", "0.5,nan"])
def test_unreadable_texts_explain_the_syntax(text):
    with pytest.raises(ValueError, match=r"write MEAN,STD .* or one of cifar10, imagenet, mnist"):
        parse_normalize(text)
