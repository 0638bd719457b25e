"""150 networks that try to trick the reader of the certifier: it refuses them, or what it proves holds."""

import copy
import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

import sigmazero as sz

COUNT, FEATURES, HIDDEN, CLASSES = 150, 3, 6, 2
BOX = (-2.0, 3.0)


class Doubled(nn.Module):
    """A parametrisation: the weights are twice what is stored."""

    def forward(self, weight):
        """Return the weights."""
        return 2 * weight


class Rounded(torch.autograd.Function):
    """A step that rounds, written as a function of its own."""

    @staticmethod
    def forward(ctx, x):
        """Round to quarters."""
        return (4 * x).round() / 4


class Tricky(nn.Module):
    """Two linear layers with something between them. Inside [0, 1] no hidden value is negative, outside some are."""

    def __init__(self, between):
        super().__init__()
        self.between, self.calls = between, 0
        self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, CLASSES)
        scale = 0.5 + torch.rand(FEATURES)
        with torch.no_grad():
            self.first.weight.copy_(torch.cat((torch.diag(scale), -torch.diag(scale))))
            self.first.bias.copy_(torch.cat((torch.zeros(FEATURES), scale)))
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("gate", torch.ones(()))

    def forward(self, x):
        """Return the logits."""
        self.calls += 1
        return self.last(self.between(self, x, self.first(x)))


def read_after_write(alias, write):
    def between(net, x, h):
        other = alias(h)
        write(other)
        return h

    return between


def read_the_other_name(alias, write):
    def between(net, x, h):
        other = alias(h)
        write(h)
        return other.reshape(len(x), -1)

    return between


def counted(net, x, h):
    net.seen += 1
    return F.relu(h) * (net.seen < 20)


def gated(net, x, h):
    net.gate = (x.amax() < 2.5).float()
    return F.relu(h) * net.gate


def hidden_in_numpy(net, x, h):
    values = h.detach().numpy()
    values[values > 2] = 0
    return F.relu(h)


ALIASES = {
    "view": lambda h: h.view(-1, 2, 3),
    "flatten": lambda h: h.flatten(1),
    "reshape": lambda h: h.reshape(-1, 3, 2),
    "detach": lambda h: h.detach(),
    "slice": lambda h: h[:, 1:],
    "transpose": lambda h: h.t(),
    "chunk": lambda h: h.chunk(2, 1)[0],
    "data": lambda h: h.data,
    "expand_as": lambda h: h.expand_as(h),
    "unsqueeze": lambda h: h[:, None],
    "contiguous": lambda h: h.contiguous(),
    "to": lambda h: h.to(torch.float32),
    "dropout": lambda h: F.dropout(h, 0.5, False),
}
WRITES = {  # none of them changes a value inside [0, 1]
    "relu_": F.relu_,
    "add_": lambda v: v.add_(F.relu(-v)),
    "sub_": lambda v: v.sub_(-F.relu(-v)),
    "ReLU(inplace)": lambda v: nn.ReLU(inplace=True)(v),
    "copy_": lambda v: v.copy_(F.relu(v)),
    "leaky_relu_": lambda v: F.leaky_relu_(v, 0.1),
}
BRANCHES = {
    "item": lambda net, x, h: F.relu(h) if x.max().item() < 2.5 else -h,
    "bool": lambda net, x, h: F.relu(h) if not (x > 2.5).any() else -h,
    "numpy": lambda net, x, h: F.relu(h) if x.detach().numpy().max() < 2.5 else -h,
    "tolist": lambda net, x, h: F.relu(h) if max(max(row) for row in x.tolist()) < 2.5 else -h,
    "data": lambda net, x, h: F.relu(h) if x.data.numpy().max() < 2.5 else -h,
    "rows": lambda net, x, h: h if len(x) == 3 else F.relu(h),
    "even rows": lambda net, x, h: F.relu(h) if len(x) % 2 else h,
    "calls": lambda net, x, h: F.relu(h) if net.calls < 30 else h,
    "numbers written back": hidden_in_numpy,
}
OTHERS = {
    "a buffer that counts": counted,
    "a buffer that is replaced": gated,
    "float16": lambda net, x, h: F.relu(h.half()).float(),
    "bfloat16": lambda net, x, h: F.relu(h.bfloat16()).float(),
    "integers": lambda net, x, h: F.relu((64 * h).int().float() / 64),
    "float64 and back": lambda net, x, h: F.relu(h.double()).float(),
    "autocast": lambda net, x, h: F.relu(torch.autocast("cpu", torch.bfloat16)(net.first)(x)).float(),
    "rounding": lambda net, x, h: Rounded.apply(h),
    "where": lambda net, x, h: torch.where(x.amax(1, keepdim=True) > 2.5, -h, F.relu(h)),
    "masked_fill": lambda net, x, h: F.relu(h).masked_fill(h > 3, 0),
    "sort": lambda net, x, h: F.relu(h).sort(1).values,
    "out": lambda net, x, h: torch.clamp(h, min=0, out=h),
    "softmax inside": lambda net, x, h: h.softmax(1),
    "noise": lambda net, x, h: F.relu(h + 0.01 * torch.rand_like(h)),
    "plain": lambda net, x, h: F.relu(h),
    "plain in place": lambda net, x, h: h.relu_(),
    "leaky": lambda net, x, h: F.leaky_relu(h, 0.1),
    "set_": lambda net, x, h: h.set_(F.relu(h)),
    "data replaced": lambda net, x, h: setattr(h, "data", F.relu(h)) or h,
}
WRAPPERS = ("", "hook", "pre-hook", "numpy hook", "doubled", "weight norm", "spectral norm", "softmax", "log softmax")


def wrapped(net, how):
    """The network with hooks or parametrisations, or with something after it."""
    if how == "hook":
        net.first.register_forward_hook(lambda module, given, found: found.clamp(max=4))
    elif how == "pre-hook":
        net.last.register_forward_pre_hook(lambda module, given: (given[0] * 0.5,))
    elif how == "numpy hook":
        net.last.register_forward_hook(lambda module, given, out: -out if given[0].detach().numpy().max() > 4 else out)
    elif how == "doubled":
        parametrize.register_parametrization(net.first, "weight", Doubled())
    elif how == "weight norm":
        nn.utils.parametrizations.weight_norm(net.first)
    elif how == "spectral norm":
        nn.utils.parametrizations.spectral_norm(net.last)
    elif how == "softmax":
        return nn.Sequential(net, nn.Softmax(1))
    elif how == "log softmax":
        return nn.Sequential(net, nn.LogSoftmax(1))
    return net


def middles():
    """Every way of computing what is between the layers, by name."""
    written = itertools.product((read_after_write, read_the_other_name), ALIASES, WRITES)
    found = {f"{make.__name__} {a} {w}": make(ALIASES[a], WRITES[w]) for make, a, w in written}
    return found | BRANCHES | OTHERS


MIDDLES = middles()
CASES = random.Random(0).sample(sorted(MIDDLES), COUNT - 3 * len(WRAPPERS))
CASES += ["plain", "leaky", "float64 and back"] * len(WRAPPERS)


def margins(net, x, y, values):
    """The model's margins where one feature has one of these values; each point alone, as an attacker asks."""
    found = []
    for feature, value in itertools.product(range(FEATURES), values.tolist()):
        point = x.clone()
        point[0, feature] = value
        logits = net(point)[0]
        found.append(float(logits[y] - logits[1 - y]))
    return found


@pytest.mark.filterwarnings("ignore:.*fool the model with fewer changes.*")
@pytest.mark.parametrize("seed", range(COUNT))
def test_nothing_false_is_proved(seed):
    """One change fools each of these networks by a little, if it computes as it says."""
    torch.manual_seed(seed)
    try:
        net = wrapped(Tricky(MIDDLES[CASES[seed]]), WRAPPERS[seed % len(WRAPPERS)]).eval().requires_grad_(False)
        x = 0.4 + 0.2 * torch.rand(1, FEATURES)
        y = int(copy.deepcopy(net)(x).argmax(1))
        worst = margins(copy.deepcopy(net), x, y, torch.linspace(*BOX, 41))
    except RuntimeError:  # torch itself refuses some of these combinations
        return
    if not isinstance(net, nn.Sequential):
        net.last.bias[y] -= min(worst) + 1e-3  # now the worst point fools the model, by a little
        worst = [margin - min(worst) - 1e-3 for margin in worst]
    if int(copy.deepcopy(net)(x).argmax(1)) != y:
        return
    try:
        found = sz.certify(net, x, torch.tensor([y]), up_to=1, bounds=BOX, attack=None, time_limit=5)
    except ValueError:
        return
    if int(found.lower[0]) > 1:
        assert min(worst) > 0


def test_many_are_tried_and_some_are_proved():
    """Half of the family would prove nothing if all were refused."""
    assert len(CASES) == COUNT
    net = Tricky(MIDDLES["plain"]).eval().requires_grad_(False)
    net.last.bias[0] += 100
    for how in ("", "doubled", "weight norm", "softmax", "log softmax"):
        model = wrapped(copy.deepcopy(net), how).eval().requires_grad_(False)
        found = sz.certify(model, torch.full((1, FEATURES), 0.5), torch.tensor([0]), bounds=BOX, attack=None)
        assert found.status == ["proved"], how
