"""Every model of the zoo, by registration: its entry, its network, and weights that are missing or wrong."""

import importlib.util
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import sigmazero as sz
from sigmazero import data, models

ENTRIES = models.entries()
OURS = [code for code, entry in ENTRIES.items() if entry.architecture not in ("timm", "robustbench")]
THEIRS = [code for code in ENTRIES if code not in OURS]
BUNDLED = [code for code, entry in ENTRIES.items() if entry.bundled]
PUBLISHED = [code for code in ENTRIES if code not in BUNDLED]
PAPER = ["M1", "M2", *(f"C{i}" for i in range(1, 13)), *(f"I{i}" for i in range(1, 9))]


@pytest.fixture(autouse=True)
def _no_ambient_weights(tmp_path, monkeypatch):
    for name in ("SIGMAZERO_HOME", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))


def test_the_models_of_the_paper_come_first():
    assert list(ENTRIES)[: len(PAPER)] == PAPER
    files = [weight.file for entry in ENTRIES.values() for weight in entry.weights]
    assert len(files) == len(set(files))


@pytest.mark.parametrize("code", ENTRIES)
def test_an_entry_is_complete(code):
    entry = ENTRIES[code]
    assert (entry.code, models.get(code), models.find(code.swapcase())) == (code, entry, entry)
    assert entry.title
    assert entry.source
    assert entry.classes > 1
    assert min(entry.input_size) > 0
    assert bool(entry.weights) != bool(entry.bundled)
    if entry.dataset in data.DATASETS and entry.dataset != "imagenet":
        assert entry.input_size == data.DATASETS[entry.dataset].shape
        assert entry.classes == data.DATASETS[entry.dataset].classes
    if entry.robustbench:
        assert models.get(f"{entry.dataset}/{entry.robustbench.upper()}") is entry
    with pytest.raises(AttributeError):
        entry.title = "another"


def test_names_that_are_ambiguous_or_unknown():
    with pytest.raises(ValueError, match=r"C7.*I2"):
        models.find("Engstrom2019Robustness")
    assert models.find("nonsense") is None
    with pytest.raises(models.UnknownModel, match="Carmon2019Unlabeled"):
        models.get("Carmon2019Unlabelled")
    with pytest.raises(models.UnknownModel, match=r"@@@.*M1, M2"):
        models.get("@@@")


@pytest.mark.parametrize("code", OURS)
def test_the_network_has_the_promised_shape_and_size(code):
    entry = ENTRIES[code]
    with torch.device("meta"):  # no numbers: the largest has 267 million
        model = entry.normalized(entry.build()).eval()
        assert model(torch.rand(2, *entry.input_size)).shape == (2, entry.classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == entry.parameters


SMALL = [
    code for code in OURS if (ENTRIES[code].parameters or 0) < 12e6 and math.prod(ENTRIES[code].input_size) < 10_000
]


@pytest.mark.parametrize("code", sorted({ENTRIES[code].architecture: code for code in SMALL}.values()))
def test_answers_are_finite_the_same_twice_and_of_each_row_alone(code):
    """Once for each architecture; larger networks are checked by their shapes above."""
    entry = ENTRIES[code]
    model = entry.normalized(entry.build()).eval()
    x = torch.rand(3, *entry.input_size, requires_grad=True)
    logits = model(x)
    assert logits.isfinite().all()
    assert torch.equal(logits, model(x))
    assert torch.allclose(logits[1:2], model(x[1:2]), atol=1e-4)
    assert torch.autograd.grad(logits.sum(), x)[0].abs().sum() > 0


@pytest.mark.parametrize("code", BUNDLED)
def test_bundled_models_load_in_eval_mode_and_ask_for_no_gradients_of_weights(code):
    model = models.load(code)
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    x = torch.rand(2, *ENTRIES[code].input_size)
    assert torch.equal(model(x), models.load(code)(x))
    with pytest.raises(ValueError, match="normalize"):
        models.load(code, normalize="0.5,0.5")


@pytest.mark.parametrize("code", PUBLISHED)
def test_missing_weights_name_the_file_the_folder_and_where_to_get_it(code, tmp_path):
    first = ENTRIES[code].weights[0]
    with pytest.raises(models.MissingWeights) as raised:
        models.load(code, model_dir=tmp_path)
    said = str(raised.value)
    assert first.file in said
    assert str(tmp_path) in said
    assert ENTRIES[code].source in said
    assert ("models.fetch" in said) == all(weight.url for weight in ENTRIES[code].weights)


HASHED = [code for code in PUBLISHED if ENTRIES[code].weights[0].sha256]


@pytest.mark.parametrize("code", HASHED)
def test_a_file_with_another_hash_is_refused(code, tmp_path):
    path = tmp_path / ENTRIES[code].weights[0].file
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({}, path)
    with pytest.raises(models.WeightsError, match=str(ENTRIES[code].weights[0].sha256)):
        models.load(code, model_dir=tmp_path)


@pytest.mark.parametrize("code", ["M1", "resnet20", "prn18-linf"])
def test_weights_of_another_network_are_refused_by_name(code, tmp_path):
    state = ENTRIES[code].build().state_dict()
    torch.save(dict(list(state.items())[1:]), tmp_path / "short.pt")
    with pytest.raises(models.WeightsError, match=next(iter(state))):
        models.load(code, weights=tmp_path / "short.pt")
    torch.save(state, tmp_path / "whole.pt")
    network = ENTRIES[code].build()
    network.load_state_dict(state)
    x = torch.rand(2, *ENTRIES[code].input_size)
    assert torch.equal(models.load(code, weights=tmp_path / "whole.pt")(x), ENTRIES[code].normalized(network).eval()(x))


@pytest.mark.parametrize("code", THEIRS)
def test_models_of_other_packages_build_or_say_what_to_install(code):
    entry = ENTRIES[code]
    if importlib.util.find_spec(entry.architecture) is None:
        with pytest.raises(models.MissingExtra, match=rf"{entry.architecture}.*pip install"):
            entry.build()
        return
    with torch.device("meta"):
        assert entry.normalized(entry.build()).eval()(torch.rand(1, *entry.input_size)).shape == (1, entry.classes)


@pytest.mark.parametrize(
    ("name", "module", "command"),
    [
        ("robustbench:Nobody2030", "robustbench", "pip install 'sigmazero[robustbench]'"),
        ("torchvision:resnet50", "torchvision", "pip install torchvision"),
        ("timm:vit_tiny_patch16_224", "timm", "pip install 'sigmazero[timm]'"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_the_command(name, module, command):
    if importlib.util.find_spec(module):
        pytest.skip(f"{module} is installed")
    with pytest.raises(models.MissingExtra, match=re.escape(command)) as raised:
        sz.get("fmn").run(name, torch.rand(1, 3, 8, 8), torch.tensor([0]))
    assert name in str(raised.value)


def test_a_published_name_may_say_where_it_is_from():
    assert models.get("robustbench:Carmon2019Unlabeled") is models.get("Carmon2019Unlabeled")
    with pytest.raises(models.MissingWeights, match=r"Carmon2019Unlabeled\.pt"):
        models.load("robustbench:Carmon2019Unlabeled")


BUILD = "from torch import nn\n\ndef build():\n    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3))\n"


def test_a_model_may_be_named_wherever_one_is_taken(tmp_path, monkeypatch):
    """Each is given the name and the network: both come to the same."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "import torch\n" + BUILD.replace("    return", "    torch.manual_seed(0)\n    return")
    )
    name, x = "net.py:build", torch.rand(2, 12, generator=torch.Generator().manual_seed(0))
    network = models.load(name)
    y = network(x).argmax(1)
    x_adv = sz.get("vfga", steps=20).run(network, x, y).x_adv
    asked: dict[str, Callable[[Any], Any]] = {
        "run": lambda model: sz.get("vfga", steps=20).run(model, x, y).x_adv,
        "evaluate": lambda model: sz.evaluate(model, (x, y), "vfga", steps=20)["vfga"].x_adv,
        "check": lambda model: sz.check(model, x, y, x_adv).l0,
        "refine": lambda model: sz.refine(model, x, y, x_adv, queries=20),
        "certify": lambda model: torch.as_tensor(sz.certify(model, x, y, up_to=1).lower),
        "SparseAutoAttack": lambda model: sz.SparseAutoAttack(
            model, version="custom", attacks_to_run=["vfga"], verbose=False
        ).run_standard_evaluation(x, y),
        "wrap": lambda model: sz.wrap(model, gives="scores")(x),
        "limit": lambda model: sz.limit(model, ability="scores")(x),
    }
    for what, ask in asked.items():
        assert torch.equal(ask(name), ask(network)), what
        with pytest.raises(FileNotFoundError, match=r"none\.onnx"):
            ask("none.onnx")
    with pytest.raises(FileNotFoundError, match=r"none\.onnx"):
        sz.gate("none.onnx", (x, y), eps=2, at_least=0.0)
