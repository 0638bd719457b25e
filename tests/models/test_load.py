import os
import py_compile
import sys
import types
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sigmazero.models import MissingExtra, Normalize, UnknownModel, load, zoo
from sigmazero.models.architectures import build
from tests.models.conftest import SHARED
from tests.onnx_files import model, node, written

CODE = """
from dataclasses import dataclass
import neighbour
from torch import nn

@dataclass
class Unused:
    x: int = 0

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(4, neighbour.CLASSES))

def function():
    return lambda x: x.flatten(1)[:, :3]

def broken():
    return 3

VALUE = 1
"""


@pytest.fixture
def code(tmp_path):
    (tmp_path / "neighbour.py").write_text("CLASSES = 3\n")
    (tmp_path / "network.py").write_text(CODE)
    yield tmp_path / "network.py"
    sys.modules.pop("neighbour", None)


def test_known_model_from_a_file_of_weights(tmp_path):
    network = build("smallcnn")
    torch.save(network.state_dict(), tmp_path / "w.pth")
    model = load("m1", weights=tmp_path / "w.pth")
    x = torch.rand(2, 1, 28, 28)
    assert not model.training
    assert torch.equal(model(x), network.eval()(x))
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_known_models_are_normalised(tmp_path):
    network = zoo.get("resnet20").build()
    torch.save(network.state_dict(), tmp_path / "w.pth")
    model = load("resnet20", weights=tmp_path / "w.pth")
    x = torch.rand(2, 3, 32, 32)
    wanted = network.eval()(Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))(x))
    assert torch.equal(model(x), wanted)
    with pytest.raises(ValueError, match="resnet20 brings its own normalisation"):
        load("resnet20", weights=tmp_path / "w.pth", normalize="0.5,0.5")


def test_function_in_a_file(code):
    model = load(f"{code}:build")
    assert model(torch.rand(2, 1, 2, 2)).shape == (2, 3)
    assert not model.training
    assert str(code.parent) not in sys.path


def test_code_is_read_from_its_source_and_nothing_is_written_beside_it(code, monkeypatch):
    """An edit of the same length in the same moment would be taken for what was compiled before."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    load(f"{code}:build")
    assert sorted(file.name for file in code.parent.iterdir()) == ["neighbour.py", "network.py"]
    assert sys.dont_write_bytecode is False
    py_compile.compile(str(code))
    then = code.stat()
    code.write_text(CODE.replace("[:, :3]", "[:, :2]"))
    os.utime(code, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert load(f"{code}:function")(torch.ones(2, 1, 2, 2)).shape == (2, 2)


def test_function_in_a_file_that_returns_a_function(code):
    model = load(f"{code}:function", normalize="0.5,0.5")
    assert torch.equal(model(torch.ones(2, 1, 2, 2)), torch.ones(2, 3))
    with pytest.raises(ValueError, match="need a torch module to go into"):
        load(f"{code}:function", weights="w.pt")


def test_function_in_a_file_with_weights_and_normalisation(code, tmp_path):
    inner = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    torch.save({"net": {f"module.{key}": value for key, value in inner.state_dict().items()}}, tmp_path / "w.pt")
    model = load(f"{code}:build", weights=tmp_path / "w.pt", normalize="0.5,0.25")
    x = torch.rand(2, 1, 2, 2)
    assert torch.allclose(model(x), inner((x - 0.5) / 0.25))


def test_function_in_a_module(code, monkeypatch):
    monkeypatch.chdir(code.parent)
    monkeypatch.setitem(sys.modules, "network", None)
    monkeypatch.delitem(sys.modules, "network")
    assert load("network:build")(torch.rand(2, 1, 2, 2)).shape == (2, 3)


def test_errors_of_code_models(code, monkeypatch):
    with pytest.raises(ValueError, match=r"no function 'nothing'; it has: dataclass, Unused, build"):
        load(f"{code}:nothing")
    with pytest.raises(ValueError, match="no function 'VALUE'"):
        load(f"{code}:VALUE")
    with pytest.raises(TypeError, match=r"what .*:broken returned is a int, neither"):
        load(f"{code}:broken")
    with pytest.raises(ValueError, match=r"network\.py:build; a model is"):
        load(str(code))
    with pytest.raises(FileNotFoundError, match="no file"):
        load("nowhere.py:build")
    with pytest.raises(ValueError, match=r"there is no module 'no_such_package' .*a model is a name"):
        load("no_such_package.module:build")
    code.write_text("import no_such_package_inside\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_package_inside"):
        load(f"{code}:build")


def test_unknown_names_and_bare_checkpoints(tmp_path):
    with pytest.raises(UnknownModel, match=r"did you mean Salman2020Do_R18"):
        load("Salman2020Do_R19")
    with pytest.raises(UnknownModel, match=r"file\.py:build"):
        load("zzz")
    torch.save({}, tmp_path / "w.pt")
    with pytest.raises(ValueError, match="holds weights without a network"):
        load(tmp_path / "w.pt")


def test_modules_and_callables_given_directly():
    network = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(4, 2))
    model = load(network)
    assert model is network
    assert not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())  # the caller's own stay as they are
    assert load(network, normalize=((0.5,), (0.5,)))(torch.ones(1, 1, 2, 2)).shape == (1, 2)
    assert load(torch.flatten)(torch.ones(2, 2)).shape == (4,)
    with pytest.raises(TypeError, match="neither a torch module nor a callable"):
        load(3)


def test_exported_program(tmp_path):
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).eval()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(network, (torch.rand(2, 1, 2, 2),), dynamic_shapes=({0: batch},))
    torch.export.save(program, tmp_path / "m.pt2")
    model = load(tmp_path / "m.pt2")
    x = torch.rand(5, 1, 2, 2, requires_grad=True)
    assert torch.allclose(model(x), network(x))
    torch.autograd.grad(model(x).sum(), x)
    model.eval().train()  # an exported program itself would refuse
    with pytest.raises(ValueError, match="need a torch module"):
        load(tmp_path / "m.pt2", weights="w.pt")


def test_files_that_are_no_exported_program(tmp_path):
    (tmp_path / "m.pt2").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"m\.pt2 is no program saved by torch\.export"):
        load(tmp_path / "m.pt2")
    with pytest.raises(FileNotFoundError, match=r"no file .*other\.pt2"):
        load(tmp_path / "other.pt2")


@pytest.fixture
def onnx(tmp_path, monkeypatch):
    """A file with an operator that we do not convert, and stand-ins for the packages that check and convert it."""

    def stand_in(convert, check=lambda path: None):
        monkeypatch.setitem(sys.modules, "onnx2torch", types.SimpleNamespace(convert=convert))
        monkeypatch.setitem(sys.modules, "onnx", types.SimpleNamespace())
        monkeypatch.setitem(sys.modules, "onnx.checker", types.SimpleNamespace(check_model=check))
        return written(tmp_path, model([node("Loop", ["x"], "y")], {}, (None, 2)))

    return stand_in


def test_onnx_without_its_package(onnx, monkeypatch):
    path = onnx(pytest.fail)
    monkeypatch.setitem(sys.modules, "onnx2torch", None)
    with pytest.raises(MissingExtra, match=r"uses Loop, which is not .*'onnx2torch'.*pip install 'sigmazero\[onnx\]'"):
        load(path)


def test_onnx_goes_through_its_package(onnx):
    assert load(onnx(lambda path: nn.Linear(4, 2)))(torch.rand(3, 4)).shape == (3, 2)


def test_onnx_that_cannot_be_converted_is_one_line(onnx):
    def convert(path):
        raise KeyError("no such operator\nat node 3")

    with pytest.raises(ValueError, match=r"m\.onnx is no ONNX network that can be converted \(.*no such operator.*\)$"):
        load(onnx(convert))


def test_a_damaged_onnx_file_is_not_converted(onnx):
    """A convolution that names no proper kernel asked for 6 GB."""

    def check(path):
        raise RuntimeError("Field 'type' of 'attr' is required but missing.\n\n==> Context: Bad node spec")

    with pytest.raises(ValueError, match=r"m\.onnx is no ONNX network .*Field 'type' of 'attr' is required.*\)$"):
        load(onnx(pytest.fail, check))


@pytest.mark.parametrize(("code", "package"), [("I4", "timm"), ("I8", "timm"), ("I7", "robustbench")])
def test_models_of_other_packages_without_them(code, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    torch.save({}, tmp_path / "w.pt")
    with pytest.raises(MissingExtra, match=rf"'{package}'.*pip install 'sigmazero\[{package}\]'"):
        load(code, weights=tmp_path / "w.pt")


@pytest.mark.parametrize("code", ["I4", "I8"])
def test_models_of_timm_through_a_stand_in(code, tmp_path, monkeypatch):
    asked = []
    fake = types.ModuleType("timm")
    fake.create_model = lambda name, pretrained: asked.append((name, pretrained)) or nn.Linear(2, 2)
    monkeypatch.setitem(sys.modules, "timm", fake)
    torch.save({"state_dict": nn.Linear(2, 2).state_dict()}, tmp_path / "w.pt")
    model = load(code, weights=tmp_path / "w.pt")
    assert asked == [(zoo.get(code).options["name"], False)]
    assert isinstance(model, nn.Sequential) == (code == "I8")  # I4 takes [0, 1] as it is


def test_bundled_weights(tmp_path, monkeypatch):
    entry = zoo.parse(
        '[demo]\ntitle = "d"\narchitecture = "smallcnn"\ndataset = "mnist"\nthreat_model = "none"\n'
        'input_size = [1, 28, 28]\nsource = "this package"\nbundled = "demo-test.pt"\n'
    )
    monkeypatch.setattr(zoo, "entries", lambda: entry)
    monkeypatch.setattr("sigmazero.models.weights.__file__", str(tmp_path / "weights.py"))
    (tmp_path / "weights").mkdir()
    torch.save(build("smallcnn").state_dict(), tmp_path / "weights" / "demo-test.pt")
    assert load("Demo")(torch.rand(1, 1, 28, 28)).shape == (1, 10)


def accuracy(model, arrays, count):
    images = torch.from_numpy(arrays["images"][:count].astype(np.float32) / 255)
    images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
    with torch.no_grad():
        correct = sum(
            int((model(images[i : i + 100]).argmax(1).numpy() == arrays["labels"][i : i + 100]).sum())
            for i in range(0, count, 100)
        )
    return 100 * correct / count


@pytest.mark.shared
@pytest.mark.parametrize(
    ("code", "data", "count", "percent"),
    [
        ("M1", "mnist_test.npz", 500, 98),
        ("M2", "mnist_test.npz", 500, 98),
        ("prn18-linf", "cifar10_test2000.npz", 100, 75),
        ("resnet20", "cifar10_test2000.npz", 300, 88),
    ],
)
def test_real_weights_by_name(code, data, count, percent, shared_data):
    model = load(code, model_dir=shared_data)
    with np.load(SHARED / "data" / data) as arrays:
        assert accuracy(model, {key: arrays[key] for key in ("images", "labels")}, count) >= percent


def library(monkeypatch, name: str, **contents: Any) -> None:
    """Put a small stand-in for a library where it is imported from."""
    for part in (name.partition(".")[0], name):
        monkeypatch.setitem(sys.modules, part, ModuleType(part))
    vars(sys.modules[name]).update(contents)


class Flat(nn.Module):
    """Ten scores from the first ten values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :10]


def test_torchvision_models_bring_weights_and_normalisation(monkeypatch):
    made: list[Any] = []
    scale = SimpleNamespace(mean=[0.5, 0.5, 0.5], std=[0.25, 0.25, 0.25])
    published = SimpleNamespace(DEFAULT=SimpleNamespace(transforms=lambda: scale))

    def get_model(name: str, weights: Any) -> nn.Module:
        made.append((name, weights))
        return Flat()

    library(
        monkeypatch,
        "torchvision.models",
        list_models=lambda module: ["resnet18", "resnet50"],
        get_model_weights=lambda name: published,
        get_model=get_model,
    )
    x = torch.rand(2, 3, 4, 4)
    assert torch.allclose(load("torchvision:resnet50")(x), ((x - 0.5) / 0.25).flatten(1)[:, :10])
    assert torch.equal(load("torchvision:resnet50", normalize="0,1")(x), x.flatten(1)[:, :10])
    assert made == [("resnet50", published.DEFAULT)] * 2
    with pytest.raises(UnknownModel, match=r"'resnet5'.*resnet50"):
        load("torchvision:resnet5")


def test_timm_models_bring_weights_and_normalisation(monkeypatch):
    made: list[Any] = []

    def create_model(name: str, pretrained: bool) -> nn.Module:
        made.append((name, pretrained))
        model = Flat()
        model.pretrained_cfg = {"mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}  # type: ignore[assignment]
        return model

    known = ["vit_tiny.augreg"]
    library(monkeypatch, "timm", is_model=known.__contains__, list_models=lambda: known, create_model=create_model)
    x = torch.rand(2, 3, 4, 4)
    assert torch.allclose(load("timm:vit_tiny.augreg")(x), ((x - 0.5) / 0.25).flatten(1)[:, :10])
    assert made == [("vit_tiny.augreg", True)]
    with pytest.raises(UnknownModel, match=r"'vit_tny'.*vit_tiny"):
        load("timm:vit_tny")


def test_robustbench_models_that_are_not_in_the_table(monkeypatch, tmp_path):
    asked: list[Any] = []

    def load_model(name: str, **how: Any) -> nn.Module:
        asked.append((name, how))
        return {"Someone2030": Flat()}[name]

    library(monkeypatch, "robustbench.utils", load_model=load_model)
    load("robustbench:Someone2030")
    load("robustbench:imagenet/Someone2030")
    load("robustbench:cifar100/L2/Someone2030", model_dir=tmp_path)
    here = {"model_dir": str(tmp_path)}
    assert asked == [
        ("Someone2030", {"dataset": "cifar10", "threat_model": "Linf"}),
        ("Someone2030", {"dataset": "imagenet", "threat_model": "Linf"}),
        ("Someone2030", {"dataset": "cifar100", "threat_model": "L2", **here}),
    ]
    with pytest.raises(UnknownModel, match="Nobody2030"):
        load("robustbench:Nobody2030")
    with pytest.raises(ValueError, match="a/b/c/d"):
        load("robustbench:a/b/c/d")
    with pytest.raises(ValueError, match="Someone2030"):
        load("robustbench:Someone2030", normalize="0,1")
