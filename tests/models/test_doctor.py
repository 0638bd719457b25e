"""Each complaint of the doctor, by a model or rows that deserve it; healthy ones get none."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.core.findings import CODES, render
from sigmazero.data import load
from sigmazero.models.doctor import examine, examine_space
from sigmazero.models.normalize import Normalize
from tests.helpers import loans


@pytest.fixture(scope="module")
def data():
    rows = load("digits-8x8", limit=80, seed=0)
    return rows.images, rows.labels


@pytest.fixture(scope="module")
def net(data):
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


def codes(findings):
    return [finding.code for finding in findings]


def the(code, findings):
    (found,) = (each for each in findings if each.code == code)
    return found


def test_healthy_models(net, data):
    assert examine(net, *data) == []
    assert examine(lambda x: net(x).log_softmax(dim=1), *data) == []
    assert examine(net.double(), data[0].double(), data[1]) == []
    net.float()
    named = sz.wrap(lambda x: net(torch.from_numpy(x)).argmax(1).numpy(), kind="numpy", gives="labels", classes=10)
    assert examine(named, *data) == []


def noisy(logits):
    return logits + torch.randn_like(logits)


def one_nan(logits):
    return torch.where(torch.arange(len(logits))[:, None] == 3, torch.nan, logits)


def tiny(logits):
    return logits.detach() + 1e-6 * (logits - logits.detach())


def flat_rows(count):
    return lambda z: torch.where(torch.arange(len(z))[:, None] < count, z.detach(), z)


BROKEN = [
    (lambda z: z.softmax(dim=1), ["SZ001"], "gives='probabilities'"),
    (noisy, ["SZ003"], "version='rand'"),
    (lambda z: z * 0 + z.detach(), ["SZ004"], "error.*\n.*64 of 64 rows"),
    (flat_rows(16), ["SZ004"], r"warning.*\n.*16 of 64 rows \(25%\)"),
    (flat_rows(17), ["SZ004"], "error"),
    (one_nan, ["SZ004", "SZ007"], "1 of 64 rows have NaN"),
    (lambda z: z[:, :, None], ["SZ008"], r"shape \(64, 10, 1\)"),
    (lambda z: ([z], z), ["SZ008"], "a tuple"),
    (lambda z: z[:5], ["SZ008"], "64 inputs gave"),
    (lambda z: z.argmax(dim=1, keepdim=True), ["SZ008"], "torch.int64"),
    (lambda z: z[:, :1].sigmoid(), ["SZ009"], r"values from 1.*gives='scores'"),
    (lambda z: z[:, :5], ["SZ010"], "outside 0 to 4"),
    (lambda z: z.detach(), ["SZ012"], "carry no gradient"),
    (lambda z: z + (z * 0).abs().sqrt(), ["SZ013"], "64 of 64 rows"),
    (tiny, ["SZ032"], "64 of 64 rows"),
    (lambda z: z.roll(1, dims=1), ["SZ005", "SZ034"], "label 0 is the model's 1"),
]


@pytest.mark.parametrize(("twist", "expected", "text"), BROKEN)
def test_each_complaint(net, data, twist, expected, text: str):
    findings = examine(lambda x: twist(net(x)), *data)
    assert codes(findings) == expected
    assert re.search(text, render(findings), re.DOTALL)


@pytest.mark.parametrize("numbering", [[1, 0, *range(2, 10)], [*range(5, 10), *range(5)]])
def test_labels_in_another_order_are_noticed_where_the_rows_prove_it(net, data, numbering: list[int]):
    order = torch.tensor(numbering)
    found = examine(net, data[0], order[data[1]])
    few = numbering[2:] == [*range(2, 10)]  # two classes of ten prove too little
    assert ("SZ034" in codes(found)) == (not few)
    if not few:
        assert the("SZ034", found).severity == "error"


def test_constant_model(data):
    weight = torch.ones(1, 10, requires_grad=True)
    assert codes(examine(lambda x: weight.expand(len(x), 10), *data)) == ["SZ005", "SZ012"]
    assert weight.grad is None
    assert "SZ034" not in codes(examine(lambda x: torch.randn(len(x), 10), *data))


def test_training_mode_is_reported_and_kept(net, data):
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10), nn.Dropout(0.5))
    model[1].eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    findings = examine(model, *data)
    assert "SZ003" not in codes(findings)
    assert "Dropout" in the("SZ002", findings).detail
    assert "BatchNorm" not in the("SZ002", findings).detail
    assert [part.training for part in (model, *model)] == [True, True, False, True, True]
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert examine(net.train(), *data) == []  # nothing in it would answer differently
    net.eval()


@pytest.mark.parametrize(
    ("change", "fix"),
    [
        (lambda x: (x * 255).byte(), "bounds=(0, 255)"),
        (lambda x: (x - 0.5) / 0.5, "normalised"),
        (lambda x: torch.where(x == x.max(), torch.nan, x), "bounds"),
    ],
)
def test_inputs_outside_the_bounds(net, data, change, fix):
    assert fix in the("SZ006", examine(net, change(data[0]), data[1])).fix
    low, high = data[0].amin(dim=0), data[0].amax(dim=0)
    assert examine(net, *data, bounds=(low, high)) == []
    assert codes(examine(net, *data, bounds=(low, high - 0.1))) == ["SZ006"]


@pytest.mark.parametrize("labels", [torch.eye(10)[[0] * 80], torch.zeros(80), torch.arange(80)])
def test_bad_labels(net, data, labels):
    assert codes(examine(net, data[0], labels)) == ["SZ010"]


def test_model_that_raises_is_a_finding(net, data):
    assert "RuntimeError" in the("SZ011", examine(net, data[0][..., :5], data[1])).detail

    def only_without_gradient(x):
        if x.requires_grad:
            raise MemoryError("too much")
        return net(x)

    assert "MemoryError: too much" in the("SZ011", examine(only_without_gradient, *data)).detail
    widths = iter([10, 9, 8])
    assert codes(examine(lambda x: net(x)[:, : next(widths)], *data)) == ["SZ003"]


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_gradients_forbidden_outside_do_not_matter(net, data, guard):
    with guard():
        assert examine(net, data[0] * 1, data[1] * 1) == []
        assert not torch.is_grad_enabled()


def test_nothing_is_left_behind(net, data):
    images, labels, state = data[0].clone(), data[1].clone(), torch.get_rng_state()

    def careless(x):
        logits = net(x.clone()) + torch.rand(()) * 0
        with torch.no_grad():
            x.zero_()
        return logits

    assert the("SZ015", examine(careless, images, labels)).severity == "warning"
    assert torch.equal(images, data[0])
    assert torch.equal(labels, data[1])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in net.parameters())


def test_what_is_said_of_the_rows(net, data):
    said = []
    examine(net, *data, say=said.append)
    assert said == ["values from 0 to 1, 10 classes in 64 rows examined, clean accuracy 100.0%, gradients flow"]
    examine(sz.limit(net, ability="scores"), *data, say=said.append)
    assert said[1].endswith("100.0%")
    examine(lambda x: net(x).detach(), *data, say=said.append)
    assert said[2].endswith("no gradients")


def test_too_few_rows(net, data):
    assert examine(lambda x: net(x).roll(1, dims=1), data[0][:3], data[1][:3]) == []
    for rows, labels in ((0, 0), (len(data[0]), 3)):
        with pytest.raises(ValueError, match="one row"):
            examine(net, data[0][:rows], data[1][:labels])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_channels_that_look_to_come_last_are_doubted_and_a_frozen_script_has_no_mode():
    net, y = nn.Sequential(nn.Flatten(), nn.Linear(5 * 6 * 3, 2)), torch.zeros(4).long()
    assert "channels='last'" in the("SZ021", examine(net, torch.rand(4, 5, 6, 3), y)).fix
    x = torch.rand(4, 3, 5, 6)
    assert "SZ021" not in codes(examine(net, x, y))
    assert "SZ002" not in codes(examine(torch.jit.freeze(torch.jit.trace(net.eval(), x)), x, y))


def test_an_accuracy_far_below_the_claim(net, data):
    x, y = data
    wrong = torch.where(torch.arange(len(y)) % 2 == 0, y, (y + 1) % 10)
    assert "99 % is claimed" in the("SZ030", examine(net, x, wrong, claimed=99.0)).detail
    for labels, rows, claimed in ((wrong, 80, None), (y, 80, 99.0), (wrong, 2, 99.0)):  # two rows say little
        assert "SZ030" not in codes(examine(net, x[:rows], labels[:rows], claimed=claimed))


def test_a_missing_normalisation_is_suspected(data, net):
    """A network made for normalised inputs, asked with plain ones, and the same with the normalisation in front."""
    own, blind = net, nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).eval()
    blind.load_state_dict(own.state_dict())
    first = blind[1]
    with torch.no_grad():  # the same answers to (x − mean) / std as the network gives to x, and a bias that needs them
        first.bias.add_(first.weight.sum(1) * 0.1307)
        first.weight.mul_(0.3081)
    assert "--normalize mnist" in the("SZ033", examine(blind, *data)).fix
    for model in (nn.Sequential(Normalize([0.1307], [0.3081]), blind), net, sz.limit(blind, ability="scores")):
        assert "SZ033" not in codes(examine(model, *data))


# Spaces

X = torch.from_numpy(loans.table()[0])


@pytest.fixture
def space(tmp_path):
    loans.write(tmp_path)
    return sz.Space.from_toml(tmp_path / "loan.toml")


def test_what_looks_wrong_in_a_space(space):
    assert examine_space(space, X) == []
    outside = X.clone()
    outside[3, 0] = 400
    found = the("SZ017", examine_space(space, outside))
    assert "'age' of input row 3 is 400" in found.detail
    assert found.fix == "widen the ends or correct the input"
    wide = the("SZ019", examine_space(replace(space, upper={"age": 90, "gain": 1e9}), X))
    assert "'gain' may go from 0 to 1e+09" in wide.detail
    assert "'gain' costs 1e+06" in the("SZ020", examine_space(replace(space, cost={"gain": 1e6}), X)).detail
    model, labels = torch.nn.Linear(6, 2), torch.zeros(12, dtype=torch.int64)
    assert "SZ006" in codes(examine(model, X, labels))
    found_too = codes(examine(model, X, labels, space=replace(space, cost={"gain": 1e6})))
    assert ("SZ006" in found_too, "SZ020" in found_too) == (False, True)


def test_pixels_have_one_unit_and_tables_do_not():
    images = torch.rand(8, 1, 3, 3)
    images[..., 0, 0] /= 1000  # as at the border of a digit
    assert examine_space(sz.Space(), images) == []
    assert codes(examine_space(sz.Space(), images.flatten(1))) == ["SZ019"]


def test_features_that_no_row_may_change():
    stuck = sz.Space(names=["a", "b"], direction={"a": "up"}, lower=0, upper=1)
    assert the("SZ018", examine_space(stuck, torch.tensor([[1.0, 0.5]] * 3))).severity == "warning"
    fixed = sz.Space(names=["a", "b"], direction="none")
    assert the("SZ018", examine_space(fixed, torch.rand(3, 2))).severity == "error"


def test_every_code_is_documented():
    assert list(CODES) == [f"SZ{number:03d}" for number in (*range(1, 23), *range(30, 35))]
    assert all(line.endswith(".") and "\n" not in line for line in CODES.values())
