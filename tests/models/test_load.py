import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from torch import nn

import sigmazero as sz
from sigmazero import data
from sigmazero.models import UnknownModel, WeightsError, load, zoo
from sigmazero.models.architectures import build

CODE = """
from dataclasses import dataclass
import neighbour
from torch import nn

@dataclass
class Unused:
    x: int = 0

class Late(nn.Module):
    def forward(self, x):
        import later
        return x.flatten(1)[:, :later.CLASSES]

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, neighbour.CLASSES))

def function():
    return lambda x: x.flatten(1)[:, :3]

def broken():
    return 3

def raises():
    raise KeyError("mine")

VALUE = 1
"""


@pytest.fixture
def code(tmp_path, monkeypatch):
    (tmp_path / "neighbour.py").write_text("CLASSES = 3\n")
    (tmp_path / "later.py").write_text("CLASSES = 2\n")
    (tmp_path / "network.py").write_text(CODE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path / "network.py"
    for name in ("neighbour", "later", "network"):
        sys.modules.pop(name, None)


def test_code_in_a_file(code, tmp_path):
    inner = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    torch.save({"net": {f"module.{key}": value for key, value in inner.state_dict().items()}}, tmp_path / "w.pt")
    model, x = load(f"{code}:build", weights=tmp_path / "w.pt", normalize="0.5,0.25"), torch.rand(2, 1, 2, 2)
    assert torch.allclose(model(x), inner((x - 0.5) / 0.25))
    assert not model.training
    function = load(f"{code}:function", normalize="0.5,0.5")
    assert torch.equal(function(torch.ones(2, 1, 2, 2)), torch.ones(2, 3))
    with pytest.raises(ValueError, match="need a torch module"):
        load(f"{code}:function", weights=tmp_path / "w.pt")


def test_a_sibling_that_is_imported_when_the_model_is_asked(code, monkeypatch):
    assert load(f"{code}:Late")(torch.rand(2, 1, 2, 2)).shape == (2, 2)
    monkeypatch.chdir(code.parent)
    assert load("network:build")(torch.rand(2, 1, 2, 2)).shape == (2, 3)


@pytest.mark.parametrize(
    ("spec", "kind", "named"),
    [
        ("{code}:nothing", ValueError, "'nothing'.*Unused, Late, build"),
        ("{code}:VALUE", ValueError, "no function 'VALUE'"),
        ("{code}:broken", TypeError, "the model is a int"),
        ("{code}:raises", ValueError, r"KeyError: 'mine' \(line 25\)"),
        ("{code}", ValueError, r"network\.py:build"),
        ("nowhere.py:build", FileNotFoundError, r"nowhere\.py"),
        ("nowhere.pt2", FileNotFoundError, r"nowhere\.pt2"),
        ("no_such_package.module:build", ValueError, "no module 'no_such_package'"),
        ("Salman2020Do_R19", UnknownModel, "Salman2020Do_R18"),
        ("zzz", UnknownModel, r"file\.py:build"),
    ],
)
def test_what_cannot_be_loaded(code, spec, kind, named):
    with pytest.raises(kind, match=named):
        load(spec.format(code=code))


def test_files_that_are_something_else(code, tmp_path):
    code.write_text("import no_such_package_inside\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_package_inside"):
        load(f"{code}:build")
    torch.save({}, tmp_path / "w.pt")
    (tmp_path / "m.pt2").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="weights without a network"):
        load(tmp_path / "w.pt")
    with pytest.raises(ValueError, match=r"m\.pt2 is no program"):
        load(tmp_path / "m.pt2")


def test_modules_and_callables_given_directly():
    network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 2))
    assert load(network) is network
    assert not network.training
    assert all(parameter.requires_grad for parameter in network.parameters())  # the caller's own stay as they are
    assert load(network, normalize=((0.5,), (0.5,)))(torch.ones(1, 1, 2, 2)).shape == (1, 2)
    assert load(torch.flatten)(torch.ones(2, 2)).shape == (4,)
    with pytest.raises(TypeError, match="the model is a int"):
        load(3)


def test_a_pickle_runs_only_where_it_is_trusted(tmp_path):
    x, y = np.eye(4).repeat(3, 0), np.arange(4).repeat(3)
    joblib.dump(LogisticRegression().fit(x, y), tmp_path / "model.joblib")
    with pytest.raises(ValueError, match=r"model\.joblib.*trust_code"):
        load(tmp_path / "model.joblib")
    model = load(tmp_path / "model.joblib", trust_code=True)
    assert model(torch.from_numpy(x)).argmax(1).tolist() == y.tolist()
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "other.joblib", trust_code=True)


def test_a_pickle_finds_the_modules_beside_it(tmp_path, monkeypatch):
    (tmp_path / "days_of_loans.py").write_text("def plain(x):\n    return x\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    step = FunctionTransformer(importlib.import_module("days_of_loans").plain)
    x, y = np.eye(4).repeat(3, 0), np.arange(4).repeat(3)
    joblib.dump(make_pipeline(step, LogisticRegression()).fit(x, y), tmp_path / "model.joblib")
    monkeypatch.setattr(sys, "path", sys.path[1:])
    monkeypatch.delitem(sys.modules, "days_of_loans")
    assert load(tmp_path / "model.joblib", trust_code=True)(torch.from_numpy(x)).argmax(1).tolist() == y.tolist()
    monkeypatch.delitem(sys.modules, "days_of_loans")
    (tmp_path / "days_of_loans.py").unlink()
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match=r"model\.joblib needs the module 'days_of_loans'; put days_of_loans"):
        load(tmp_path / "model.joblib", trust_code=True)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("code", "name", "count", "share"),
    [
        ("M1", "mnist", 500, 0.98),
        ("M2", "mnist", 500, 0.98),
        ("prn18-linf", "cifar10", 100, 0.75),
        ("resnet20", "cifar10", 300, 0.88),
    ],
)
def test_real_weights_by_name(code, name, count, share, shared_data):
    rows = data.load(name, rows=slice(count), data_dir=shared_data)
    with torch.no_grad():
        right = load(code, model_dir=shared_data)(rows.images).argmax(1) == rows.labels
    assert right.double().mean() >= share


@pytest.mark.shared
def test_a_real_network_on_real_photographs(shared_data):
    """ImageNet's rows as they are loaded, and the architecture with published weights; its strides are Keras'."""
    network = build("resnet50-imagenet")
    for block in network.modules():
        if hasattr(block, "conv3"):
            block.conv1.stride, block.conv2.stride = block.conv2.stride, block.conv1.stride
    model = load(network, weights=shared_data / "imagenet_resnet50_fp16.pt", normalize="imagenet")
    rows = data.load("imagenet", rows="0:8", data_dir=shared_data)
    right = model(rows.images).argmax(1) == rows.labels
    assert right.sum() >= 6
    first = right.nonzero()[0]
    result = sz.get("sigma-zero", steps=2).run(model, rows.images[first], rows.labels[first], unit="pixel")
    assert result.forwards.tolist() == [4]


def library(monkeypatch, name: str, **contents: Any) -> None:
    """Put a small stand-in for a library where it is imported from."""
    for part in (name.partition(".")[0], name):
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    vars(sys.modules[name]).update(contents)


class Flat(nn.Module):
    """Ten scores from the first ten values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :10]


X = torch.rand(2, 3, 4, 4)
NORMALISED = ((X - 0.5) / 0.25).flatten(1)[:, :10]


def test_torchvision_models_bring_weights_and_normalisation(monkeypatch):
    made: list[Any] = []
    scale = SimpleNamespace(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25])
    published = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: scale))
    parts = {
        "list_models": lambda module: ["resnet18", "resnet50"],
        "get_model_weights": lambda name: published,
        "get_model": lambda name, weights: made.append((name, weights)) or Flat(),
    }
    library(monkeypatch, "torchvision.models", **parts)
    assert torch.allclose(load("torchvision:resnet50")(X), NORMALISED)
    assert torch.equal(load("torchvision:resnet50", normalize="0,1")(X), X.flatten(1)[:, :10])
    assert made == [("resnet50", published.DEFAULT)] * 2
    with pytest.raises(UnknownModel, match=r"'resnet5'.*resnet50"):
        load("torchvision:resnet5")


def test_timm_models_bring_weights_and_normalisation(monkeypatch, tmp_path):
    made: list[Any] = []

    def create_model(name: str, pretrained: bool) -> nn.Module:
        made.append((name, pretrained))
        model = Flat()
        model.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}  # type: ignore[assignment]
        return model

    known = ["vit_tiny.augreg"]
    library(monkeypatch, "timm", is_model=known.__contains__, list_models=lambda: known, create_model=create_model)
    assert torch.allclose(load("timm:vit_tiny.augreg")(X), NORMALISED)
    with pytest.raises(UnknownModel, match=r"'vit_tny'.*vit_tiny"):
        load("timm:vit_tny")
    torch.save({"state_dict": {"weight": torch.ones(1)}}, tmp_path / "w.pt")
    with pytest.raises(WeightsError, match=r'Unexpected .*"weight"'):
        load("I4", weights=tmp_path / "w.pt")
    assert made == [("vit_tiny.augreg", True), (zoo.get("I4").options["name"], False)]


def test_robustbench_models_that_are_not_in_the_table(monkeypatch, tmp_path):
    asked: list[Any] = []

    def load_model(name: str, **how: Any) -> nn.Module:
        asked.append((name, how))
        return {"Someone2030": Flat()}[name]

    library(monkeypatch, "robustbench.utils", load_model=load_model)
    load("robustbench:Someone2030")
    load("robustbench:cifar100/L2/Someone2030", model_dir=tmp_path)
    assert asked == [
        ("Someone2030", {"dataset": "cifar10", "threat_model": "Linf"}),
        ("Someone2030", {"dataset": "cifar100", "threat_model": "L2", "model_dir": str(tmp_path)}),
    ]
    with pytest.raises(UnknownModel, match="Nobody2030"):
        load("robustbench:Nobody2030")
    with pytest.raises(ValueError, match="a/b/c/d"):
        load("robustbench:a/b/c/d")
    with pytest.raises(ValueError, match="Someone2030"):
        load("robustbench:Someone2030", normalize="0,1")
