"""ONNX files become networks of torch: the same numbers as torch's own layers, and one line for every bad file."""

import pickle
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F

import sigmazero as sz
from sigmazero import data
from sigmazero.models import load
from sigmazero.models.onnx import load_onnx


def draw(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape))) - 0.3


X = draw(3, 2, 6, 7)
CONSTANTS: dict[str, Any] = {
    "w": draw(4, 2, 3, 3),
    "b": draw(4),
    "c": torch.tensor(0.5),
    "m": draw(7, 5),
    **{name: draw(2) + 1 for name in "pqrs"},
    "seven": draw(7) + 1,
    "flat": torch.tensor([0, -1]),
    "zero": torch.tensor([0]),
    "one": torch.tensor([1]),
    "two": torch.tensor([2]),
    "back": torch.tensor([-1]),
    "front": torch.tensor([-9]),
    "parts": torch.tensor([3, 3]),
    "edges": torch.tensor([0, 0, 1, 2, 0, 0, 1, 0]),
}
W, B = CONSTANTS["w"], CONSTANTS["b"]
P, Q, R, S = (CONSTANTS[name] for name in "pqrs")
node = helper.make_node


def written(folder: Path, nodes: list[Any], shape: list[Any], version: int = 18, **constants: Any) -> Path:
    """Write a file with the input x and the output y."""
    used = {name for each in nodes for name in each.input}
    every = {**CONSTANTS, **{name: torch.as_tensor(value) for name, value in constants.items()}}
    tensors = [numpy_helper.from_array(value.numpy(), name) for name, value in every.items() if name in used]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
        for name, sizes in (("x", shape), ("y", ["n", "k"]))
    )
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=8)
    onnx.save(made, folder / "m.onnx")
    return folder / "m.onnx"


POOL = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
# Nodes, and what they should compute.
OPERATORS = {
    "conv": (
        [node("Conv", ["x", "w", "b"], ["y"], pads=[1, 0, 1, 0], strides=[2, 1])],
        F.conv2d(X, W, B, (2, 1), (1, 0)),
    ),
    "conv-uneven": ([node("Conv", ["x", "w"], ["y"], pads=[0, 0, 1, 2])], F.conv2d(F.pad(X, (0, 2, 0, 1)), W)),
    "conv-same": ([node("Conv", ["x", "w", "b"], ["y"], auto_pad="SAME_UPPER")], F.conv2d(X, W, B, padding=1)),
    "leaky": ([node("LeakyRelu", ["x"], ["y"], alpha=0.25)], F.leaky_relu(X, 0.25)),
    "norm": ([node("BatchNormalization", ["x", *"pqrs"], ["y"], epsilon=0.5)], F.batch_norm(X, R, S, P, Q, eps=0.5)),
    "layer-norm": ([node("LayerNormalization", ["x", "seven"], ["y"])], F.layer_norm(X, (7,), CONSTANTS["seven"])),
    "max": ([node("MaxPool", ["x"], ["y"], **POOL)], F.max_pool2d(X, 3, 2, 1)),
    "mean": ([node("AveragePool", ["x"], ["y"], **POOL)], F.avg_pool2d(X, 3, 2, 1, count_include_pad=False)),
    "mean-edge": ([node("AveragePool", ["x"], ["y"], count_include_pad=1, **POOL)], F.avg_pool2d(X, 3, 2, 1)),
    "global": ([node("GlobalAveragePool", ["x"], ["y"])], F.adaptive_avg_pool2d(X, 1)),
    "flatten": ([node("Flatten", ["x"], ["y"], axis=2)], X.reshape(6, 42)),
    "reshape": ([node("Reshape", ["x", "flat"], ["y"])], X.flatten(1)),
    "sum": ([node("Add", ["x", "c"], ["t"]), node("Mul", ["t", "c"], ["y"])], (X + 0.5) * 0.5),
    "quotient": ([node("Sub", ["x", "c"], ["t"]), node("Div", ["t", "c"], ["y"])], (X - 0.5) / 0.5),
    "concat": ([node("Concat", ["x", "x"], ["y"], axis=1)], torch.cat([X, X], 1)),
    "transpose": ([node("Transpose", ["x"], ["y"], perm=[0, 2, 3, 1])], X.permute(0, 2, 3, 1)),
    "pad": ([node("Pad", ["x", "edges"], ["y"])], F.pad(X, (2, 0, 1, 1))),
    "constant": ([node("Constant", [], ["t"], value_float=2.0), node("Mul", ["x", "t"], ["y"])], 2 * X),
    "filled": ([node("Shape", ["x"], ["t"]), node("ConstantOfShape", ["t"], ["z"]), node("Add", ["x", "z"], ["y"])], X),
    "clip": ([node("Clip", ["x", "", "c"], ["y"])], X.clamp_max(0.5)),
    "softmax": ([node("Softmax", ["x"], ["y"])], X.softmax(-1)),
    "softmax of old files": ([node("Softmax", ["x"], ["y"])], X.flatten(1).softmax(1).view_as(X)),
    "matmul": ([node("MatMul", ["x", "m"], ["y"])], X @ CONSTANTS["m"]),
    "slice": ([node("Slice", ["x", "one", "two", "one"], ["y"])], X[:, 1:2]),
    "slice-backwards": ([node("Slice", ["x", "back", "front", "one", "back"], ["y"])], X.flip(1)),
    "split": (
        [node("Split", ["x", "parts"], ["t", "z"], axis=2), node("Sub", ["t", "z"], ["y"])],
        X[:, :, :3] - X[:, :, 3:],
    ),
    "gather": ([node("Gather", ["x", "one"], ["y"], axis=3)], X[..., 1:2]),
    "unsqueeze": ([node("Unsqueeze", ["x", "one"], ["t"]), node("Squeeze", ["t", "one"], ["y"])], X),
    "where": ([node("Greater", ["x", "c"], ["t"]), node("Where", ["t", "x", "c"], ["y"])], X.clamp_min(0.5)),
    "reduce": ([node("ReduceMax", ["x"], ["y"], axes=[1], keepdims=0)], X.amax(1)),
    "dropout": ([node("Dropout", ["x"], ["t"]), node("Identity", ["t"], ["y"])], X),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_operators(case, tmp_path):
    nodes, wanted = OPERATORS[case]
    version = {"layer-norm": 17, "softmax of old files": 9}.get(case, 13)
    network = load_onnx(written(tmp_path, nodes, ["n", 2, 6, 7], version))
    assert torch.allclose(network(X), wanted, atol=1e-6)


def test_a_network_has_gradients_moves_and_takes_any_number_of_rows(tmp_path):
    torch.manual_seed(0)
    own = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)).requires_grad_(False)
    weights = {f"l{name}".replace(".", ""): value for name, value in own.state_dict().items()}
    nodes = [
        node("Reshape", ["x", "rows"], ["t"]),
        node("Gemm", ["t", "l0weight", "l0bias"], ["h"], transB=1),
        node("Relu", ["h"], ["u"]),
        node("Gemm", ["u", "l2weight", "l2bias"], ["y"], transB=1),
    ]
    network = load(written(tmp_path, nodes, [1, 1, 2, 2], rows=[1, 4], **weights))  # written for one row
    x = torch.rand(5, 1, 2, 2, requires_grad=True)
    assert torch.allclose(network(x), own(x.flatten(1)), atol=1e-6)
    one, other = (torch.autograd.grad(z.sum(), x)[0] for z in (network(x), own(x.flatten(1))))
    assert torch.allclose(one, other, atol=1e-6)
    assert torch.equal(pickle.loads(pickle.dumps(network))(x), network(x))
    y, flat = own(x.flatten(1)).argmax(1), x.detach().flatten(1)
    proved = [sz.certify(f, z, y, up_to=1, attack=None) for f, z in ((network, x.detach()), (own, flat))]
    assert torch.equal(proved[0].lower, proved[1].lower)
    assert network.double()(x.double()).dtype == torch.float64
    network.load_state_dict(network.state_dict())
    linear = written(
        tmp_path, [node("Flatten", ["x"], ["t"]), node("Gemm", ["t", "k"], ["y"])], ["n", 4], k=torch.ones(4, 2)
    )
    with pytest.raises(ValueError, match=r"m\.onnx"):
        network.load_state_dict(load(linear).state_dict())


def test_a_constant_is_not_taken_for_rows(tmp_path):
    """A bias of as many classes as rows were asked about was once cut to the number of rows."""
    weight, bias = draw(4, 10), draw(10)
    nodes = [node("Reshape", ["k", "s"], ["row"]), node("MatMul", ["x", "v"], ["t"]), node("Add", ["t", "row"], ["y"])]
    network = load(written(tmp_path, nodes, [1, 4], s=[1, -1], v=weight, k=bias))
    x = torch.rand(12, 4)
    for rows in (1, 5, 10, 12):
        assert torch.allclose(network(x[:rows]), x[:rows] @ weight + bias, atol=1e-6)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_file_that_insists_on_its_number_of_rows_gets_it(tmp_path, rows):
    nodes = [node("Reshape", ["x", "s"], ["f"]), node("MatMul", ["f", "v"], ["t"]), node("Add", ["t", "k"], ["y"])]
    weight, bias = draw(4, 3), draw(rows, 3)  # a constant for each row
    network = load(written(tmp_path, nodes, [rows, 4], s=[rows, 4], v=weight, k=bias))
    x = torch.rand(5, 4, requires_grad=True)
    expected = x @ weight + bias.repeat(5, 1)[:5]
    assert torch.allclose(network(x), expected, atol=1e-6)
    one, other = (torch.autograd.grad(z.square().sum(), x)[0] for z in (network(x), expected))
    assert torch.allclose(one, other, atol=1e-5)


def test_values_beside_the_file(tmp_path):
    path = written(tmp_path, [node("MatMul", ["x", "v"], ["y"])], ["n", 40], v=draw(40, 30))
    made = onnx.load(path)
    onnx.save(made, path, save_as_external_data=True, location="m.onnx.data", size_threshold=0)
    assert (tmp_path / "m.onnx.data").stat().st_size >= 4800
    x = torch.rand(3, 40)
    assert torch.allclose(load(path)(x), x @ draw(40, 30), atol=1e-5)
    (tmp_path / "m.onnx.data").unlink()
    with pytest.raises(ValueError, match=r"m\.onnx"):
        load(path)


@pytest.mark.parametrize(
    ("nodes", "named"),
    [
        ([node("AveragePool", ["x"], ["y"], kernel_shape=[2, 2], dilations=[2, 2])], r"AveragePool.*dilations.*2, 2"),
        ([node("Conv", ["x", "w"], ["y"], made_up=3)], "made_up"),
        ([node("Hardmax", ["x"], ["y"])], "Hardmax"),
        ([node("BatchNormalization", ["x", *"pqrs"], ["y", "", ""], training_mode=1)], "training mode"),
        ([node("Relu", ["z"], ["y"])], "z"),
    ],
)
def test_what_is_not_converted_is_named(nodes, named, tmp_path):
    with pytest.raises(ValueError, match=rf"{named}.*kind=.onnxruntime.") as error:
        load(written(tmp_path, nodes, ["n", 2, 6, 7], version=19))
    assert "\n" not in str(error.value)


def test_logits_that_differ_from_the_reference_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(load_onnx.__globals__["OPERATORS"], "Relu", torch.sigmoid)
    with pytest.raises(ValueError, match="reference"):
        load(written(tmp_path, [node("Relu", ["x"], ["y"])], ["n", 6]))


@pytest.mark.parametrize("content", [b"", b"\x08\x08\x3a\x02\x0a\xff" * 9])
def test_bad_files_are_one_line(content, tmp_path):
    (tmp_path / "m.onnx").write_bytes(content)
    with pytest.raises(ValueError, match=r"m\.onnx is no ONNX network") as error:
        load(tmp_path / "m.onnx")
    assert "\n" not in str(error.value)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "normalize", "right"),
    [
        ("MNIST_ConvSmallPGD", None, 905),
        ("MNIST_ConvSmallPGD", "mnist", 899),
        ("MNIST_ConvSmall", "mnist", 940),
        ("MNIST_6x200_PGD", None, 984),
        ("MNIST_6x200_PGD", "mnist", 977),
        ("CIFAR_ConvSmallPGD", None, 630),
    ],
)
def test_networks_of_verifiers(name, normalize, right, shared_data):
    """Accuracies on the first 1,000 images."""
    network = load(shared_data / "calzone" / f"{name}.onnx", normalize=normalize)
    rows = data.load("cifar10" if "CIFAR" in name else "mnist", rows="0:1000", data_dir=shared_data)
    with torch.no_grad():
        assert int((network(rows.images).argmax(1) == rows.labels).sum()) == right
