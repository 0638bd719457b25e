"""When a copy is compiled, for how many shapes, and what happens where it cannot be; without a real compiler."""

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.core.hardware import Hardware
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from sigmazero.run.captures import Captures, CompiledModel, Frame
from sigmazero.run.precision import Numbers
from sigmazero.run.search import search
from sigmazero.run.search_model import WORTH_COMPILING, Prepared, pays_to_compile
from sigmazero.run.session import Session
from tests.helpers.networks import TinyNet

ATTACK = sz.get("sigma-zero", steps=60)
ROWS = 40


class Deviceless:
    """In place of the memory that captured steps share on a device."""

    insist = False


class Retaken:
    """In place of a graph: takes the steps again."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def replay(self) -> None:
        self.frame._advance(self.frame.attack.unroll)


@pytest.fixture(autouse=True)
def no_graphs(monkeypatch):
    monkeypatch.setattr(Frame, "_graph", lambda frame: setattr(frame, "graph", Retaken(frame)))


class Compiled:
    """A compiled model that notes for which shapes it was compiled."""

    def __init__(self, model) -> None:
        self.model = model
        self.shapes: list[tuple[int, bool]] = []

    def __call__(self, x):
        shape = len(x), torch.is_grad_enabled()
        if shape not in self.shapes:
            self.shapes.append(shape)
        return self.model(x)


@pytest.fixture
def net():
    return TinyNet("conv")


def question(net, budget):
    x = net.x.repeat(8, 1, 1, 1)[:ROWS]
    x[6:] = (x[6:] + 0.05 * torch.rand(len(x) - 6, 1, 1, 1, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    return make_problem(x, net.y.repeat(8)[:ROWS], budget=budget)


def found(net, budget, compiled=None, attack=ATTACK):
    phases = [Captures(phase, ROWS, Deviceless(), compiled) for phase in attack.phases()]
    with torch.no_grad():
        return search(phases, Oracle(net, question(net, budget)), True, lambda _: None).incumbents


def same(one, two) -> None:
    for name in ("points", "counts", "forwards", "backwards", "step_found"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.parametrize("budget", [None, 5])
def test_whole_batches_alone_are_compiled(net, budget):
    """Rows that leave make smaller frames, for which a compilation would come too late to pay."""
    compiled = Compiled(net)
    same(found(net, budget, compiled), found(net, budget))
    assert compiled.shapes == [(ROWS, True)]


def test_a_step_of_many_shapes_is_compiled_for_three(net):
    model = CompiledModel(net, compiled := Compiled(net))
    for rows in (5, 4, 5, 3, 2, 1, 5):
        model(net.x[:1].repeat(rows, 1, 1, 1))
    assert [rows for rows, _ in compiled.shapes] == [5, 4, 3]


def test_forward_passes_are_compiled_too(net):
    compiled = Compiled(net)
    attack = sz.get("sigma-swap", steps=60)
    same(found(net, None, compiled, attack), found(net, None, attack=attack))
    assert {grad for _, grad in compiled.shapes} == {False, True}


def test_what_the_compiler_refuses_is_searched_as_it_is(net, caplog):
    def refused(x):
        raise RuntimeError("graph break\nin line 3")

    same(found(net, None, refused), found(net, None))
    assert caplog.messages == ["the model is searched uncompiled (graph break)"]


CONVOLUTIONS = [nn.Conv2d, nn.ReLU, nn.Linear]


@pytest.mark.parametrize(
    ("device", "layers", "precision", "work", "pays"),
    [
        ("cuda", CONVOLUTIONS, "tf32", WORTH_COMPILING, True),
        ("cuda", CONVOLUTIONS, "bf16", WORTH_COMPILING, True),
        ("cuda", CONVOLUTIONS, "tf32", WORTH_COMPILING - 1, False),
        ("cuda", CONVOLUTIONS, "fp32", WORTH_COMPILING, False),
        ("cuda", [nn.Linear, nn.ReLU], "tf32", WORTH_COMPILING, False),
        ("cpu", CONVOLUTIONS, "bf16", WORTH_COMPILING, False),
    ],
)
def test_the_rule(device, layers, precision, work, pays):
    assert pays_to_compile(device, layers, precision, work) is pays


@pytest.mark.parametrize(
    ("hardware", "settings", "precision"),
    [
        (Hardware(), Numbers("cuda", conv="tf32", rnn="tf32"), "tf32"),
        (Hardware(), Numbers("cuda"), "fp32"),
        (Hardware("fp32"), Numbers("cuda", conv="tf32"), "fp32"),
        (Hardware("tf32"), Numbers("cuda"), "tf32"),
        (Hardware("bf16"), Numbers("cuda"), "bf16"),
        (Hardware(), Numbers("cuda", autocast=torch.bfloat16), "bf16"),
    ],
)
def test_the_rule_is_asked_about_the_search(net, monkeypatch, hardware, settings, precision):
    seen = []
    monkeypatch.setattr("sigmazero.run.search_model.pays_to_compile", lambda *asked: seen.append(asked) or True)
    prepared = Prepared(net, hardware)
    prepared.compute_in(settings)
    assert prepared.compiles(question(net, None), 7)
    ((device, layers, searched, work),) = seen
    assert (device, searched, work) == ("cpu", precision, 7)
    assert set(layers) == set(map(type, net.modules()))


@pytest.mark.parametrize(("prepare", "compiles"), [("none", False), ("fold", False), ("compile", True)])
def test_other_choices_do_not_ask_the_rule(net, monkeypatch, prepare, compiles):
    monkeypatch.setattr("sigmazero.run.search_model.pays_to_compile", lambda *_: pytest.fail("asked"))
    assert Prepared(net, Hardware(prepare=prepare)).compiles(question(net, None), 10**9) is compiles


def test_the_rule_counts_the_rows_and_steps_of_the_question(net, monkeypatch):
    """Not those of a batch, nor those that a resumed run has left."""
    seen = []
    monkeypatch.setattr(Prepared, "compiles", lambda _, problem, work: seen.append(work) or False)
    attack = sz.get("sigma-zero", steps=5)
    x, y = net.x.repeat(3, 1, 1, 1), net.y.repeat(3)
    attack.run(net, x, y, batch_size=4)
    assert set(seen) == {len(x) * attack.iterations}
    assert len(seen) > 1
    seen.clear()
    whole = Session(attack, net, batch_size=4, rows=1000)
    whole.run(make_problem(x[:4], y[:4]))
    assert set(seen) == {1000 * attack.iterations}
