"""Frames without a device: padding, looks now and then, smaller frames for fewer rows, a rehearsal that counts nothing.

Where a captured step would be replayed the steps are taken instead; what a graph itself may get wrong tests/gpu tests.
"""

import pytest
import torch

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.core.oracle import Oracle
from sigmazero.run.captures import CapturedSteps, Captures, Frame
from sigmazero.run.search import Phase, search
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


def captures_of(attack) -> Captures:
    return Captures(attack, ROWS, Deviceless())


class Noted(Captures):
    """Notes how large each frame was that held rows."""

    def __init__(self, attack) -> None:
        super().__init__(attack, ROWS, Deviceless())
        self.sizes: list[int] = []

    def hold(self, oracle, state):
        frame = super().hold(oracle, state)
        self.sizes.append(frame.rows)
        return frame


def problem(net: TinyNet, budget: int | None):
    x, y = net.x.repeat(8, 1, 1, 1)[:ROWS], net.y.repeat(8)[:ROWS]
    x[6:] = (x[6:] + 0.05 * torch.rand(len(x) - 6, 1, 1, 1, generator=torch.Generator().manual_seed(0))).clamp(0, 1)
    return make_problem(x, y, budget=budget)


def found(attack, net, question, captured: bool, frames: list[Noted] | None = None):
    """What a search leaves, with steps taken one by one or in frames, and the frames of each phase."""
    frames = frames or [Noted(phase) for phase in attack.phases()]
    phases = [noted if captured else Phase(noted.attack) for noted in frames]
    with torch.no_grad():
        return search(phases, Oracle(net, question), True, lambda _: None).incumbents, frames


@pytest.fixture(autouse=True)
def no_graphs(monkeypatch):
    monkeypatch.setattr(Frame, "_graph", lambda frame: setattr(frame, "graph", Retaken(frame)))


@pytest.mark.parametrize("name", CAPTURABLE)
def test_frames_take_the_same_steps(name):
    attack, net = longer(name), TinyNet("conv")
    question = problem(net, how(attack).get("budget"))
    (one, _), (two, _) = (found(attack, net, question, captured) for captured in (False, True))
    for field in ("counts", "points", "forwards", "backwards", "step_found", "broken", "unstarted"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field


@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap", "spgd-unprojected"])
def test_rows_that_are_left_move_to_smaller_frames(name):
    attack, net = sz.get(name, steps=150), TinyNet("conv")
    question = problem(net, 5)
    one, _ = found(attack, net, question, captured=False)
    two, frames = found(attack, net, question, captured=True)
    assert torch.equal(one.counts, two.counts)
    assert torch.equal(one.forwards, two.forwards)
    assert any(len(set(noted.sizes)) > 1 for noted in frames), [noted.sizes for noted in frames]


@pytest.mark.parametrize("name", ["sigma-zero", "sigma-swap", "sparse-rs"])
def test_the_next_batch_uses_them_again(name, monkeypatch):
    attack, net = sz.get(name, steps=100), TinyNet("conv")
    question = problem(net, how(attack).get("budget"))
    _, frames = found(attack, net, question, captured=True)
    monkeypatch.setattr(Frame, "capture", lambda *_, **__: pytest.fail("there is a frame for so many rows"))
    fewer = question.take(torch.arange(10, 35))
    one, _ = found(attack, net, fewer, captured=False)
    two, _ = found(attack, net, fewer, captured=True, frames=frames)
    for field in ("counts", "points", "forwards", "backwards", "step_found"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field


@pytest.mark.parametrize("turns", [(5,), (1, 4)])
def test_a_rehearsal_counts_nothing_where_most_rows_leave_at_once(turns):
    attack, net = sz.get("sigma-zero", steps=20), TinyNet("conv")
    oracle = Oracle(net, problem(net, None))
    with torch.no_grad():
        taken = CapturedSteps(captures_of(attack), oracle, attack.init(oracle)).take(torch.arange(ROWS) < 10)
        for steps in turns:
            taken.go(steps)
    assert int(taken.oracle.iteration) == 5
    assert int(taken.incumbents.backwards.max()) == 5


def test_a_frame_recorded_for_one_row_takes_the_box_of_others():
    attack, net = sz.get("sigma-zero", steps=20), TinyNet("conv")
    x, y = net.x.repeat(2, 1, 1, 1), net.y.repeat(2)
    mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.7
    question, frames = make_problem(x, y, mask=mask), captures_of(attack)
    for rows in (torch.arange(1), torch.arange(1, 6)):
        part = question.take(rows)
        oracle = Oracle(net, part)
        with torch.no_grad():
            frame = frames.hold(oracle, attack.init(oracle))
        for name in ("lower", "upper", "free"):
            assert torch.equal(getattr(frame.oracle.domain, name)[: len(rows)], getattr(part.domain, name)), name


def test_a_frame_takes_the_box_of_another_problem():
    """One box for all rows is a tensor of the frame's own: neither problem's is written to."""
    attack, net = sz.get("sigma-zero", steps=20), TinyNet("conv")
    frames = captures_of(attack)
    for bounds in ((0.0, 1.0), (-1.0, 2.0)):
        question = make_problem(net.x, net.y, bounds=bounds)
        oracle = Oracle(net, question)
        with torch.no_grad():
            frame = frames.hold(oracle, attack.init(oracle))
        held = frame.oracle.domain
        assert (float(held.user_lower), float(held.user_upper)) == bounds
        assert float(question.domain.user_lower) == bounds[0]
    assert held.user_lower is not question.domain.user_lower


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
    for field in ("counts", "points", "forwards", "backwards", "step_found"):
        assert torch.equal(getattr(wanted, field), getattr(got, field)), field
