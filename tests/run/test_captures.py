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
from sigmazero.run.captures import CapturedSteps, Captures, CompiledModel, Frame
from sigmazero.run.precision import Numbers
from sigmazero.run.search import Phase, search
from sigmazero.run.search_model import WORTH_COMPILING, Prepared, pays_to_compile
from sigmazero.run.session import Session
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
        return search(phases, Oracle(net, question), True, lambda _: None).incumbents, frames


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


@pytest.mark.parametrize("turns", [(5,), (1, 4)])
def test_a_rehearsal_counts_nothing_where_most_rows_leave_at_once(turns):
    attack, net = sz.get("sigma-zero", steps=20), TinyNet("conv")
    oracle = Oracle(net, problem(net))
    with torch.no_grad():
        taken = CapturedSteps(Sized(attack), oracle, attack.init(oracle)).take(torch.arange(ROWS) < 10)
        for steps in turns:
            taken.go(steps)
    assert int(taken.oracle.iteration) == 5
    assert int(taken.incumbents.backwards.max()) == 5


@pytest.mark.parametrize("masked", [False, True])
def test_a_frame_takes_the_box_of_other_rows(masked):
    """One box for all rows is a tensor of the frame's own: no problem's is written to."""
    attack, net = sz.get("sigma-zero", steps=20), TinyNet("conv")
    mask = torch.rand(net.x.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    frames = Sized(attack)
    for bounds, rows in (((0.0, 1.0), torch.arange(1)), ((-1.0, 2.0), torch.arange(1, 6))):
        question = make_problem(net.x, net.y, bounds=bounds, mask=mask if masked else None)
        before, part = question.domain.user_lower.clone(), question.take(rows)
        oracle = Oracle(net, part)
        with torch.no_grad():
            domain = frames.hold(oracle, attack.init(oracle)).oracle.domain
        for name in ("lower", "upper", "user_lower", "user_upper", *(["free"] if masked else [])):
            assert torch.equal(getattr(domain, name)[: len(rows)], getattr(part.domain, name)), name
        assert torch.equal(question.domain.user_lower, before)


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


class Compiled:
    """A compiled model that lists for which shapes it was compiled."""

    def __init__(self, model) -> None:
        self.model = model
        self.shapes: dict[tuple[int, bool], None] = {}

    def __call__(self, x):
        self.shapes[len(x), torch.is_grad_enabled()] = None
        return self.model(x)


@pytest.mark.parametrize(("name", "budget", "grads"), [("sigma-zero", 5, {True}), ("sigma-swap", None, {True, False})])
def test_whole_batches_alone_are_compiled(name, budget, grads):
    """Rows that leave make smaller frames, for which a compilation would come too late to pay."""
    attack, net = sz.get(name, steps=60), TinyNet("conv")
    question, compiled = problem(net, budget), Compiled(net)
    one, two = (found(attack, net, question, captured=True, compiled=each)[0] for each in (None, compiled))
    same(one, two)
    assert set(compiled.shapes) == {(ROWS, grad) for grad in grads}


def test_a_step_of_many_shapes_is_compiled_for_three():
    net = TinyNet("conv")
    model = CompiledModel(net, compiled := Compiled(net))
    for rows in (5, 4, 5, 3, 2, 1, 5):
        model(net.x[:1].repeat(rows, 1, 1, 1))
    assert [rows for rows, _ in compiled.shapes] == [5, 4, 3]


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
    for prepare, compiles in (("none", False), ("fold", False), ("compile", True)):
        assert Prepared(net, Hardware(prepare=prepare)).compiles(problem(net), 10**9) is compiles
    assert len(seen) == 1  # other choices do not ask the rule


def test_the_rule_counts_the_rows_and_steps_of_the_question(monkeypatch):
    """Not those of a batch, nor those that a resumed run has left."""
    seen, net, attack = set(), TinyNet("conv"), sz.get("sigma-zero", steps=5)
    monkeypatch.setattr(Prepared, "compiles", lambda _, problem, work: seen.add(work) or False)
    question = problem(net)
    Session(attack, net, batch_size=4).run(question)
    Session(attack, net, batch_size=4, rows=1000).run(question)
    assert seen == {ROWS * attack.iterations, 1000 * attack.iterations}
