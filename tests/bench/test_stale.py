"""Facts of other code are never reused: each edit gives a new cell, or an error; the table of docs/security.md.

new       the edit is part of the identity: the cell runs again under another key
refused   the identity is the same, and the present model contradicts stored points
same      nothing that matters changed: stored facts are reused
escapes   the edit is not noticed
"""

import importlib
import sys
import types

import pytest
import torch

import sigmazero as sz
from sigmazero.bench import reuse
from sigmazero.bench.evaluate import evaluate
from sigmazero.core.losses import LOSSES
from sigmazero.store import Store

FILES = {
    "net.py": """
import importlib, json, os, pathlib
import torch
import helper
from helper import shift

BIAS = [0.0, 0.1, 0.2]

def closed(scale):
    return lambda logits: logits * scale

class Net(torch.nn.Module):
    gain = 1.0

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(12.0).view(3, 4) % 5 - 2)
        self.register_buffer("saved", torch.zeros(3))
        self.register_buffer("unsaved", torch.zeros(3), persistent=False)
        self.scale = 1.0
        self.options = {"offset": 0.0}
        self.closure = closed(1.0)
        self.queries = 0

    def forward(self, x):
        self.queries += len(x)
        read = json.loads(pathlib.Path(__file__).with_name("read.json").read_text())
        found = helper.pre(x) @ self.weight.T * self.scale * self.gain * read["scale"]
        found = found * float(os.environ.get("STALE_SCALE", "1")) + torch.tensor(BIAS) + self.saved + self.unsaved
        named = importlib.import_module("by_name")
        return self.closure(shift(found)) * named.SCALE + self.options["offset"] * torch.arange(3)
""",
    "helper.py": """
import limits
CONFIG = {"scale": 1.0}

def pre(x):
    return x.clamp(limits.LOW, limits.HIGH) * CONFIG["scale"]

def shift(logits):
    return logits
""",
    "limits.py": "LOW, HIGH = 0.0, 1.0\n",
    "by_name.py": "SCALE = 1.0\n",
    "read.json": '{"scale": 1.0}',
    "attacking.py": """
from dataclasses import dataclass
from sigmazero.attacks import fmn
from sigmazero.core.losses import LOSSES, loss
import attack_helper

CONFIG = {"stop": False}
LOSSES.pop("mine", None)

@loss
def mine(logits, goal):
    return goal.margin(logits)

@dataclass(frozen=True, kw_only=True)
class Mine(fmn.FMN):
    factor: float = 1.0

    def step(self, i, state, oracle):
        if CONFIG["stop"] or attack_helper.stop():
            return state
        return super().step(i, state, oracle)
""",
    "attack_helper.py": "def stop():\n    return False\n",
}
OWN = [name.removesuffix(".py") for name in FILES if name.endswith(".py")]


class Project:
    """Files of a user's project, the model and attack that are loaded from them, and rows."""

    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        for name, text in FILES.items():
            (folder / name).write_text(text)
        self.x = torch.rand(8, 4, generator=torch.Generator().manual_seed(0))
        self.options = {"steps": 5}
        self.load()
        self.y = self.model(self.x).argmax(1).detach()

    def load(self):
        for name in OWN:
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        self.net, self.helper, self.attacking = map(importlib.import_module, ("net", "helper", "attacking"))
        self.model = self.net.Net()
        self.attack = "sigma-zero"

    def edit(self, file, old, new):
        path = self.folder / file
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))
        attack = self.attack
        self.load()
        if not isinstance(attack, str):
            self.attack = self.attacking.Mine()

    def evaluate(self, **more):
        return evaluate(self.model, (self.x, self.y), [self.attack], store=self.folder / "s.db", **self.options, **more)


def edit(file, old, new):
    return lambda p: p.edit(file, old, new)


def do(function):
    return lambda p: function(p) and None


def weights(p, by):
    with torch.no_grad():
        p.model.weight[0, 0] += by


def set_in(thing, name, value):
    def change(p):
        p.monkeypatch.setattr(thing(p), name, value)

    return change


def held(thing, key, value):
    return lambda p: thing(p).__setitem__(key, value)


def negated(module, args, out):
    return -out


def scaled(module, args, out):
    return 1.01 * out


def hidden(self, x):
    """Answer differently where nothing stored lies."""
    found = type(self).forward(self, x)
    return torch.where((x > 2).any(1, keepdim=True), -found, found)


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, slope):
        return -slope


def mine(p):
    p.attack = p.attacking.Mine()


def with_loss(p):
    p.attack = sz.get("fmn", loss="mine")


def function_attack(k):
    def change(p):
        def paint(model, x, y):
            return (x + k).clamp(0, 1)

        p.attack = sz.foreign(paint)

    return change


MODEL = {
    "weight": (do(lambda p: weights(p, 1.0)), "new"),
    "weight by a millionth": (do(lambda p: weights(p, 1e-6)), "new"),
    "buffer that is saved": (held(lambda p: p.model.saved, 0, 1.0), "new"),
    "buffer that is not saved": (held(lambda p: p.model.unsaved, 0, 1.0), "refused"),
    "layer around it": (do(lambda p: setattr(p, "model", torch.nn.Sequential(p.model, torch.nn.ReLU()))), "new"),
    "forward in its file": (edit("net.py", "self.closure(shift", "-self.closure(shift"), "new"),
    "constant in its file": (edit("net.py", "BIAS = [0.0", "BIAS = [0.5"), "new"),
    "comment in its file": (edit("net.py", "import helper", "import helper  # help"), "new"),
    "helper function": (edit("helper.py", "return logits", "return -logits"), "new"),
    "dict in a helper": (edit("helper.py", '"scale": 1.0', '"scale": 0.5'), "new"),
    "module that a helper imports": (edit("limits.py", "1.0", "0.5"), "new"),
    "module that is imported by name": (edit("by_name.py", "1.0", "2.0"), "refused"),
    "file that forward reads": (edit("read.json", "1.0", "2.0"), "refused"),
    "environment variable": (lambda p: p.monkeypatch.setenv("STALE_SCALE", "2"), "refused"),
    "attribute": (set_in(lambda p: p.model, "scale", 2.0), "refused"),
    "attribute by a hundredth": (set_in(lambda p: p.model, "scale", 1.01), "refused"),
    "dict attribute": (held(lambda p: p.model.options, "offset", 1.0), "refused"),
    "class attribute": (set_in(lambda p: p.net.Net, "gain", 2.0), "refused"),
    "closure": (set_in(lambda p: p.model, "closure", lambda logits: -logits), "refused"),
    "global list in memory": (held(lambda p: p.net.BIAS, 0, 5.0), "refused"),
    "global dict of a helper in memory": (held(lambda p: p.helper.CONFIG, "scale", 0.5), "refused"),
    "method patched in its class": (set_in(lambda p: p.net.Net, "forward", lambda self, x: -x[:, :3]), "refused"),
    "method patched on it": (
        lambda p: setattr(p.model, "forward", types.MethodType(lambda self, x: -x[:, :3], p.model)),
        "refused",
    ),
    "helper patched in memory": (set_in(lambda p: p.helper, "pre", lambda x: 1 - x), "refused"),
    "forward hook": (do(lambda p: p.model.register_forward_hook(negated)), "refused"),
    "forward hook of a hundredth": (do(lambda p: p.model.register_forward_hook(scaled)), "refused"),
    "forward pre-hook": (do(lambda p: p.model.register_forward_pre_hook(lambda m, args: (1 - args[0],))), "refused"),
    "queries that it counts": (set_in(lambda p: p.model, "queries", 1000), "same"),
    "training mode": (do(lambda p: p.model.train()), "same"),
    "loaded again": (do(lambda p: p.load()), "same"),
    "gradient hook": (
        do(lambda p: p.model.register_forward_pre_hook(lambda m, args: (Wrong.apply(args[0]),))),
        "escapes",
    ),
    "answers where nothing is stored": (
        lambda p: setattr(p.model, "forward", types.MethodType(hidden, p.model)),
        "escapes",
    ),
}
DATA = {
    "inputs": (lambda p: p.x.mul_(0.5), "new"),
    "labels": (lambda p: setattr(p, "y", (p.y + 1) % 3), "new"),
    "order of rows": (lambda p: (setattr(p, "x", p.x.flip(0)), setattr(p, "y", p.y.flip(0))), "new"),
    "mask": (lambda p: p.options.update(mask=torch.tensor([True, True, True, False])), "new"),
    "bounds": (lambda p: p.options.update(bounds=(0.0, 2.0)), "new"),
    "space": (lambda p: p.options.update(space=sz.Space(around=0.5)), "new"),
    "space that accepts otherwise": (
        lambda p: p.options.update(space=sz.Space(accept=lambda x_adv, x: x_adv.sum(1) > 0)),
        "new",
    ),
    "seed": (lambda p: p.options.update(seed=1), "new"),
    "margin": (lambda p: p.options.update(margin=0.1), "new"),
    "batch size": (lambda p: p.options.update(batch_size=3), "same"),
}
ATTACK = {
    "parameter": (lambda p: setattr(p, "attack", p.attacking.Mine(factor=2.0)), "new"),
    "steps": (lambda p: p.options.update(steps=6), "new"),
    "version": (set_in(lambda p: p.attacking.Mine, "version", 9), "new"),
    "step in its file": (edit("attacking.py", "            return state", "            return None"), "new"),
    "function in its helper": (edit("attack_helper.py", "False", "True"), "new"),
    "dict in memory": (held(lambda p: p.attacking.CONFIG, "stop", True), "new"),
    "method patched": (set_in(lambda p: p.attacking.Mine, "step", lambda self, i, state, oracle: state), "new"),
    "helper patched in memory": (set_in(lambda p: sys.modules["attack_helper"], "stop", lambda: True), "new"),
    "name": (lambda p: setattr(p, "attack", p.attacking.Mine(name="other")), "same"),
}


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield Project(tmp_path, monkeypatch)
    for name in OWN:
        sys.modules.pop(name, None)
    LOSSES.pop("mine", None)


def noticed(project, change):
    """Return what becomes of stored facts after a change."""
    before = project.evaluate().keys
    change(project)
    try:
        after = project.evaluate().keys
    except reuse.ModelChanged:
        return "refused"
    return "new" if after != before else "same"


@pytest.mark.filterwarnings("ignore:.*SZ0")
@pytest.mark.parametrize("name", [*MODEL, *DATA])
def test_edits_of_models_and_data(project, name):
    change, expected = {**MODEL, **DATA}[name]
    assert noticed(project, change) == ("same" if expected == "escapes" else expected)


@pytest.mark.filterwarnings("ignore:.*SZ0")
@pytest.mark.parametrize("name", ATTACK)
def test_edits_of_attacks(project, name):
    change, expected = ATTACK[name]
    mine(project)
    assert noticed(project, change) == expected


@pytest.mark.filterwarnings("ignore:.*SZ0")
def test_edits_of_a_loss_a_function_and_an_attack_of_ours(project, monkeypatch):
    with_loss(project)
    changed = edit("attacking.py", "return goal.margin", "return -goal.margin")
    assert noticed(project, lambda p: (changed(p), with_loss(p))) == "new"
    function_attack(0.5)(project)
    assert noticed(project, function_attack(0.25)) == "new"
    assert noticed(project, function_attack(0.25)) == "same"
    project.attack = "fmn"
    kind = type(sz.get("fmn"))
    assert noticed(project, set_in(lambda p: kind, "step", lambda self, i, state, oracle: state)) == "new"


def test_a_contradicted_cell_is_named_unchanged_and_replaced_when_asked(project):
    before = project.evaluate()
    facts = before.facts(before.keys[0])
    project.model.scale = -1.0
    for _ in range(2):
        with pytest.raises(reuse.ModelChanged, match=r"sigma-zero against Net.*--anew"):
            project.evaluate()
    assert (before.facts(before.keys[0]).l0 == facts.l0).all()
    anew = project.evaluate(anew=True)
    assert anew.keys != before.keys
    with Store(before.store) as store:
        assert store.superseded() == {before.keys[0]: anew.keys[0]}
    assert project.evaluate().keys == anew.keys  # from now on these are its facts
    project.model.scale = 2.0
    assert len({project.evaluate(anew=True).keys, anew.keys, before.keys}) == 3


def test_random_models_are_recognised_and_not_asked(project):
    class Random(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.eye(4)[:3])

        def forward(self, x):
            return x @ self.weight.T + 0.1 * torch.randn(len(x), 3)

    project.model = Random()
    with pytest.warns(UserWarning, match="SZ003"):
        before = project.evaluate()
    with pytest.warns(UserWarning, match="SZ003"):
        assert project.evaluate().keys == before.keys
    with Store(before.store) as store:
        (info,) = store.cells()
        found = reuse.check_same_models(store, [info], before._loader)
    assert (found.asked, list(found.skipped)) == (0, list(before.keys))


def test_a_model_is_asked_about_sixteen_points_whatever_its_cells(project):
    project.x = torch.rand(40, 4, generator=torch.Generator().manual_seed(1))
    project.y = project.model(project.x).argmax(1).detach()
    for name in ("sigma-zero", "fmn", "vfga"):
        project.attack = name
        done = project.evaluate()
    with Store(done.store) as store:
        assert reuse.check_same_models(store, store.cells()[:1], done._loader).asked == 16
        assert reuse.check_same_models(store, store.cells(), done._loader).asked == 15
