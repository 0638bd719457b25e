"""A proof is about the model that was given: what a trace of it cannot see is refused, never proved."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import sigmazero as sz


class Net(nn.Module):
    """A network with a ReLU that decides: with it x[0] = 10 fools, without it nothing does."""

    def __init__(self, between):
        super().__init__()
        self.between, self.calls = between, 0
        self.first, self.last = nn.Linear(2, 4), nn.Linear(4, 2)
        self.first.weight.data = torch.tensor([[-1.0, 0], [1, 0], [0, -1], [0, 1]])
        self.first.bias.data = torch.tensor([1.0, 0, 1, 0])
        self.last.weight.data = torch.tensor([[-1.0, -0.5, 0, 0], [0, 0, 0, 0]])
        self.last.bias.data = torch.tensor([2.0, 0])
        self.eval().requires_grad_(False)

    def forward(self, x):
        self.calls += 1
        return self.last(self.between(self, x, self.first(x)))


def through(alias, write=F.relu_):
    """Write into one name of the values and read them by another."""

    def between(net, x, h):
        write(alias(h))
        return h

    return between


def read_through_a_view(net, x, h):
    view = h.view(-1, 2, 2).flatten(1)
    nn.ReLU(inplace=True)(h)
    return view


def given_twice(net, x, h):
    view = h.view(-1, 4)
    h.add_(view)
    return view


def with_numpy(net, x, h):
    values = h.detach().numpy()
    values[values < 0] = 0
    return h


HIDDEN = {
    "a view": (through(lambda h: h.view(-1, 2, 2)), "relu_"),
    "a view, by LeakyReLU": (through(lambda h: h.view(-1, 2, 2), lambda v: F.leaky_relu_(v, 0.0)), "leaky_relu_"),
    "a view that is read": (read_through_a_view, "relu"),
    "a reshape": (through(lambda h: h.reshape(-1, 4)), "relu_"),
    "a detached tensor": (through(lambda h: h.detach()), "relu_"),
    "a dropout that does nothing": (through(lambda h: F.dropout(h, 0.5, training=False)), "relu_"),
    "a view that is added": (given_twice, "add_"),
    "a slice": (through(lambda h: h[:, :2]), "relu_"),
    ".data": (through(lambda h: h.data), r"\.data"),
    "numpy": (with_numpy, r"\.numpy"),
    "a branch on .data": (lambda net, x, h: -F.relu(h) if x.data.numpy().max() > 5 else F.relu(h), r"\.data"),
    "a branch on numpy": (lambda net, x, h: -F.relu(h) if x.detach().numpy().max() > 5 else F.relu(h), r"\.numpy"),
    "a branch on a list": (lambda net, x, h: -F.relu(h) if max(x.tolist())[0] > 5 else F.relu(h), r"\.tolist"),
}
SAFE = {
    "a new tensor": lambda net, x, h: F.relu(h),
    "in place": lambda net, x, h: nn.ReLU(inplace=True)(h),
    "in place, by the same name": lambda net, x, h: [F.relu_(h), h][1],
    "in place, by the last name": lambda net, x, h: F.relu_(F.dropout(h.view(-1, 2, 2).flatten(1), training=False)),
    "in place, with a view": lambda net, x, h: F.relu(h.add_(h.view(-1, 4)) * 0.5),
    "in place, in a copy": lambda net, x, h: F.relu_(h.detach().clone()),
}
X, BOX = torch.tensor([[0.5, 0.5]]), (0.0, 10.0)


def certified(net):
    return sz.certify(net, X, net(X).argmax(1), up_to=1, bounds=BOX, attack=None, time_limit=20)


@pytest.mark.parametrize("how", HIDDEN)
def test_what_a_trace_cannot_see_is_refused(how):
    between, named = HIDDEN[how]
    with pytest.raises(ValueError, match=named):
        certified(Net(between))


@pytest.mark.parametrize("how", SAFE)
def test_plain_in_place_operations_are_traced(how):
    found = certified(Net(SAFE[how]))
    assert found.lower.tolist() == found.upper.tolist() == [1]


OTHER = {
    "for three rows": lambda net, x, h: h if len(x) == 3 else F.relu(h),
    "for thirty calls": lambda net, x, h: h if net.calls <= 30 else F.relu(h),
}


@pytest.mark.parametrize("how", OTHER)
def test_a_model_that_is_another_at_other_times_is_not_proved(how):
    net = Net(OTHER[how])
    try:
        found = certified(net)
    except ValueError:
        return
    assert found.lower.tolist() == [1]  # x[0] = 10 fools it
