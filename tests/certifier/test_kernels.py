"""The kernels of bounds against their definitions in tensor operations.

Run by Triton's interpreter where Triton is installed; tests/gpu runs the same checks compiled.
"""

import contextlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from sigmazero.certifier import backward
from sigmazero.certifier.bounds import Bounder, Effort, Unchanged
from sigmazero.certifier.forms import Crop, Forms, Windows, ringed
from sigmazero.certifier.graph import image, trace
from sigmazero.certifier.layers import Relu
from sigmazero.certifier.regions import Groups
from sigmazero.certifier.relax import Straight
from sigmazero.certifier.tasks import Tasks, curve
from tests.certifier.soundness import Residual

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
DEFINED = ["forms", "backward", "regions"]  # modules that ask for kernels
SHAPES = [(2, 3, 4, 3, 3, 1), (3, 2, 3, 2, 2, 5), (2, 1, 1, 3, 2, 2)]


@contextlib.contextmanager
def definitions() -> Iterator[None]:
    """Tensor operations alone."""
    with contextlib.ExitStack() as stack:
        for name in DEFINED:
            stack.enter_context(mock.patch(f"sigmazero.certifier.{name}.kernels", return_value=None))
        yield


def close(found: Tensor, wanted: Tensor) -> None:
    """The same up to rounding."""
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-13)


def windows(shape: tuple[int, ...], kind: str, tasks: int, device: str) -> Windows:
    """Random windows of some forms, over the whole layer or anywhere around it."""
    whole, stride, dilation = kind[0] == "w", (1 + (kind[1] == "2"), int(kind[2])), (int(kind[3]),) * 2
    begin = torch.randint(-3, 4, (shape[0], 2)).to(device)
    parts = torch.randn(*shape, dtype=torch.float64).to(device)
    rows = torch.randint(tasks, (shape[0],)).to(device)
    return Windows(parts, rows, (-1, 0) if whole else begin, stride, dilation)


# Whether over the whole layer, strides, dilation; forms, windows and their sizes, channels.
KINDS = [(kind, shape) for kind in ("w111", "w221", "o221", "o132") for shape in SHAPES]


def check_windows(device: str = "cpu") -> None:
    """Strides, dilations and channels; the layer cuts windows off, or has room around them."""
    torch.manual_seed(0)
    for kind, shape in KINDS:
        given = windows(shape, kind, 1, device)
        for layer in ((4, 5, shape[5]), (9, 12, shape[5])):
            found = given.forms(layer)
            with definitions():
                wanted = given.forms(layer)
            close(found.a, wanted.a)
            assert (found.origin is None) == (wanted.origin is None)
            assert found.origin is None or torch.equal(found.origin, wanted.origin)
            close(found.whole(layer).a, wanted.whole(layer).a)


def check_bent(device: str = "cpu") -> None:
    """Back through a ReLU, from forms and from windows, with a crop and without."""
    torch.manual_seed(1)
    for kind, shape in KINDS:
        high, wide, channels = 6, 5, shape[5]
        given = windows(shape, kind, 3, device)
        packed = ringed(torch.randn(3, high, wide, 4 * channels, dtype=torch.float64).to(device))
        lines = Straight(packed, 1, packed.new_zeros(3))
        relu = Relu((high, wide, channels), (0,))
        for size in ((high, wide), (2, 3)):
            crop = Crop(torch.randint(0, 3, (3, 2)).to(device) * (size[0] < high), size)
            found = backward.bent(relu, lines, crop, given)
            again = backward.bent(relu, lines, crop, given.forms(relu.shape))
            with definitions():
                wanted = backward.bent(relu, lines, crop, given.forms(relu.shape))
            for one in (found, again):
                close(one[0].whole(relu.shape).a, wanted[0].whole(relu.shape).a)
                close(one[1], wanted[1])
                close(one[2], wanted[2])


def check_groups(device: str = "cpu") -> None:
    """The best sites of groups: twins, groups of unlike length, pixels of several channels, whole forms and windows."""
    torch.manual_seed(3)
    begin = torch.tensor([[0, 4, 4], [2, 2, 2], [0, 2, 6], [1, 1, 4]])
    end = begin + torch.tensor([[2, 2, 2], [1, 1, 1], [2, 2, 1], [2, 2, 3]])
    for pixels, channels, twins in ((True, 3, True), (False, 2, True), (False, 1, False), (True, 2, False)):
        chosen = slice(0, 4) if twins else slice(2, 3)
        tasks = Tasks(torch.zeros(4, dtype=torch.long), begin, end).take(chosen)
        sites = tasks.sites(curve(4, 4, 1 if pixels else channels)).to(device)
        lo, hi = (torch.rand(1, 4, 4, channels, dtype=torch.float64).to(device) for _ in range(2))
        region = Groups(sites, -lo, hi.round(decimals=1), tasks.rows.to(device), pixels)
        assert region.twins == twins
        for shape, origin in (((9, 4, 4), None), ((18, 3, 2), torch.randint(-2, 5, (18, 2)).to(device))):
            a = torch.randn(*shape, channels, dtype=torch.float64).to(device)
            a[::3] = a[::3].round()  # equal gains
            forms = Forms(a, torch.randint(len(sites), shape[:1]).to(device), origin)
            found = region.least(forms)
            with definitions():
                close(found, region.least(forms))
            a[0] = torch.nan  # proves nothing
            assert not bool(region.least(Forms(a, forms.tasks, None if origin is None else origin * 0))[0] > -torch.inf)


def check_margins(device: str = "cpu") -> None:
    """Whole bounds of small networks: a plain one, and one with a residual sum, a norm and a max pool."""
    torch.manual_seed(2)
    plain = [nn.Conv2d(1, 2, 3, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2)]
    way = Residual(nn.Conv2d(2, 2, 3, padding=1), nn.Conv2d(2, 2, 1))
    pooled = [way, nn.BatchNorm2d(2), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(2, 2, 2, dilation=2), nn.ReLU()]
    for channels, layers in ((1, plain), (2, [*pooled, nn.Flatten(), nn.Linear(2, 2)])):
        model = nn.Sequential(*layers).to(device).eval()
        x = torch.rand(2, channels, 6, 6).to(device)
        clean, bounder = Unchanged.of(network := trace(model, x), image(x.double())), Bounder(network, 2**16)
        begin = torch.tensor([[0, 16], [8, 8]])
        rows, labels = torch.arange(2, device=device), model(x).argmax(1)
        sites = Tasks(rows.cpu(), begin, begin + torch.tensor([[8, 3], [5, 5]])).sites(curve(6, 6, 1)).to(device)
        ends = -image(x.double()), 1 - image(x.double())
        region = Groups(sites, *ends, rows, pixels=True)
        found = bounder.margins(clean, rows, labels, region, Effort.FULL)
        with definitions():
            close(found, bounder.margins(clean, rows, labels, region, Effort.FULL))


CHECKS = [check_windows, check_bent, check_groups, check_margins]


def check(device: str = "cpu") -> None:
    """All of them."""
    from sigmazero.certifier import _kernels

    assert _kernels.supports(torch.zeros(1, dtype=torch.float64, device=device))
    for one in CHECKS:
        one(device)


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs Triton, which CUDA builds of torch bring")
def test_interpreted_kernels_agree_with_their_definitions():
    code = "from tests.certifier.test_kernels import check; check()"
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), *filter(None, sys.path)])
    env = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": path}
    ran = subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
