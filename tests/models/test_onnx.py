"""ONNX files become networks of torch: the same numbers as torch's own layers, and one line for every bad file."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from sigmazero.models import load
from sigmazero.models.onnx import UnknownOperator, load_onnx
from tests.models.conftest import SHARED
from tests.onnx_files import field, linear, model, node, tensor, written


def draw(*shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(sum(shape))) - 0.3


X = draw(3, 2, 6, 7)
W, B = draw(4, 2, 3, 3), draw(4)
POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}
I64 = {name: np.array(value, dtype=np.int64) for name, value in {"shape": [0, -1], "one": [1], "two": [2]}.items()}
SAME = torch.nn.functional.pad(X, (1, 1, 1, 1))
EDGE = -torch.inf

# Nodes, what they should compute, and the version of the operators.
OPERATORS = {
    "conv": (
        [node("Conv", ["x", "w", "b"], "y", pads=[1, 0, 1, 0], strides=[2, 1])],
        F.conv2d(X, W, B, (2, 1), (1, 0)),
    ),
    "conv-uneven": ([node("Conv", ["x", "w"], "y", pads=[0, 0, 1, 2])], F.conv2d(F.pad(X, (0, 2, 0, 1)), W)),
    "conv-same": ([node("Conv", ["x", "w", "b"], "y", auto_pad="SAME_UPPER")], F.conv2d(X, W, B, padding=1)),
    "relu": ([node("Relu", ["x"], "y")], X.relu()),
    "leaky": ([node("LeakyRelu", ["x"], "y", alpha=0.25)], F.leaky_relu(X, 0.25)),
    "norm": ([node("BatchNormalization", ["x", *"pqrs"], "y", epsilon=0.5)], None),
    "max": ([node("MaxPool", ["x"], "y", pads=[1, 1, 1, 1], **POOL)], F.max_pool2d(X, 3, 2, 1)),
    "mean": (
        [node("AveragePool", ["x"], "y", pads=[1, 1, 1, 1], **POOL)],
        F.avg_pool2d(X, 3, 2, 1, count_include_pad=False),
    ),
    "mean-edge": (
        [node("AveragePool", ["x"], "y", pads=[1, 1, 1, 1], count_include_pad=1, **POOL)],
        F.avg_pool2d(X, 3, 2, 1),
    ),
    "global": ([node("GlobalAveragePool", ["x"], "y")], F.adaptive_avg_pool2d(X, 1)),
    "flatten": ([node("Flatten", ["x"], "y", axis=2)], X.reshape(6, 42)),
    "reshape": ([node("Reshape", ["x", "shape"], "y")], X.flatten(1)),
    "sum": ([node("Add", ["x", "c"], "t"), node("Mul", ["t", "c"], "y")], (X + 0.5) * 0.5),
    "quotient": ([node("Sub", ["x", "c"], "t"), node("Div", ["t", "c"], "y")], (X - 0.5) / 0.5),
    "concat": ([node("Concat", ["x", "x"], "y", axis=1)], torch.cat([X, X], 1)),
    "transpose": ([node("Transpose", ["x"], "y", perm=[0, 2, 3, 1])], X.permute(0, 2, 3, 1)),
    "pad": ([node("Pad", ["x", "pads"], "y")], F.pad(X, (2, 0, 1, 1))),
    "constant": ([node("Constant", [], "t", value=np.ones(1, "f") * 2), node("Mul", ["x", "t"], "y")], 2 * X),
    "sigmoid": ([node("Sigmoid", ["x"], "y")], X.sigmoid()),
    "clip": ([node("Clip", ["x", "", "c"], "y")], X.clamp_max(0.5)),
    "softmax": ([node("Softmax", ["x"], "y")], X.softmax(-1)),
    "matmul": ([node("MatMul", ["x", "m"], "y")], X @ draw(7, 5)),
    "slice": ([node("Slice", ["x", "one", "two", "one"], "y")], X[:, 1:2]),
    "gather": ([node("Gather", ["x", "one"], "y", axis=3)], X[..., 1:2]),
    "unsqueeze": ([node("Unsqueeze", ["x", "one"], "t"), node("Squeeze", ["t", "one"], "y")], X),
    "shape": ([node("Shape", ["x"], "t"), node("Reshape", ["x", "t"], "y")], X),
    "reduce": ([node("ReduceMean", ["x"], "y", axes=[2, 3], keepdims=0)], X.mean((2, 3))),
    "dropout": ([node("Dropout", ["x"], "t"), node("Identity", ["t"], "y")], X),
}


@pytest.mark.parametrize("case", OPERATORS)
def test_operators(case, tmp_path):
    nodes, wanted = OPERATORS[case]
    vectors = {name: draw(2) + 1 for name in "pqrs"}
    if wanted is None:
        wanted = F.batch_norm(X, vectors["r"], vectors["s"], vectors["p"], vectors["q"], eps=0.5)
    floats = {"w": W, "b": B, "c": torch.tensor(0.5), "m": draw(7, 5), **vectors}
    pads = np.array([0, 0, 1, 2, 0, 0, 1, 0], dtype=np.int64)
    constants = {name: value.numpy() for name, value in floats.items()} | {**I64, "pads": pads}
    network = load_onnx(written(tmp_path, model(nodes, constants, (None, 2, 6, 7))))
    assert torch.allclose(network(X), wanted, atol=1e-6)


def test_softmax_of_old_files_goes_over_all_that_follows(tmp_path):
    network = load_onnx(written(tmp_path, model([node("Softmax", ["x"], "y")], {}, (None, 2, 6, 7), version=9)))
    assert torch.allclose(network(X), X.flatten(1).softmax(1).view_as(X))


def test_a_network_has_gradients_moves_and_takes_any_number_of_rows(tmp_path):
    own = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    weights = {name: value.detach().numpy() for name, value in own.state_dict().items()}
    nodes = [
        node("Reshape", ["x", "flat"], "t"),
        node("Gemm", ["t", "0.weight", "0.bias"], "h", transB=1),
        node("Relu", ["h"], "r"),
        node("Gemm", ["r", "2.weight", "2.bias"], "y", transB=1),
    ]
    flat = {"flat": np.array([1, 4], dtype=np.int64)}  # written for one row
    network = load(written(tmp_path, model(nodes, weights | flat, (1, 1, 2, 2))))
    x = torch.rand(5, 1, 2, 2, requires_grad=True)
    assert torch.allclose(network(x), own(x.flatten(1)), atol=1e-6)
    one, other = (torch.autograd.grad(z.sum(), x)[0] for z in (network(x), own(x.flatten(1))))
    assert torch.allclose(one, other, atol=1e-6)
    assert network.double()(x.double()).dtype == torch.float64
    network.load_state_dict(network.state_dict())
    with pytest.raises(ValueError, match="not the file that was saved"):
        network.load_state_dict(load(written(tmp_path, linear(np.eye(2, dtype="f"), np.ones(2, "f")))).state_dict())


GOOD = linear(np.eye(2, dtype="f"), np.ones(2, "f"))
GRAPH = [node("Gemm", ["x", "w", "b"], "y")]
EYE = {"w": np.eye(2, dtype="f"), "b": np.ones(2, "f")}
BAD = {
    "nothing": (b"", "version 0"),
    "text": (b"nothing that anybody wrote", "no ONNX network"),
    "cut": (GOOD[:-20], "no ONNX network"),
    "huge": (GOOD.replace(field(1, 2) + field(1, 2), field(1, 2) + field(1, 2**40)), "no ONNX network"),
    "old": (model(GRAPH, EYE, (None, 2), version=6), "version 6; 7 and later"),
    "missing": (model([node("Relu", ["z"], "y")], {}, (None, 2)), "Relu reads z, which nothing before it makes"),
    "no-output": (model([node("Relu", ["x"], "z")], {}, (None, 2)), "nothing makes the output y"),
    "elsewhere": (
        field(7, field(5, tensor("w", np.ones(1, "f")) + field(13, b""))) + field(8, field(2, 13)),
        "lie in another file",
    ),
    "functions": (GOOD + field(25, b"x"), "functions of its own"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_line(case, tmp_path):
    content, said = BAD[case]
    with pytest.raises(ValueError, match=said) as error:
        load(written(tmp_path, content))
    assert "\n" not in str(error.value)


def test_operators_that_are_not_converted_are_named(tmp_path):
    path = written(tmp_path, model([node("Loop", ["x"], "y"), node("If", ["x"], "z")], {}, (None, 2)))
    with pytest.raises(UnknownOperator, match=r"uses If, Loop, which are not converted here; .*runtime=True"):
        load_onnx(path)


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
    """Accuracies on the first 1,000 images; logits within 3e-5 of ONNX Runtime's were measured once."""
    network = load(shared_data / "calzone" / f"{name}.onnx", normalize=normalize)
    file = "cifar10_test2000.npz" if "CIFAR" in name else "mnist_test.npz"
    with np.load(SHARED / "data" / file) as arrays:
        images, labels = torch.from_numpy(arrays["images"][:1000].astype(np.float32) / 255), arrays["labels"][:1000]
    images = images[:, None] if images.ndim == 3 else images.permute(0, 3, 1, 2)
    with torch.no_grad():
        assert int((network(images).argmax(1).numpy() == labels).sum()) == right
