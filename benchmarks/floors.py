"""What a step is measured against: the networks, the compute bound, and the model's own forward and backward pass."""

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sigmazero.models.architectures import build

MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "smallcnn": (lambda: build("smallcnn"), (1, 28, 28)),
    "resnet20": (lambda: build("resnet20"), (3, 32, 32)),
    "prn18": (lambda: build("preact-resnet18"), (3, 32, 32)),
    "wrn28-10": (lambda: build("wide-resnet", depth=28, width=10), (3, 32, 32)),
    "resnet18-224": (lambda: build("resnet18-imagenet"), (3, 224, 224)),
}


def made(spec: str, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    """A network with random weights, a batch of random inputs and the network's own answers, from "name:batch"."""
    name, _, batch = spec.partition(":")
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model = make().to(device).eval().requires_grad_(False)
    x = torch.rand(int(batch), *shape, device=device)
    with torch.no_grad():
        return model, x, model(x).argmax(1)


def clock(work: Callable[[], object], times: int, device: torch.device) -> float:
    """Median milliseconds of one call, over five rounds of `times` calls."""
    work()
    rounds = []
    for _ in range(5):
        wait(device)
        began = time.perf_counter()
        for _ in range(times):
            work()
        wait(device)
        rounds.append(1000 * (time.perf_counter() - began) / times)
    return statistics.median(rounds)


def wait(device: torch.device) -> None:
    """Until the device has done all it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def bare(model: Callable[[Tensor], Tensor], x: Tensor) -> Callable[[], object]:
    """A forward and a backward pass, nothing else."""

    def work() -> Tensor:
        with torch.enable_grad():
            point = x.detach().requires_grad_()
            (grad,) = torch.autograd.grad(model(point).sum(), point)
        return grad

    return work


def captured(work: Callable[[], object], device: torch.device) -> Callable[[], object]:
    """The same, recorded and replayed where that exists."""
    if device.type != "cuda":
        return work
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def operations(model: nn.Module, x: Tensor) -> int:
    """Floating-point operations of a forward and a backward pass; the second, towards the input, has as many."""
    with FlopCounterMode(display=False) as counter:
        model(x[:1])
    return 2 * int(counter.get_total_flops()) * len(x)


def rate(dtype: torch.dtype, device: torch.device) -> float:
    """Operations a millisecond of a large matrix product in this format."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
    return 2 * side**3 / clock(lambda: a @ b, 5, device)
