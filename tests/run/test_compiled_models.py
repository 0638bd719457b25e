"""A model that the user has compiled: checked as it is, and as it was, without a compilation per number of rows."""

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz
from sigmazero.run.precision import Numbers
from sigmazero.run.search_model import is_compiled, uncompiled
from sigmazero.run.verify import Verifier

# torch's compiler looks at the `grad` of what it is given, and hides the warning unless warnings are errors.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


class Network(nn.Module):
    """Two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)
        self.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.last(torch.relu(self.first(x)))
        return answer


def rows_of(inputs) -> int:
    """The number of rows among what a compiled graph is given, its weights first or last."""
    return next(len(t) for t in inputs if isinstance(t, Tensor) and not isinstance(t, nn.Parameter))


class Shapes:
    """A backend that compiles nothing and notes the number of rows it was asked to compile for."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def __call__(self, graph, inputs):
        self.rows.append(rows_of(inputs))
        return graph.forward


def compiled(net: nn.Module, way: str):
    torch._dynamo.reset()
    shapes = Shapes()
    if way == "module":
        return torch.compile(net, backend=shapes, dynamic=False), shapes
    if way == "function":
        return torch.compile(lambda x: net(x), backend=shapes, dynamic=False), shapes
    net.compile(backend=shapes, dynamic=False)
    return net, shapes


@pytest.mark.parametrize("way", ["module", "function", "in place", "part"])
def test_checks_compile_for_one_number_of_rows(way):
    model, shapes = compiled(net := Network(), "module" if way == "part" else way)
    if way == "part":
        model = nn.Sequential(nn.Flatten(), model)
    else:
        assert torch.equal(uncompiled(model)(torch.ones(3, 16)), net(torch.ones(3, 16)))
    assert is_compiled(model)
    assert not is_compiled(Network())
    shapes.rows.clear()
    verifier = Verifier(model, Numbers.strict("cpu"), rows=8)
    assert verifier.checks == 2  # compiled kernels round in their own way
    for rows in (8, 1, 5):
        strict, own = verifier.ask(torch.rand(rows, 16))
        assert strict.shape == own.shape == (rows, 4)
        assert torch.allclose(strict, own, atol=1e-6)
    assert shapes.rows == [8]


def test_a_compiled_model_that_answers_otherwise_is_not_fooled_by_what_it_was_made_from():
    net = Network()
    x = torch.rand(20, 16)
    y = net(x).argmax(1)

    def backend(graph, inputs):
        """Compiled, the network leans to the class of the input: points near the boundary do not fool it."""
        return lambda *given: (graph.forward(*given)[0] + lean[: rows_of(given)],)

    lean = 0.05 * torch.nn.functional.one_hot(y, 4)
    torch._dynamo.reset()
    model = torch.compile(net, backend=backend, dynamic=False)
    result = sz.get("sigma-zero", steps=40).run(model, x, y, batch_size=20)
    for answer in (net(result.x_adv), net(result.x_adv) + lean):
        assert (answer.argmax(1) != y)[result.success].all()
    assert result.success.any()


def test_a_run_on_a_compiled_model():
    net = Network()
    x = torch.rand(11, 16)
    y = net(x).argmax(1)
    torch._dynamo.reset()
    result = sz.get("sigma-zero", steps=20).run(torch.compile(net, backend="eager"), x, y, batch_size=4)
    plain = sz.get("sigma-zero", steps=20).run(net, x, y, batch_size=4)
    assert torch.equal(result.x_adv, plain.x_adv)
    assert plain.success.all()
    assert torch.equal(result.forwards, plain.forwards + 2)  # another clean check, another verification
