"""A model that the user has compiled: checked as it is, and as it was."""

import pytest
import torch
from torch import Tensor, nn

import sigmazero as sz

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


@pytest.mark.parametrize("in_place", [False, True])
def test_a_run_on_a_compiled_model(in_place):
    net = Network()
    x = torch.rand(11, 16)
    y = net(x).argmax(1)
    plain = sz.get("sigma-zero", steps=20).run(net, x, y, batch_size=4)
    torch._dynamo.reset()
    model = net if in_place else torch.compile(net, backend="eager")
    if in_place:
        net.compile(backend="eager")
    result = sz.get("sigma-zero", steps=20).run(model, x, y, batch_size=4)
    assert torch.equal(result.x_adv, plain.x_adv)
    assert plain.success.all()
    assert torch.equal(result.forwards, plain.forwards + 2)  # another clean check, another verification
