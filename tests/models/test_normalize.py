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


def test_one_number_serves_any_number_of_channels():
    module = Normalize(*parse_normalize("0.5,0.25"))
    for shape in ((2, 3, 4, 4), (7,)):
        assert torch.equal(module(torch.ones(shape)), torch.full(shape, 2.0))
    assert parse_normalize("ImageNet")[1] == (0.229, 0.224, 0.225)
    assert parse_normalize("0.49:0.48:0.44, 0.2:0.2:0.2") == ((0.49, 0.48, 0.44), (0.2, 0.2, 0.2))
    with pytest.raises(ValueError, match=r"normalisation has 3 channels, the input has shape \(1, 1, 28, 28\)"):
        Normalize((0.1, 0.2, 0.3), (1.0, 2.0, 4.0))(torch.zeros(1, 1, 28, 28))


@pytest.mark.parametrize("text", ["", "0.5", "0.5,x", "0.5,0.2,0.1", "0.5:0.5,0.2", "0.5,0", "0.5,-1", "0.5,nan"])
def test_unreadable_texts_explain_the_syntax(text):
    with pytest.raises(ValueError, match=r"write MEAN,STD .* or one of cifar10, imagenet, mnist"):
        parse_normalize(text)
