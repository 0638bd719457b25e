"""Every bridge, by registration: all attacks are there, and what comes out equals our own call to the bit.

The libraries themselves run in tests/adapters (`make peers`); here small modules in their shape stand in for them.
"""

import importlib
import os
import sys
from importlib.util import find_spec
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero import adapters, models

BRIDGES = {
    name: importlib.import_module(f"sigmazero.adapters.{name}") for name in adapters.__all__ if name != "foreign"
}
FUNCTIONS = ("adv_lib", "attackbench")  # these need no library
# The package that pip installs, a version that the bridge takes, and modules with what the bridge uses of them.
STAND_INS: dict[str, tuple[str, str, dict[str, str]]] = {
    "foolbox": (
        "foolbox",
        "3.3.4",
        {
            "criteria": """
class Held:
    def __init__(self, raw): self.raw = raw
class Misclassification:
    def __init__(self, labels): self.labels = Held(labels)
class TargetedMisclassification:
    def __init__(self, classes): self.target_classes = Held(classes)
""",
            "attacks.base": """
from foolbox.criteria import Held, Misclassification
class ep:
    astensor = Held
    astensor_ = staticmethod(lambda values: (Held(values), lambda held: held.raw))
def get_criterion(given): return given if hasattr(given, "target_classes") else Misclassification(given)
def raise_if_kwargs(given): assert not given
class MinimizationAttack:
    def __call__(self, model, inputs, criterion, epsilon): return self.run(model, inputs, criterion, early_stop=epsilon)
class FixedEpsilonAttack:
    def __call__(self, model, inputs, criterion, epsilon): return self.run(model, inputs, criterion, epsilon=epsilon)
""",
        },
    ),
    "torchattacks": (
        "torchattacks",
        "3.5.1",
        {
            "attack": """
class Attack:
    _model_training, _normalization_applied, targeted, device = False, None, False, "cpu"
    def __init__(self, name, model): self.attack, self.model = name, model
    def get_target_label(self, inputs, labels): return labels
"""
        },
    ),
    "art": (
        "adversarial-robustness-toolbox",
        "1.18.1",
        {
            "attacks.attack": """
class EvasionAttack:
    def __init__(self, estimator): self.estimator = estimator
""",
            "estimators.estimator": "class BaseEstimator: pass",
            "defences.preprocessor.preprocessor": "class PreprocessorPyTorch: pass",
            "estimators.classification": """
class ClassifierMixin: pass
class PyTorchClassifier:
    clip_values, device, preprocessing_operations = (0.0, 1.0), "cpu", []
    def __init__(self, model): self.model = model
    def _apply_preprocessing(self, x, y, fit, no_grad): return x, y
    def predict(self, x): return self.model(__import__("torch").as_tensor(x)).detach().numpy()
""",
        },
    ),
    "secmlt": (
        "secml-torch",
        "1.4",
        {
            "adv.evasion.base_evasion_attack": """
class BaseEvasionAttack:
    def __call__(self, model, loader): return [self._run(model, x, y)[0] for x, y in loader]
"""
        },
    ),
}


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Puts a stand-in for a library where imports find it; a library that is installed has its own tests."""
    before = set(sys.modules)
    placed = []

    def place(name: str) -> None:
        if find_spec(name):
            pytest.skip(f"{name} is installed: tests/adapters has this test with it")
        package, version, files = STAND_INS[name]
        for module, code in files.items():
            path = tmp_path.joinpath(name, *module.split(".")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(code)
        info = tmp_path / f"{package.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n")
        monkeypatch.syspath_prepend(tmp_path)
        placed.append(name)

    yield place
    for name in [each for each in set(sys.modules) - before if each.partition(".")[0] in placed]:
        del sys.modules[name]


@pytest.fixture
def asked():
    """A network, rows that it has right, and classes to reach."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3, bias=False))
    torch.nn.init.normal_(next(model.parameters()))
    x = torch.rand(5, 1, 3, 4)
    y = model(x).argmax(1)
    return model.eval(), x, y, torch.zeros_like(y)


class Bounded:
    """A model as foolbox has it."""

    bounds: ClassVar[Any] = type("Bounds", (), {"lower": 0.0, "upper": 1.0})

    def __init__(self, model):
        self.model = model

    def __call__(self, x):
        return self.model(x)


class Held(Bounded):
    """A model as secml-torch has it: a wrapper with the network as `model`."""


def through(name, attack, model, x, y, targeted, **options):
    """What a bridge gives for an attack."""
    bridge = BRIDGES[name]
    if name in FUNCTIONS:
        return bridge.run(attack, model, x, y, targeted=targeted, **options)
    budget = options.pop("budget", None)
    if name == "foolbox":
        criterion = importlib.import_module("foolbox.criteria").TargetedMisclassification(y) if targeted else y
        return bridge.wrap(attack, **options)(Bounded(model), x, criterion, budget)
    how = {} if budget is None else {"budget": budget}
    if name == "torchattacks":
        made = bridge.wrap(attack, model, **how, **options)
        made.targeted, made.attack_mode = targeted, "targeted(label)"
        return made(x, y)
    if name == "art":
        classifier = importlib.import_module("art.estimators.classification").PyTorchClassifier(model)
        found = bridge.wrap(attack, classifier, targeted=targeted, **how, **options).generate(x.numpy(), y.numpy())
        return torch.from_numpy(found)
    target = {"y_target": int(y[0])} if targeted else {}
    return torch.cat(bridge.wrap(attack, **target, **how, **options)(Held(model), [(x, y)]))


@pytest.mark.parametrize("name", BRIDGES)
def test_every_attack_has_its_name(name):
    parts = [each.split("-") for each in sz.ATTACKS]
    expected = ["_".join(each) if name in FUNCTIONS else "".join(map(str.capitalize, each)) for each in parts]
    assert sorted(dir(BRIDGES[name])) == sorted([*expected, *BRIDGES[name].__all__])
    if name in FUNCTIONS:
        assert [getattr(BRIDGES[name], each).__name__ for each in expected] == expected
    with pytest.raises(AttributeError, match=r"SigmaOne.*[Ss]igma_?[Zz]ero"):
        _ = BRIDGES[name].SigmaOne


@pytest.mark.parametrize("name", STAND_INS)
def test_a_library_that_is_not_installed_is_named_with_the_line_to_type(name):
    if find_spec(name):
        pytest.skip(f"{name} is installed")
    assert not os.environ.get("SIGMAZERO_PEERS"), f"{name} should be installed here"
    package = STAND_INS[name][0]
    calls = [lambda: BRIDGES[name].SigmaZero, lambda: sz.foreign(f"{name}:Any")]
    for call in calls[: 1 if name == "secmlt" else 2]:
        with pytest.raises(models.MissingExtra, match=rf"{package} is not installed.*pip install .*{package}"):
            call()


@pytest.mark.parametrize(
    ("attack", "budget", "targeted"),
    [
        ("sigma-zero", None, False),
        ("sigma-zero", None, True),
        ("sigma-swap", None, False),
        ("query-swap", None, True),
        ("sparse-rs", 4, False),
    ],
)
@pytest.mark.parametrize("name", BRIDGES)
def test_the_result_is_our_own_to_the_bit(stand_in, asked, name, attack, budget, targeted):
    if name in STAND_INS:
        stand_in(name)
    model, x, y, goal = asked
    options = {} if budget is None else {"budget": budget}
    labels = goal if targeted else y
    found = through(name, attack, model, x, labels, targeted, steps=30, **options)
    expected = sz.get(attack, steps=30).run(
        model, x, labels, targeted=targeted, hardware=sz.Hardware(prepare="none"), **options
    )
    assert expected.success.any()
    assert torch.equal(found, expected.x_adv)


def test_a_plain_function_is_an_attack(asked):
    model, x, y, _ = asked
    seen = []

    def darken(model, x, y):
        seen.append(len(x))
        points = torch.where(torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.7, 0.0, x)
        model(points)
        return points

    result = sz.foreign(darken).run(model, x, y)
    assert isinstance(result, sz.Result)
    assert sum(seen) == len(x)
    fooled = model(result.x_adv).argmax(1) != y
    assert torch.equal(result.success, fooled)
    assert torch.equal(result.l0[fooled], (result.x_adv != x).flatten(1).sum(1)[fooled].to(result.l0))
    assert result.forwards.min() >= 3  # the clean input, its own question, what it returned
    again = sz.foreign(result.x_adv).run(model, x, y)
    assert torch.equal(again.success, result.success)
    with pytest.raises(TypeError, match="int"):
        sz.foreign(7)


class Darken:
    """An attack with settings of its own, as people write it."""

    def __init__(self, value):
        self.value = value

    def __call__(self, model, x, y):
        return torch.full_like(x, self.value)


def test_an_object_that_can_be_called_is_an_attack(asked):
    model, x, y, _ = asked
    result = sz.foreign(Darken(0.0)).run(model, x, y)
    assert torch.equal(result.success, model(torch.zeros_like(x)).argmax(1) != y)
    evaluation = sz.evaluate(model, (x, y), [Darken(0.0)])
    assert torch.equal(evaluation["Darken"].success, result.success)


def test_options_by_the_names_of_adv_lib(asked):
    model, x, y, _ = asked
    found = BRIDGES["adv_lib"].sigma_zero(model, x, y, num_steps=9, η_0=0.5, targeted=False, targets=None)
    assert torch.equal(found, sz.get("sigma-zero", steps=9, step_size=0.5).run(model, x, y).x_adv)
    for wrong in ({"num_steps": 9, "steps": 9}, {"stepps": 9}):
        with pytest.raises(TypeError, match=r"steps|stepps"):
            BRIDGES["adv_lib"].sigma_zero(model, x, y, **wrong)


class Counted(torch.nn.Module):
    """A model with AttackBench's limit that counts what each row costs."""

    def __init__(self, model, limit):
        super().__init__()
        self.model, self.num_max_propagations, self.spent = model, limit, 0

    def forward(self, x):
        self.spent += len(x) * (2 if x.requires_grad else 1)
        return self.model(x)


@pytest.mark.parametrize("attack", sz.ATTACKS)
def test_the_limit_of_attackbench_is_kept(asked, attack):
    model, x, y, _ = asked
    counted = Counted(model, 40)
    budget = {"budget": 4} if sz.ATTACKS[attack].kind == "budget" else {}
    BRIDGES["attackbench"].run(attack, counted, x[:1], y[:1], **budget)
    assert 0 < counted.spent <= 40


@pytest.mark.parametrize("attack", ["sparse-rs-min", "bb", "vfga", "pgd-l0-min"])
def test_an_attack_that_attackbench_stops_returns_what_it_found(asked, attack):
    model, x, y, _ = asked
    counted = Counted(model, 120)
    found = BRIDGES["attackbench"].run(attack, counted, x, y)
    assert counted.spent <= 120 * len(x)
    assert (model(found).argmax(1) != y).any()
    assert not torch.equal(found, x)


def test_a_foreign_attack_that_returns_its_inputs_is_a_finding(asked):
    model, x, y, _ = asked
    with pytest.warns(UserWarning, match="SZ022"):
        idle = sz.foreign(lambda model, x, y: x).run(model, x, y)
    assert [finding.code for finding in idle.findings] == ["SZ022"]
    assert not idle.success.any()
    busy = sz.foreign(lambda model, x, y: (x + 0.5) % 1).run(model, x, y)
    assert "SZ022" not in [finding.code for finding in busy.findings]


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_the_advice_for_a_network_of_16_bits_leads_somewhere(asked, kind):
    model, x, y, _ = asked
    model.to(kind)
    with pytest.raises(TypeError) as raised:
        sz.get("sigma-zero", steps=2).run(model, x, y)
    for advice, given in (("x.double()", x.double()), ("x.float()", x.float())):
        if advice in str(raised.value):
            sz.get("sigma-zero", steps=2).run(model, given, y)


@pytest.mark.filterwarnings("ignore")
def test_a_quantised_network_is_said_to_have_scores_alone(asked):
    model, x, y, _ = asked
    small = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)
    with pytest.raises(ValueError, match="scores"):
        sz.get("sigma-zero", steps=2).run(small, x, y)


def test_an_exported_program_is_a_model(asked):
    model, x, y, _ = asked
    program = torch.export.export(model, (x,))
    assert sz.get("sigma-zero", steps=2).run(program, x, y).success.shape == y.shape


def test_a_function_on_arrays_is_recognised_by_its_annotations():
    def ask(batch: np.ndarray) -> np.ndarray:
        return np.hstack([torch.as_tensor(batch).sum(1, keepdim=True).numpy()] * 2)

    assert sz.wrap(ask)(torch.rand(2, 3)).shape == (2, 2)


def test_channels_last_are_moved_once(asked):
    torch.manual_seed(0)
    weight = torch.randn(4 * 5 * 3, 4)

    def ask(images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1) @ weight

    x = torch.rand(6, 3, 4, 5)
    y = ask(x.movedim(1, -1)).argmax(1)
    result = sz.get("sigma-zero", steps=20).run(sz.wrap(ask, channels="last"), x, y)
    assert torch.equal(result.success, ask(result.x_adv.movedim(1, -1)).argmax(1) != y)
