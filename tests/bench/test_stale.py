"""Facts are never those of other code: what was edited runs again, and what was not does not."""

import importlib
import subprocess
import sys
import types

import pytest
import torch

from sigmazero import attacks
from sigmazero.bench import identity
from sigmazero.bench.evaluate import evaluate
from sigmazero.bench.model_identity import describe_module
from sigmazero.core.losses import LOSSES
from tests.helpers.networks import linear_problem

pytestmark = pytest.mark.slow

LOSS = """
from sigmazero.core.losses import loss

@loss
def mine(logits, goal):
    return {sign}goal.margin(logits)
"""
ATTACK = """
from dataclasses import dataclass
from sigmazero.attacks import fmn

@dataclass(frozen=True, kw_only=True)
class FMN(fmn.FMN):
    def step(self, i, state, oracle):
        {first}
        return super().step(i, state, oracle)
"""
MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4) % 5 - 2)

    def forward(self, x):
        return {answer}
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a module called `mine` and import it anew."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text):
        (tmp_path / "mine.py").write_text(text)
        sys.modules.pop("mine", None)
        importlib.invalidate_caches()
        return importlib.import_module("mine")

    yield write
    sys.modules.pop("mine", None)


def asr(done):
    return float(done.facts(done.keys[0]).success.mean())


def test_an_edited_attack_of_the_same_name_runs_again(tmp_path, written):
    model, x, y = linear_problem((6,), 8)
    settings = {"store": tmp_path / "s.db", "steps": 40}
    before = evaluate(model, (x, y), [written(ATTACK.format(first="pass")).FMN()], **settings)
    assert asr(before) == 1.0
    edited = written(ATTACK.format(first="return state")).FMN()
    after = evaluate(model, (x, y), [edited], **settings)
    fresh = evaluate(model, (x, y), [edited], store=tmp_path / "fresh.db", steps=40)
    assert asr(after) == asr(fresh) == 0.0
    again = evaluate(model, (x, y), [written(ATTACK.format(first="pass  # as it was")).FMN()], **settings)
    assert again.keys == before.keys
    assert asr(again) == 1.0


def test_an_edited_loss_of_the_same_name_runs_again(tmp_path, written, request):
    request.addfinalizer(lambda: LOSSES.pop("mine", None))

    def attack(sign):
        LOSSES.pop("mine", None)
        written(LOSS.format(sign=sign))
        return attacks.get("fmn", loss="mine")

    model, x, y = linear_problem((6,), 8)
    settings = {"store": tmp_path / "s.db", "steps": 40}
    assert asr(evaluate(model, (x, y), [attack("")], **settings)) == 1.0
    assert asr(evaluate(model, (x, y), [attack("-")], **settings)) < 1.0


def test_an_edited_module_with_the_same_weights_runs_again(tmp_path, written):
    x = torch.rand(8, 4, generator=torch.Generator().manual_seed(0))
    right = written(MODEL.format(answer="x @ self.weight.T")).Net()
    y = right(x).argmax(1)
    settings = {"store": tmp_path / "s.db", "steps": 5}

    def clean_accuracy(network):
        done = evaluate(network, (x, y), **settings)
        facts = done.facts(done.keys[0])
        return float((facts.clean_prediction == facts.label).mean())

    wrong = written(MODEL.format(answer="-x @ self.weight.T")).Net()
    assert clean_accuracy(wrong) < 1
    assert clean_accuracy(written(MODEL.format(answer="x @ self.weight.T")).Net()) == 1.0
    assert clean_accuracy(written(MODEL.format(answer="-x @ self.weight.T")).Net()) < 1


def test_attacks_of_the_registry_are_known_by_their_version():
    assert "code" not in identity.describe_attack(attacks.get("fmn"))
    assert "code" not in str(identity.describe_attack(attacks.get("sparse-rs-min")))


def test_an_attack_that_a_user_registered_is_known_by_its_code(written, monkeypatch):
    mine = written(ATTACK.format(first="pass")).FMN(name="mine")
    monkeypatch.setattr(attacks, "ATTACKS", dict(attacks.ATTACKS))
    attacks.register(mine)
    assert "mine.FMN" in str(identity.describe_attack(attacks.get("mine"))["code"])


def test_an_attack_within_another_is_looked_at_too(written):
    inner = written(
        ATTACK.format(first="pass").replace("fmn.FMN", "pgd_l0.PGDL0").replace("import fmn", "import pgd_l0")
    )
    outer = attacks.get("pgd-l0-min", attack=inner.FMN())
    assert "mine.FMN" in str(identity.describe_attack(outer))


def negated(module, args, out):
    return -out


def doubled(module, args):
    return (args[0] * 2,)


def test_what_makes_a_module_another_one(written):
    """Layers, functions put on it or into its class, hooks, buffers that are not saved, plain attributes."""
    source = MODEL.format(answer="x @ self.weight.T * self.scale") + "    scale = 1.0\n"

    def described(change=lambda network: None, text=source):
        network = written(text).Net()
        change(network)
        return identity.canonical(describe_module(network))

    def patch(network):
        type(network).forward = lambda self, x: x

    def bind(network):
        network.forward = types.MethodType(lambda self, x: -x, network)

    changes = [
        patch,
        bind,
        lambda network: network.register_forward_hook(negated),
        lambda network: network.register_forward_pre_hook(doubled),
        lambda network: network.register_buffer("shift", torch.ones(1), persistent=False),
        lambda network: network.register_buffer("shift", torch.zeros(1), persistent=False),
        lambda network: setattr(network, "scale", 2.0),
        lambda network: setattr(network, "table", torch.arange(3)),
        lambda network: setattr(network, "table", [1, (2.0, "a")]),
        lambda network: setattr(network, "inner", torch.nn.ReLU()),
    ]
    found = [described(), *map(described, changes), described(text=source.replace("scale = 1.0", "scale = 3.0"))]
    assert len(set(found)) == len(found)
    assert described() == found[0]
    assert described(text=source.replace("import torch", "import torch  # a comment")) == found[0]
    assert described(lambda network: network.train()) == found[0]


def test_a_module_without_weights_is_known_by_its_code(tmp_path, written):
    text = "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    text += "        return torch.stack([x.sum(1), {}], 1)\n"
    x = torch.rand(4, 5)
    keys = set()
    for other in ("2 - x.sum(1)", "3 - x.sum(1)", "2 - x.sum(1)"):
        network = written(text.format(other)).Net()
        keys.add(evaluate(network, (x, network(x).argmax(1)), store=tmp_path / "s.db", steps=5).keys)
    assert len(keys) == 2


def test_a_compiled_program_is_known_by_its_text():
    class Net(torch.nn.Module):
        def __init__(self, sign):
            super().__init__()
            self.layer, self.sign = torch.nn.Linear(2, 2), sign

        def forward(self, x):
            return self.layer(x) if self.sign else -self.layer(x)

    one, two = (torch.fx.symbolic_trace(Net(sign)) for sign in (True, False))
    assert describe_module(one) != describe_module(two)


WITHOUT_SOURCE = """
import sys, warnings, torch
from sigmazero.bench.evaluate import evaluate
space = {"torch": torch, "__name__": "nowhere"}
exec('''class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.eye(3))
    def forward(self, x):
        return x @ self.weight''', space)
x = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    keys = {evaluate(space["Net"](), (x, x.argmax(1)), store=sys.argv[1], steps=3).keys[0] for _ in range(2)}
(key,) = keys
print(key, sum("cannot be read" in str(one.message) for one in said))
"""


def test_code_without_source_is_not_used_again_by_another_process(tmp_path):
    command = [sys.executable, "-c", WITHOUT_SOURCE, str(tmp_path / "s.db")]
    said = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(2)]
    assert [count for _, count in said] == ["1", "1"]  # once is enough
    assert said[0][0] != said[1][0]
