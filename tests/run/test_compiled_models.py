"""A model that the user has compiled: checked as it is, and as it was."""

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


@pytest.mark.parametrize("way", ["module", "function", "in place", "part"])
def test_the_model_inside_is_found(way):
    net, x = Network(), torch.rand(3, 16)
    assert not is_compiled(net)
    wanted = net(x)
    torch._dynamo.reset()
    model: nn.Module = net
    if way == "in place":
        net.compile(backend="eager")
    elif way == "part":
        model = nn.Sequential(nn.Flatten(), torch.compile(net, backend="eager"))
    else:
        model = torch.compile(net if way == "module" else lambda x: net(x), backend="eager")
    assert is_compiled(model)
    assert (uncompiled(model) is model) == (way == "part")
    assert torch.equal(uncompiled(model)(x), wanted)
    verifier = Verifier(model, Numbers.strict("cpu"))
    assert verifier.checks == 2  # compiled kernels round in their own way
    for answer in verifier.ask(x):
        assert torch.allclose(answer, wanted, atol=1e-6)


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
