"""Every success holds when the model is called in the usual way afterwards, and in strict fp32, at any batch size."""

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.run.precision import Numbers, Settings

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SIZES = (1, 100, 1000)


def small_margins() -> nn.Module:
    """A convolutional network with random weights: its logits lie close together, so rounding decides much."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 100),
        nn.ReLU(),
        nn.Linear(100, 10),
    ).cuda()


def images() -> Tensor:
    return torch.rand(1000, 1, 28, 28, generator=torch.Generator().manual_seed(1)).cuda()


def fooled(model: nn.Module, x: Tensor, y: Tensor, size: int) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(part) for part in x.split(size)]).argmax(1) != y


@pytest.mark.parametrize("precision", [None, "fp32", "tf32", "bf16"])
@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap"])
def test_successes_hold_in_the_usual_call_and_in_strict_fp32(name, precision):
    model, x, flags = small_margins(), images(), Settings.read()
    assert Numbers.current("cuda").name == "conv-tf32"  # torch's default
    with torch.no_grad():
        y = model(x).argmax(1)
    result = sz.get(name, steps=100).run(model, x, y, hardware=sz.Hardware(precision=precision))
    assert Settings.read() == flags
    assert result.success.float().mean() > 0.9
    for size in SIZES:
        assert fooled(model, result.x_adv, y, size)[result.success].all()
        with Numbers.strict("cuda").applied():
            assert fooled(model, result.x_adv, y, size)[result.success].all()


def test_under_autocast_too():
    model, x = small_margins(), images()
    with torch.autocast("cuda", torch.bfloat16):
        with torch.no_grad():
            y = model(x).argmax(1)
        result = sz.get("sigma-zero", steps=100).run(model, x, y)
        for size in SIZES:
            assert fooled(model, result.x_adv, y, size)[result.success].all()
    with Numbers.strict("cuda").applied():
        assert fooled(model, result.x_adv, y, 1000)[result.success].all()
    assert result.success.float().mean() > 0.9


@pytest.mark.parametrize("queries", [8, 30, 200])
def test_a_limit_of_queries_holds(queries):
    model, x = small_margins(), images()
    with torch.no_grad():
        y = model(x).argmax(1)
    result = sz.get("sigma-swap", queries=queries).run(model, x, y)
    assert int((result.forwards + result.backwards).max()) <= queries
