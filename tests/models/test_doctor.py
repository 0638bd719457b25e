from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from sigmazero.core.findings import CODES, Finding, render
from sigmazero.data import load
from sigmazero.models import wrap
from sigmazero.models.doctor import examine
from sigmazero.models.normalize import Normalize


@pytest.fixture(scope="module")
def data() -> tuple[Tensor, Tensor]:
    rows = load("digits-8x8", limit=80, seed=0)
    return rows.images, rows.labels


@pytest.fixture(scope="module")
def net(data: tuple[Tensor, Tensor]) -> nn.Module:
    """A network that has learnt these rows, so that nothing is wrong with it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(80):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(data[0]), data[1]).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model.eval()


def codes(findings: list[Finding]) -> list[str]:
    return [finding.code for finding in findings]


def test_healthy_model(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    assert examine(net, *data) == []
    assert examine(lambda x: net(x), *data) == []
    assert examine(lambda x: net(x).log_softmax(dim=1), *data) == []
    assert examine(net.double(), data[0].double(), data[1]) == []
    net.float()


def test_labels_are_no_probabilities(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    named = wrap(lambda x: net(torch.from_numpy(x)).argmax(1).numpy(), takes="numpy", gives="labels", classes=10)
    assert examine(named, *data) == []


def noisy(logits: Tensor) -> Tensor:
    return logits + torch.randn_like(logits)


def one_nan(logits: Tensor) -> Tensor:
    return torch.where(torch.arange(len(logits))[:, None] == 3, torch.nan, logits)


def flat_rows(logits: Tensor) -> Tensor:
    return torch.where(torch.arange(len(logits))[:, None] < 5, logits.detach(), logits)


BROKEN: list[tuple[Callable[[Tensor], object], list[str], str]] = [
    (lambda z: z.softmax(dim=1), ["SZ001"], "before the softmax"),
    (noisy, ["SZ003"], "Two calls"),
    (lambda z: z * 0 + z.detach(), ["SZ004"], "64 of 64 rows"),
    (flat_rows, ["SZ004"], r"5 of 64 rows \(8%\)"),
    (lambda z: z.roll(1, dims=1), ["SZ005"], "guessing among 10 classes"),
    (one_nan, ["SZ004", "SZ007"], "1 of 64 rows have NaN"),
    (lambda z: z[:, :, None], ["SZ008"], r"shape \(64, 10, 1\)"),
    (lambda z: ([z], z), ["SZ008"], "a tuple"),
    (lambda z: z[:5], ["SZ008"], "64 inputs gave"),
    (lambda z: z.argmax(dim=1, keepdim=True), ["SZ008"], "torch.int64"),
    (lambda z: z[:, :1], ["SZ009"], "1 column"),
    (lambda z: z[:, :5], ["SZ010"], "outside 0 to 4"),
    (lambda z: z.detach(), ["SZ012"], "carry no gradient"),
    (lambda z: z + (z * 0).abs().sqrt(), ["SZ013"], "64 of 64 rows"),
]


@pytest.mark.parametrize(("twist", "expected", "text"), BROKEN)
def test_each_complaint(
    net: nn.Module, data: tuple[Tensor, Tensor], twist: Callable[[Tensor], Tensor], expected: list[str], text: str
) -> None:
    findings = examine(lambda x: twist(net(x)), *data)
    assert codes(findings) == expected
    assert re.search(text, render(findings))


def test_constant_model(data: tuple[Tensor, Tensor]) -> None:
    weight = torch.ones(1, 10, requires_grad=True)
    findings = examine(lambda x: weight.expand(len(x), 10), *data)
    assert codes(findings) == ["SZ005", "SZ012"]
    assert weight.grad is None


def test_training_mode_is_reported_and_kept(data: tuple[Tensor, Tensor]) -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10), nn.Dropout(0.5))
    model[1].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    findings = examine(model, *data)
    assert "SZ002" in codes(findings)
    assert "SZ003" not in codes(findings)
    assert "Dropout" in findings[0].detail
    assert "BatchNorm" not in findings[0].detail
    assert [part.training for part in model] == [True, False, True, True]
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_harmless_training_mode_is_not_reported(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    net.train()
    assert examine(net, *data) == []
    assert all(part.training for part in net.modules())
    net.eval()


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        (lambda x: (x * 255).byte(), "divide them by 255"),
        (lambda x: (x - 0.5) / 0.5, "normalised"),
        (lambda x: torch.where(x == x.max(), torch.nan, x), "bounds"),
    ],
)
def test_inputs_outside_the_bounds(
    net: nn.Module, data: tuple[Tensor, Tensor], change: Callable[[Tensor], Tensor], fix: str
) -> None:
    findings = [found for found in examine(net, change(data[0]), data[1]) if found.code == "SZ006"]
    assert len(findings) == 1
    assert fix in findings[0].fix


def test_bounds_may_be_tensors(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    low, high = data[0].amin(dim=0), data[0].amax(dim=0)
    assert examine(net, *data, bounds=(low, high)) == []
    assert codes(examine(net, *data, bounds=(low, high - 0.1))) == ["SZ006"]


@pytest.mark.parametrize(
    "labels", [torch.eye(10)[torch.zeros(80, dtype=torch.int64)], torch.zeros(80), torch.arange(80)]
)
def test_bad_labels(net: nn.Module, data: tuple[Tensor, Tensor], labels: Tensor) -> None:
    assert codes(examine(net, data[0], labels)) == ["SZ010"]


def test_model_that_raises_is_a_finding(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    findings = examine(net, data[0][..., :5], data[1])
    assert codes(findings) == ["SZ011"]
    assert "RuntimeError" in findings[0].detail

    def only_without_gradient(x: Tensor) -> Tensor:
        if x.requires_grad:
            raise MemoryError("too much")
        out: Tensor = net(x)
        return out

    findings = examine(only_without_gradient, *data)
    assert codes(findings) == ["SZ011"]
    assert "MemoryError: too much" in findings[0].detail


def test_model_that_changes_its_shape(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    widths = iter([10, 9, 8])
    assert codes(examine(lambda x: net(x)[:, : next(widths)], *data)) == ["SZ003"]
    answers = iter([True, False])
    assert codes(examine(lambda x: net(x) if next(answers) else None, *data)) == ["SZ008"]


def test_module_that_refuses_eval(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    """As the modules of exported programs do."""

    class Frozen(nn.Module):
        def train(self, mode: bool = True) -> Frozen:
            raise NotImplementedError("calling train() or eval() is not supported")

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = net(x)
            return out

    assert examine(Frozen(), *data) == []


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_gradients_forbidden_outside_do_not_matter(
    net: nn.Module, data: tuple[Tensor, Tensor], guard: Callable[[], torch.no_grad]
) -> None:
    with guard():
        assert examine(net, data[0] * 1, data[1] * 1) == []
        assert not torch.is_grad_enabled()


def test_nothing_is_left_behind(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    images, labels = data[0].clone(), data[1].clone()
    state = torch.get_rng_state()

    def careless(x: Tensor) -> Tensor:
        logits: Tensor = net(x.clone()) + torch.rand(()) * 0
        with torch.no_grad():
            x.zero_()
        return logits

    examine(careless, images, labels)
    assert torch.equal(images, data[0])
    assert torch.equal(labels, data[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_few_rows_are_not_called_chance(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    assert examine(lambda x: net(x).roll(1, dims=1), data[0][:3], data[1][:3]) == []


def test_rows_and_labels_must_match(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        examine(net, data[0][:0], data[1][:0])
    with pytest.raises(ValueError, match="one label per row"):
        examine(net, data[0], data[1][:3])


def test_every_code_is_documented_and_reached() -> None:
    assert list(CODES) == [f"SZ{number:03d}" for number in (*range(1, 22), *range(30, 34))]
    assert all(line.endswith(".") and "\n" not in line for line in CODES.values())
    reached = {code for _, expected, _ in BROKEN for code in expected}
    reached |= {"SZ002", "SZ006", "SZ011", "SZ015", "SZ021", "SZ030", "SZ032", "SZ033"}
    # The first is found by a cascade (tests/auto), the second by a search that makes a copy (tests/run/test_copies.py),
    # the third in a store (tests/report/test_doubts.py), the others in a space (test_doctor_space.py).
    assert reached | {"SZ014", "SZ016", "SZ031"} | {f"SZ0{number}" for number in range(17, 21)} == set(CODES)


def test_a_model_that_writes_to_its_input_is_named():
    net = torch.nn.Linear(4, 3)
    x = torch.rand(16, 4)
    y = net(x - 0.5).argmax(1)
    (found,) = examine(lambda x: net(x.sub_(0.5)), x, y)
    assert found.code == "SZ015"
    assert found.severity == "warning"
    assert x.min() >= 0


def test_channels_that_look_to_come_last_are_doubted():
    net = nn.Sequential(nn.Flatten(), nn.Linear(5 * 6 * 3, 2))
    (found,) = [each for each in examine(net, torch.rand(4, 5, 6, 3), torch.zeros(4).long()) if each.code == "SZ021"]
    assert found.severity == "warning"
    assert "channels='last'" in found.fix
    assert not [each for each in examine(net, torch.rand(4, 3, 5, 6), torch.zeros(4).long()) if each.code == "SZ021"]


@pytest.mark.parametrize(("flat", "severity"), [(16, "warning"), (17, "error")])
def test_gradients_that_vanish_on_many_rows_are_an_error(net: nn.Module, flat: int, severity: str) -> None:
    x = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    first = (torch.arange(64) >= flat)[:, None].double()

    def model(x: Tensor) -> Tensor:
        z: Tensor = net(x)
        return z.detach() + first.to(z) * (z - z.detach()) if len(x) == 64 else z

    (found,) = (each for each in examine(model, x, net(x).argmax(1)) if each.code == "SZ004")
    assert found.severity == severity


def test_gradients_that_are_tiny_beside_the_margins(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    def flattened(x: Tensor) -> Tensor:
        z: Tensor = net(x)
        return z.detach() + 1e-6 * (z - z.detach())

    found = {each.code: each for each in examine(flattened, *data)}
    assert found["SZ032"].severity == "error"
    assert "64 of 64 rows" in found["SZ032"].detail
    assert "SZ032" not in codes(examine(lambda x: 1e-6 * net(x), *data))  # all of it is small: nothing is hidden


def test_an_accuracy_far_below_the_claim(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    x, y = data
    wrong = torch.where(torch.arange(len(y)) % 2 == 0, y, (y + 1) % 10)
    assert "SZ030" not in codes(examine(net, x, wrong))
    (found,) = (each for each in examine(net, x, wrong, claimed=99.0) if each.code == "SZ030")
    assert (found.severity, "99 % is claimed" in found.detail) == ("error", True)
    assert "SZ030" not in codes(examine(net, x, y, claimed=99.0))
    assert "SZ030" not in codes(examine(net, x[:2], wrong[:2], claimed=99.0))  # two rows say little


def test_randomness_is_an_error_that_names_the_way_out(net: nn.Module, data: tuple[Tensor, Tensor]) -> None:
    (found,) = examine(lambda x: noisy(net(x)), *data)
    assert (found.code, found.severity) == ("SZ003", "error")
    assert "version='rand'" in found.fix


def test_a_missing_normalisation_is_suspected(data: tuple[Tensor, Tensor], net: nn.Module) -> None:
    """A network made for normalised inputs, asked with plain ones, and the same with the normalisation in front."""
    mean, std = (torch.tensor(value).view(1, 1, 1, 1) for value in (0.1307, 0.3081))
    assert isinstance(net, nn.Sequential)
    flat = net[1]
    assert isinstance(flat, nn.Linear)
    blind = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).eval()
    blind.load_state_dict(net.state_dict())
    with torch.no_grad():  # the same answers to (x − mean) / std as the network gives to x, and a bias that needs them
        first = blind[1]
        assert isinstance(first, nn.Linear)
        first.weight.mul_(std.item())
        first.bias.add_(flat.weight.sum(1) * mean.item())
    found = {finding.code: finding for finding in examine(blind, *data)}
    scaled = {finding.code for finding in examine(nn.Sequential(Normalize([0.1307], [0.3081]), blind), *data)}
    assert "SZ033" not in scaled
    assert "SZ033" not in codes(examine(net, *data))
    assert "with mnist's mean and deviation" in found["SZ033"].detail
    assert "--normalize mnist" in found["SZ033"].fix
    assert "SZ033" not in codes(examine(wrap(blind, ability="scores"), *data))  # not asked more than it must be


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_frozen_script_has_no_mode():
    x = torch.rand(4, 6)
    model = torch.jit.freeze(torch.jit.trace(nn.Linear(6, 3).eval(), x))
    assert "SZ002" not in [finding.code for finding in examine(model, x, model(x).argmax(1))]
