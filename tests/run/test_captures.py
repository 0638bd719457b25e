"""Frames without a device: padding, smaller frames for fewer rows, a rehearsal that counts nothing, a compiled model.

Where a captured step would be replayed the steps are taken instead; what a graph itself may get wrong tests/gpu tests.
"""

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.core.hardware import Hardware
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from sigmazero.run.captures import Captures, Frame
from sigmazero.run.precision import Numbers
from sigmazero.run.search import Phase, search
from sigmazero.run.search_model import WORTH_COMPILING, Prepared, pays_to_compile
from tests.helpers.attacks import how, longer
from tests.helpers.networks import TinyNet

CAPTURABLE = sorted(name for name, attack in sz.ATTACKS.items() if attack.capturable)
ROWS = 40


class Retaken:
    """In place of a graph: takes the steps again."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def replay(self) -> None:
        self.frame._advance(self.frame.attack.unroll)


class Deviceless:
    """In place of the memory that captured steps share on a device."""

    insist = False


class Sized(Captures):
    """Lists how large each frame was that took rows in."""

    def __init__(self, attack, compiled=None) -> None:
        super().__init__(attack, ROWS, Deviceless(), compiled)
        self.sizes: list[int] = []

    def hold(self, oracle, state):
        frame = super().hold(oracle, state)
        self.sizes.append(frame.rows)
        return frame


@pytest.fixture(autouse=True)
def no_graphs(monkeypatch):
    monkeypatch.setattr(Frame, "_graph", lambda frame: setattr(frame, "graph", Retaken(frame)))


def problem(net: TinyNet, budget: int | None = None):
    x, y = net.x.repeat(8, 1, 1, 1)[:ROWS], net.y.repeat(8)[:ROWS]
    x[6:] = (x[6:] + 0.05 * torch.rand(len(x) - 6, 1, 1, 1, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    return make_problem(x, y, budget=budget)


def found(attack, net, question, captured: bool, frames: list[Sized] | None = None, compiled=None):
    """What a search leaves, with steps taken one by one or in frames, and the frames of each phase."""
    frames = frames or [Sized(phase, compiled) for phase in attack.phases()]
    phases = [each if captured else Phase(each.attack) for each in frames]
    with torch.no_grad():
        return search(phases, Oracle(net, question), lambda _: None), frames


def same(one, two) -> None:
    for field in ("counts", "points", "forwards", "backwards", "step_found", "broken", "unstarted"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field


@pytest.mark.parametrize("name", CAPTURABLE)
def test_frames_take_the_same_steps_in_every_batch(name, monkeypatch):
    attack, net = longer(name), TinyNet("conv")
    question = problem(net, how(attack).get("budget"))
    (one, _), (two, frames) = (found(attack, net, question, captured) for captured in (False, True))
    same(one, two)
    monkeypatch.setattr(Frame, "capture", lambda *_, **__: pytest.fail("there is a frame for so many rows"))
    fewer = question.take(torch.arange(2, ROWS))
    (one, _), (two, _) = (found(attack, net, fewer, captured, frames) for captured in (False, True))
    same(one, two)


@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap", "spgd-unprojected"])
def test_rows_that_are_left_move_to_smaller_frames(name):
    attack, net = sz.get(name, steps=150), TinyNet("conv")
    question = problem(net, 5)
    (one, _), (two, frames) = (found(attack, net, question, captured) for captured in (False, True))
    same(one, two)
    assert any(len(set(each.sizes)) > 1 for each in frames), [each.sizes for each in frames]


def test_a_smaller_recording_that_fails_is_stepped_eagerly(monkeypatch, caplog):
    """In mid-run: the rows go on from where they were before the capture failed."""
    attack, net = sz.get("sigma-zero", steps=150), TinyNet("conv")
    question = problem(net, 5)
    wanted, _ = found(attack, net, question, captured=False)
    recorded: list[int] = []

    def capture(frame: Frame) -> None:
        if recorded:
            raise RuntimeError("no more graphs\nwith details")
        recorded.append(frame.rows)
        frame.graph = Retaken(frame)  # type: ignore[assignment]

    monkeypatch.setattr(Frame, "_graph", capture)
    got, frames = found(attack, net, question, captured=True)
    assert len(frames[0].sizes) == 1
    assert not frames[0].works
    assert "could not be captured (no more graphs)" in caplog.text
    same(wanted, got)


# A compiled model, without a real compiler


def test_what_the_compiler_refuses_is_searched_as_it_is(caplog):
    def refused(x):
        raise RuntimeError("graph break\nin line 3")

    attack, net = sz.get("sigma-zero", steps=60), TinyNet("conv")
    one, two = (found(attack, net, problem(net), captured=True, compiled=each)[0] for each in (None, refused))
    same(one, two)
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
        (Hardware("fp32"), Numbers("cuda", conv="tf32"), "fp32"),
        (Hardware("tf32"), Numbers("cuda"), "tf32"),
        (Hardware("bf16"), Numbers("cuda"), "bf16"),
        (Hardware(), Numbers("cuda", autocast=torch.bfloat16), "bf16"),
    ],
)
def test_the_rule_is_asked_about_the_search(monkeypatch, hardware, settings, precision):
    net, seen = TinyNet("conv"), []
    monkeypatch.setattr("sigmazero.run.search_model.pays_to_compile", lambda *asked: seen.append(asked) or True)
    prepared = Prepared(net, hardware)
    prepared.compute_in(settings)
    assert prepared.compiles(problem(net), 7)
    ((device, layers, searched, work),) = seen
    assert (device, set(layers), searched, work) == ("cpu", set(map(type, net.modules())), precision, 7)
    for prepare, compiles in (("none", False), ("fold", False), ("compile", True)):  # these do not ask the rule
        assert Prepared(net, Hardware(prepare=prepare)).compiles(problem(net), 10**9) is compiles
    assert len(seen) == 1
