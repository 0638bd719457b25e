"""Frames without a device: padding, looks now and then, smaller frames for fewer rows, and a first step that counts.

Where a recording would be replayed the steps are taken instead; what a graph itself may get wrong tests/gpu tests.
"""

import pytest
import torch

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from sigmazero.run.graphs import Captured, Frame, Frames
from sigmazero.run.search import Eager, begun, search
from tests.attacks.test_attacks import how, small
from tests.networks import TinyNet

CAPTURABLE = sorted(name for name, attack in sz.ATTACKS.items() if attack.capturable)
ROWS = 40


class Retaken:
    """In place of a graph: takes the steps again."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame

    def replay(self) -> None:
        self.frame._advance(self.frame.attack.unroll)


class Noted(Frames):
    """Frames that note how large each one was that held rows."""

    def __init__(self, attack) -> None:
        super().__init__(attack, ROWS, fuse=False, pool=None)
        self.sizes: list[int] = []

    def hold(self, oracle, state):
        frame, ahead = super().hold(oracle, state)
        self.sizes.append(frame.rows)
        return frame, ahead


def problem(net: TinyNet, budget: int | None):
    x, y = net.x.repeat(8, 1, 1, 1)[:ROWS], net.y.repeat(8)[:ROWS]
    x[6:] = (x[6:] + 0.05 * torch.rand(len(x) - 6, 1, 1, 1, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    return make_problem(x, y, budget=budget)


def found(attack, net, question, captured: bool, frames: list[Noted] | None = None):
    """What a search leaves, with steps taken one by one or in frames, and the frames of each phase."""
    frames = frames or [Noted(phase) for phase in attack.phases()]

    def begin(number, oracle, before):
        phase = attack.phases()[number]
        state = begun(phase, oracle, before)
        return Captured(phase, oracle, frames[number], state) if captured else Eager(phase, oracle, state)

    with torch.no_grad():
        return search(attack, Oracle(net, question), begin, True, None, lambda _: None).tally, frames


@pytest.fixture(autouse=True)
def no_graphs(monkeypatch):
    monkeypatch.setattr(Frame, "_capture", lambda frame, pool: setattr(frame, "graph", Retaken(frame)))


@pytest.mark.parametrize("name", CAPTURABLE)
def test_frames_take_the_same_steps(name):
    attack, net = small(name), TinyNet("conv")
    question = problem(net, how(attack).get("budget"))
    (one, _), (two, _) = (found(attack, net, question, captured) for captured in (False, True))
    for field in ("counts", "points", "forwards", "backwards", "step_found", "broken", "unstarted"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field


@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap", "spgd-unprojected"])
def test_rows_that_are_left_move_to_smaller_frames(name):
    attack, net = small(name), TinyNet("conv")
    if name != "spgd-unprojected":
        attack = sz.get(name, steps=150)
    question = problem(net, 5)
    one, _ = found(attack, net, question, captured=False)
    two, frames = found(attack, net, question, captured=True)
    assert torch.equal(one.counts, two.counts)
    assert torch.equal(one.forwards, two.forwards)
    assert any(len(set(noted.sizes)) > 1 for noted in frames), [noted.sizes for noted in frames]


@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap", "sparse-rs"])
def test_the_next_batch_uses_them_again(name, monkeypatch):
    attack, net = small(name), TinyNet("conv")
    question = problem(net, how(attack).get("budget"))
    _, frames = found(attack, net, question, captured=True)
    monkeypatch.setattr(Frame, "record", lambda *_: pytest.fail("there is a frame for so many rows"))
    fewer = question.take(torch.arange(10, 35))
    one, _ = found(attack, net, fewer, captured=False)
    two, _ = found(attack, net, fewer, captured=True, frames=frames)
    for field in ("counts", "points", "forwards", "backwards", "step_found"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field


@pytest.mark.parametrize("turns", [(5,), (1, 4)])
def test_steps_of_a_recording_count_where_most_rows_leave_at_once(turns):
    attack, net = sz.get("sigma-zero", steps=20), TinyNet("conv")
    oracle = Oracle(net, problem(net, None))
    with torch.no_grad():
        stepper = Captured(attack, oracle, Frames(attack, ROWS, fuse=False, pool=None), attack.init(oracle))
        stepper.take(torch.arange(ROWS) < 10)
        for steps in turns:
            stepper.go(steps)
    assert int(stepper.oracle.iteration) == 5
    assert int(stepper.tally.backwards.max()) == 5


def test_a_frame_recorded_for_one_row_takes_the_box_of_others():
    attack, net = sz.get("sigma-zero", steps=20), TinyNet("conv")
    x, y = net.x.repeat(2, 1, 1, 1), net.y.repeat(2)
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    question, frames = make_problem(x, y, mask=mask), Frames(attack, ROWS, fuse=False, pool=None)
    for rows in (torch.arange(1), torch.arange(1, 6)):
        part = question.take(rows)
        oracle = Oracle(net, part)
        with torch.no_grad():
            frame, _ = frames.hold(oracle, attack.init(oracle))
        for name in ("lower", "upper", "free"):
            assert torch.equal(getattr(frame.oracle.problem, name)[: len(rows)], getattr(part, name)), name
