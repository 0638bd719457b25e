"""Certificates: exact on tiny networks, in the model's own arithmetic, refused where nothing can be proved."""

import math
from itertools import combinations, product
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.certifier import certify as module
from sigmazero.certifier.certify import Certifier, _believe_examples


def tiny(seed: int = 0, features: int = 6) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 3)).requires_grad_(False).eval()


def inputs(model: nn.Module, count: int = 8, shape: tuple[int, ...] = (6,)):
    x = torch.rand(count, *shape, generator=torch.Generator().manual_seed(3))
    return x, model(x).argmax(1)


def fewest(model: nn.Module, x: torch.Tensor, y: int, most: int, grid: int = 9) -> float:
    """The fewest features that fool a model, by trying all sets of them on a grid of values."""
    values = torch.linspace(0, 1, grid)
    for t in range(1, most + 1):
        for sites in combinations(range(x.numel()), t):
            filled = torch.tensor(list(product(values.tolist(), repeat=t)))
            points = x.flatten().repeat(len(filled), 1)
            points[:, list(sites)] = filled
            if bool((model(points.view(-1, *x.shape)).argmax(1) != y).any()):
                return t
    return math.inf


def test_exact_on_tiny_networks():
    for seed in range(3):
        model = tiny(seed)
        x, y = inputs(model)
        found = sz.certify(model, x, y, up_to=3, attack=None)
        truth = [fewest(model, each, int(label), 3) for each, label in zip(x, y, strict=True)]
        for lower, upper, least, status in zip(found.lower, found.upper, truth, found.status, strict=True):
            assert status in ("exact", "proved")
            assert lower == min(4, upper)
            assert upper <= least, "a grid of values found fewer changes"
        met = found.upper <= 3
        assert bool((model(found.x_adv[met]).argmax(1) != y[met]).all())
        assert bool(((found.x_adv != x).sum(1)[met] == found.upper[met]).all())


def test_an_attack_first_spares_the_search():
    model = tiny(1)
    x, y = inputs(model)
    alone, after = (sz.certify(model, x, y, up_to=2, attack=attack) for attack in (None, "sigma-swap"))
    assert alone.lower.tolist() == after.lower.tolist()
    assert int(after.boxes.sum()) < int(alone.boxes.sum())


def test_attack_and_proof_both_move_the_bar_and_say_what_goes_on():
    model = tiny(1)
    x, y = inputs(model)
    y[0] = (y[0] + 1) % 3  # wrong as it is
    moves: list[tuple[str, float]] = []
    certifier = Certifier(model, x, y, up_to=2)
    for _ in certifier.run(lambda amount: moves.append((certifier.words(), amount))):
        pass
    sought = [amount for words, amount in moves if words == "looking for examples first, 0 of 8 inputs decided"]
    assert len(sought) > 10
    assert sum(sought) == pytest.approx(4)
    assert sum(amount for _, amount in moves) == pytest.approx(8)
    said = [words.partition(",")[0] for words, _ in moves]
    assert "proving that 1 change is not enough" in said
    assert certifier.words().endswith(", 8 of 8 inputs decided")


def test_pixels_count_once():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2)).eval()
    x, y = inputs(model.requires_grad_(False), 6, (3, 4, 4))
    found = sz.certify(model, x, y, up_to=2, unit="pixel", attack=None)
    features = sz.certify(model, x, y, up_to=2, attack=None)
    assert bool((found.lower <= features.lower).all())
    assert bool((found.lower < features.lower).any())
    met = found.upper <= 2
    assert bool((model(found.x_adv[met]).argmax(1) != y[met]).all())
    assert (found.x_adv != x).any(1).flatten(1).sum(1)[met].tolist() == found.upper[met].tolist()


def test_wrong_inputs_need_no_change():
    model = tiny()
    x, y = inputs(model)
    y[0] = (y[0] + 1) % 3
    found = sz.certify(model, x, y, up_to=1, attack=None)
    assert (int(found.lower[0]), float(found.upper[0]), found.status[0]) == (0, 0.0, "exact")
    assert found.correct.tolist() == [False] + [True] * 7


def test_features_that_may_not_change_do_not():
    model = tiny(1)
    x, y = inputs(model)
    mask = torch.tensor([True, False, True, False, True, False])
    found = sz.certify(model, x, y, up_to=2, mask=mask)
    assert bool((found.x_adv[:, ~mask] == x[:, ~mask]).all())
    assert bool((found.lower >= sz.certify(model, x, y, up_to=2).lower).all())


def test_the_attack_does_not_know_the_batch(monkeypatch):
    """Its noise goes by the input's number; an attack that draws much finds the same in any block."""
    model = tiny(0, 20)
    x, y = inputs(model, 6, (20,))
    attack = sz.get("sparse-rs-min", steps=20, rounds=3)
    found = []
    for size in (1, 6):
        monkeypatch.setattr(module, "BLOCK", {"cpu": size})
        found.append(sz.certify(model, x, y, attack=attack))
    one, all_ = found
    assert one.upper.tolist() == all_.upper.tolist()
    assert torch.equal(one.x_adv, all_.x_adv)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"up_to": 0}, "up_to=0 must be a whole number"),
        ({"up_to": 7}, "more than the 6 features"),
        ({"time_limit": 0}, "time_limit=0 must be a number of seconds, more than 0"),
        ({"time_limit": -1.0}, "more than 0; leave it out"),
        ({"time_limit": "3"}, "time_limit='3' must be a number of seconds"),
        ({"total_limit": [3]}, r"total_limit=\[3\] must be a number of seconds"),
        ({"arithmetic": "bf16"}, "arithmetic='bf16'"),
        ({"bounds": (0.5, 1.0)}, "outside the bounds"),
        ({"attack": "sparse-rs"}, "sparse-rs works with a fixed budget"),
    ],
)
def test_wrong_settings(change, message):
    model = tiny()
    x, y = inputs(model)
    with pytest.raises(ValueError, match=message) as caught:
        sz.certify(model, x, y, **change)
    assert "\n" not in str(caught.value)


class Odd(nn.Module):
    """Something that no bounds are known for."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize(
    ("model", "shape", "message"),
    [
        (
            nn.Sequential(nn.Linear(6, 3), nn.Sigmoid()),
            (6,),
            r"sigmoid \(the operation aten\.sigmoid\.default\) is not",
        ),
        (nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3)), (6,), "dropout is active"),
        (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), (6,), "batch norm is in training mode"),
        (Odd(lambda x: x[:, :3] * x[:, 3:]), (6,), "is not known here"),
        (Odd(lambda x: x if x.sum() > 0 else -x), (6,), "cannot be traced"),
        (Odd(lambda x: nn.functional.linear(x.mul_(0.5), torch.ones(3, 6))), (6,), "writes into its input"),
        (Odd(lambda x: nn.functional.linear(x, torch.ones(3, 6)) + torch.rand(3)), (6,), "call to call"),
        (nn.Linear(6, 1), (6,), "the model has one output"),
        (nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2)), (5, 5), r"windows of values of shape \(5, 5\)"),
        (nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 2)), (5, 5), "windows of values"),
        (Odd(lambda x: x * math.inf), (6,), "holds NaN or Inf"),
        (nn.Linear(6, 2).double(), (6,), "its weights are torch.float64 and the inputs torch.float32"),
    ],
)
def test_what_cannot_be_proved_is_refused(model, shape, message):
    with pytest.raises(ValueError, match=message) as caught:
        sz.certify(model.train(), torch.rand(4, *shape), torch.zeros(4, dtype=torch.long), attack=None)
    assert "\n" not in str(caught.value)


def test_something_else_than_a_network_is_refused():
    with pytest.raises(TypeError, match="only a torch network"):
        sz.certify(lambda x: x, torch.rand(2, 3), torch.tensor([0, 1]))


def test_labels_and_rows_that_are_none():
    model = tiny()
    x, y = inputs(model)
    with pytest.raises(ValueError, match="label 3 in row 7 is none of the model's 3 classes"):
        sz.certify(model, x, torch.cat((y[:7], torch.tensor([3]))), attack=None)
    with pytest.raises(ValueError, match="x has no rows"):
        sz.certify(model, x[:0], y[:0])


def test_values_between_the_numbers_of_float32_are_searched():
    """In a box as narrow as this float32 has no middle; without another one the search would never end."""
    model: Any = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)).double().requires_grad_(False)
    middle = 1000.00002
    model[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
    model[0].bias.copy_(torch.tensor([-middle, middle], dtype=torch.float64))
    model[2].weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 0.0]]))
    model[2].bias.copy_(torch.tensor([-1e-8, 0.0], dtype=torch.float64))  # |x - middle| - 1e-8 against 0
    x = torch.tensor([[1000.0]], dtype=torch.float64)
    found = sz.certify(model, x, torch.tensor([0]), bounds=(1000.0, 1000.00005), attack=None, time_limit=5)
    assert found.status == ["exact"]
    assert found.upper.tolist() == [1.0]


class Spike(nn.Module):
    """Logits that are constant but for a narrow spike at one value of the first feature, which `add` adds."""

    def __init__(self, add) -> None:
        super().__init__()
        self.add = add

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = nn.functional.linear(x, torch.eye(6)[:1].expand(3, 6)) - 0.5625
        spike = nn.functional.relu(-nn.functional.relu(first * 4096) - nn.functional.relu(first * -4096) + 1)
        logits = nn.functional.linear(x, torch.zeros(3, 6), torch.tensor([1.0, 0.0, 0.0]))
        return self.add(logits, spike * torch.tensor([-4.0, 2.0, 2.0]))


def through_a_shared_array(logits: torch.Tensor, spike: torch.Tensor) -> torch.Tensor:
    array = np.zeros(tuple(spike.shape), np.float32)
    one, other = torch.from_numpy(array), torch.from_numpy(array)
    one.add_(spike)
    return logits + other


def through_dlpack(logits: torch.Tensor, spike: torch.Tensor) -> torch.Tensor:
    return logits + torch.utils.dlpack.from_dlpack(spike.detach())


def without_torch_functions(logits: torch.Tensor, spike: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction():
        logits.detach().add_(spike)
    return logits * 1


def in_script(logits: torch.Tensor, spike: torch.Tensor) -> torch.Tensor:
    code = "def f(a: Tensor, b: Tensor):\n    a.detach().add_(b)\n    return a * 1.0\n"
    return torch.jit.CompilationUnit(code).f(logits, spike)


def in_a_thread(logits: torch.Tensor, spike: torch.Tensor) -> torch.Tensor:
    thread = Thread(target=logits.add_, args=(spike,))
    thread.start()
    thread.join()
    return logits


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (through_a_shared_array, "another tensor shares"),
        (through_dlpack, "out of torch by .__dlpack__"),
        (without_torch_functions, "not traced"),
        (in_script, "not traced"),
        (in_a_thread, "another thread"),
    ],
)
def test_a_spike_that_a_trace_does_not_show_is_refused(add, message):
    """The points at which the model is compared with its trace do not meet the spike, so these were false proofs."""
    x, label = torch.full((1, 6), 0.25), torch.tensor([0])
    with pytest.raises(ValueError, match=message):
        sz.certify(Spike(add), x, label, attack=None)
    assert sz.certify(Spike(torch.add), x, label, attack=None).status == ["exact"]


def test_an_example_below_a_proved_bound_is_believed_and_said():
    lower, upper = torch.tensor([3, 2]), torch.tensor([2.0, math.inf], dtype=torch.float64)
    with pytest.warns(UserWarning, match=r"1 inputs \(ids 7\) fool the model"):
        _believe_examples(lower, upper, torch.tensor([7, 8]))
    assert lower.tolist() == [2, 2]
