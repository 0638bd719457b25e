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

NET = """
import torch
import helper

class Net(torch.nn.Module):
    gain = 1.0

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([[1.0] * 4 + [-1.0] * 4, [-1.0] * 4 + [1.0] * 4, [0.1] * 8]))
        self.register_buffer("saved", torch.zeros(3))
        self.register_buffer("unsaved", torch.zeros(3), persistent=False)
        self.scale, self.options, self.mixed = 1.0, {"offset": 0.0}, {"offset": 0.0, "how": torch.relu}
        self.held, self.listed, self.called = helper.Limit(1.0), [lambda x: x], helper.Limit(1.0)
        self.closure = (lambda scale: lambda logits: logits * scale)(1.0)
        self.queries = 0

    def forward(self, x):
        self.queries += len(x)
        x = self.called(self.listed[0](helper.pre(x)))
        found = x @ self.weight.T * self.scale * self.gain * self.held.high + self.saved + self.unsaved
        return self.closure(found) + (self.options["offset"] + self.mixed["offset"]) * torch.arange(3)
"""
# Each line limits the inputs in another way, to 1. All stored clean inputs are below 0.8: only changed ones show it.
HELPER = """
import dataclasses, enum, functools, importlib, json, os, pathlib
import numpy as np
import torch
import limits
from limits import *

NUMBER = 1.0
LIST = [1.0]
DICT = {"high": 1.0}
TENSOR = torch.tensor(1.0)
SCALAR = np.float32(1.0)
PARTIAL = functools.partial(torch.clamp, max=1.0)

@dataclasses.dataclass
class Limit:
    high: float

    def __call__(self, x):
        return x.clamp(max=self.high)

HELD = Limit(high=1.0)

class Numbers(enum.Enum):
    HIGH = 1.0

def function(x):
    return x.clamp(max=1.00)

FUNCTIONS = {"clamp": lambda x: x.clamp(max=1.000)}

def default(x, high=1.0):
    return x.clamp(max=high)

def closed(high):
    return lambda x: x.clamp(max=high)

CLOSED = closed(1.0)
Limit.late = 1.0

def pre(x):
    x = x.clamp(max=NUMBER).clamp(max=LIST[0]).clamp(max=DICT["high"]).minimum(TENSOR).clamp(max=float(SCALAR))
    x = CLOSED(default(FUNCTIONS["clamp"](function(HELD(PARTIAL(x)))))).clamp(max=Numbers.HIGH.value)
    x = x.clamp(max=Limit.late).clamp(max=limits.HIGH).clamp(max=STAR).clamp(max=getattr(limits, "BY_NAME"))
    x = x.clamp(max=json.loads(pathlib.Path(__file__).with_name("read.json").read_text())["high"])
    return x.clamp(max=importlib.import_module("by_name").HIGH).clamp(max=float(os.environ.get("STALE_HIGH", "1")))
"""
FILES = {
    "net.py": NET,
    "helper.py": HELPER,
    "limits.py": "HIGH = 1.0\nSTAR = 1.00\nBY_NAME = 1.000\n",
    "by_name.py": "HIGH = 1.0\n",
    "read.json": '{"high": 1.0}',
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
    "guide.py": """
import torch

class Guide(torch.nn.Linear):
    def forward(self, x):
        return 0.5 * super().forward(x)

def build():
    torch.manual_seed(0)
    return Guide(8, 3).eval()
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
        self.x = torch.rand(8, 8, generator=torch.Generator().manual_seed(0)) / 2 + 0.25
        self.options = {"steps": 10}
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


def helper(old):
    """Edit a limit in a file that the model imports from 1 to 0.8."""
    return edit("helper.py", old, old.replace("1.0", "0.8"))


def do(function):
    return lambda p: function(p) and None


def add_to_weight(p, by):
    with torch.no_grad():
        p.model.weight[0, 0] += by


def put(thing, name, value):
    return lambda p: p.monkeypatch.setattr(thing(p), name, value)


def put_in(thing, key, value):
    return lambda p: thing(p).__setitem__(key, value)


def other_forward(function):
    return lambda p: setattr(p.model, "forward", types.MethodType(function, p.model))


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


HELPERS = {
    "number": (helper("NUMBER = 1.0"), "new"),
    "list": (helper("LIST = [1.0"), "new"),
    "dict": (helper('DICT = {"high": 1.0'), "new"),
    "tensor": (helper("torch.tensor(1.0"), "new"),
    "NumPy number": (helper("np.float32(1.0"), "new"),
    "partial": (helper("torch.clamp, max=1.0"), "new"),
    "object": (helper("Limit(high=1.0"), "new"),
    "enumeration": (helper("HIGH = 1.0"), "new"),
    "function": (helper("max=1.00)\n"), "new"),
    "function in a dict": (helper("max=1.000)}"), "new"),
    "default of a function": (helper("high=1.0):"), "new"),
    "closure": (helper("closed(1.0"), "new"),
    "class attribute that is set later": (helper("late = 1.0"), "new"),
    "module that it imports": (edit("limits.py", "HIGH = 1.0\n", "HIGH = 0.8\n"), "new"),
    "module that it imports with a star": (edit("limits.py", "STAR = 1.00", "STAR = 0.8"), "new"),
    "attribute of a module by its name": (edit("limits.py", "BY_NAME = 1.000", "BY_NAME = 0.8"), "new"),
    "module that it imports by its name": (edit("by_name.py", "1.0", "0.8"), "refused"),
    "file that it reads": (edit("read.json", "1.0", "0.8"), "refused"),
    "environment variable": (lambda p: p.monkeypatch.setenv("STALE_HIGH", "0.8"), "refused"),
}
MEMORY = {
    "attribute": (put(lambda p: p.model, "scale", 2.0), "refused"),
    "attribute by a hundredth": (put(lambda p: p.model, "scale", 1.01), "refused"),
    "dict attribute": (put_in(lambda p: p.model.options, "offset", 1.0), "refused"),
    "dict attribute with a function": (put_in(lambda p: p.model.mixed, "offset", 1.0), "refused"),
    "attribute of an object": (put(lambda p: p.model.held, "high", 0.8), "refused"),
    "object that is called": (put(lambda p: p.model.called, "high", 0.8), "refused"),
    "list of functions": (put_in(lambda p: p.model.listed, 0, lambda x: x.clamp(max=0.8)), "refused"),
    "class attribute": (put(lambda p: p.net.Net, "gain", 2.0), "refused"),
    "closure": (put(lambda p: p.model, "closure", lambda logits: -logits), "refused"),
    "buffer that is not saved": (put_in(lambda p: p.model.unsaved, 0, 1.0), "refused"),
    "list of a helper": (put_in(lambda p: p.helper.LIST, 0, 0.8), "refused"),
    "dict of a helper": (put_in(lambda p: p.helper.DICT, "high", 0.8), "refused"),
    "defaults of a function": (put(lambda p: p.helper.default, "__defaults__", (0.8,)), "refused"),
    "helper that is patched": (put(lambda p: p.helper, "pre", lambda x: x.clamp(max=0.8)), "refused"),
    "method of the class": (put(lambda p: p.net.Net, "forward", lambda self, x: -x[:, :3]), "refused"),
    "method of the object": (other_forward(lambda self, x: -x[:, :3]), "refused"),
    "forward hook": (do(lambda p: p.model.register_forward_hook(lambda m, args, out: -out)), "refused"),
    "forward hook of a hundredth": (
        do(lambda p: p.model.register_forward_hook(lambda m, args, out: 1.01 * out)),
        "refused",
    ),
    "forward pre-hook": (
        do(lambda p: p.model.register_forward_pre_hook(lambda m, args: (args[0].clamp(max=0.8),))),
        "refused",
    ),
    "hook that turns gradients": (
        do(lambda p: p.model.register_forward_pre_hook(lambda m, args: (Wrong.apply(args[0]),))),
        "escapes",
    ),
    "answers where nothing is stored": (other_forward(hidden), "escapes"),
}
OTHERS = {
    "weight": (do(lambda p: add_to_weight(p, 1.0)), "new"),
    "weight by a millionth": (do(lambda p: add_to_weight(p, 1e-6)), "new"),
    "buffer that is saved": (put_in(lambda p: p.model.saved, 0, 1.0), "new"),
    "layer": (do(lambda p: setattr(p, "model", torch.nn.Sequential(p.model, torch.nn.ReLU()))), "new"),
    "model's file": (edit("net.py", "self.closure(found", "-self.closure(found"), "new"),
    "comment in the model's file": (edit("net.py", "import helper", "import helper  # help"), "new"),
    "queries that it counts": (put(lambda p: p.model, "queries", 1000), "same"),
    "training mode": (do(lambda p: p.model.train()), "same"),
    "loaded again": (do(lambda p: p.load()), "same"),
    "inputs": (lambda p: p.x.mul_(0.9), "new"),
    "labels": (lambda p: setattr(p, "y", (p.y + 1) % 3), "new"),
    "order of rows": (lambda p: (setattr(p, "x", p.x.flip(0)), setattr(p, "y", p.y.flip(0))), "new"),
    "space": (lambda p: p.options.update(space=sz.Space(around=0.5)), "new"),
    "accept of a space": (
        lambda p: p.options.update(space=sz.Space(accept=lambda x_adv, x: x_adv.sum(1) > 0)),
        "new",
    ),
}
ATTACK = {
    "parameter": (lambda p: setattr(p, "attack", p.attacking.Mine(factor=2.0)), "new"),
    "version": (put(lambda p: p.attacking.Mine, "version", 9), "new"),
    "step in its file": (edit("attacking.py", "            return state", "            return None"), "new"),
    "function in its helper": (edit("attack_helper.py", "False", "True"), "new"),
    "dict in memory": (put_in(lambda p: p.attacking.CONFIG, "stop", True), "new"),
    "method patched": (put(lambda p: p.attacking.Mine, "step", lambda self, i, state, oracle: state), "new"),
    "helper patched in memory": (put(lambda p: sys.modules["attack_helper"], "stop", lambda: True), "new"),
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


def test_there_are_forty_edits():
    assert (len(HELPERS), len(MEMORY)) == (19, 21)


@pytest.mark.filterwarnings("ignore:.*SZ0")
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("HELPERS", "MEMORY", "OTHERS") for name in globals()[kind]]
)
def test_edits(project, kind, name):
    change, expected = globals()[kind][name]
    assert noticed(project, change) == ("same" if expected == "escapes" else expected)


@pytest.mark.filterwarnings("ignore:.*SZ0")
@pytest.mark.parametrize("name", ATTACK)
def test_edits_of_attacks(project, name):
    change, expected = ATTACK[name]
    project.attack = project.attacking.Mine()
    assert noticed(project, change) == expected


@pytest.mark.filterwarnings("ignore:.*SZ0")
def test_edits_of_a_surrogate_a_loss_a_function_and_an_attack_of_ours(project):
    def with_loss(p):
        p.attack = sz.get("fmn", loss="mine")

    def function_attack(k):
        def paint(model, x, y):
            return (x + k).clamp(0, 1)

        return lambda p: setattr(p, "attack", sz.foreign(paint))

    def guided(p):
        guide = importlib.import_module("guide").build()
        p.attack = sz.get("query-swap", surrogate=guide)

    guided(project)
    changed = edit("guide.py", "0.5", "-0.5")
    assert noticed(project, lambda p: (changed(p), guided(p))) == "new"
    with_loss(project)
    changed = edit("attacking.py", "return goal.margin", "return -goal.margin")
    assert noticed(project, lambda p: (changed(p), with_loss(p))) == "new"
    function_attack(0.5)(project)
    assert noticed(project, function_attack(0.25)) == "new"
    assert noticed(project, function_attack(0.25)) == "same"
    project.attack = "fmn"
    kind = type(sz.get("fmn"))
    assert noticed(project, put(lambda p: kind, "step", lambda self, i, state, oracle: state)) == "new"


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


def test_one_contradicted_cell_supersedes_all_of_its_model(project, monkeypatch):
    project.options["budgets"] = [3, 60]
    before, check = project.evaluate().keys, reuse._check_cell

    def one_differs(store, info, *more):
        if info.budget == 60:
            raise reuse.ModelChanged(store, info, None, "other outputs")
        return check(store, info, *more)

    monkeypatch.setattr(reuse, "_check_cell", one_differs)
    with pytest.raises(reuse.ModelChanged):
        project.evaluate()
    assert not set(project.evaluate(anew=True).keys) & set(before)


def test_random_models_are_recognised_and_not_asked(project):
    class Random(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.eye(8)[:3])

        def forward(self, x):
            return x @ self.weight.T + 0.1 * torch.randn(len(x), 3)

    project.model = Random()
    with pytest.warns(UserWarning, match="SZ003"):
        before = project.evaluate()
    with pytest.warns(UserWarning, match="SZ003"):
        assert project.evaluate().keys == before.keys
    with Store(before.store) as store:
        (info,) = store.cells()
        assert reuse.check_same_models(store, [info], before._loader) == 0
    done = before.verify()
    assert done.disagreements == []
    assert "random outputs (SZ003)" in str(done.skipped[0])


def test_a_model_is_asked_about_sixteen_points_whatever_its_cells(project):
    project.x = torch.rand(40, 8, generator=torch.Generator().manual_seed(1))
    project.y = project.model(project.x).argmax(1).detach()
    for name in ("sigma-zero", "fmn", "vfga"):
        project.attack = name
        done = project.evaluate()
    with Store(done.store) as store:
        assert reuse.check_same_models(store, store.cells()[:1], done._loader) == 16
        assert reuse.check_same_models(store, store.cells(), done._loader) == 15
