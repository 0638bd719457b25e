"""A replayed step is the step: captured and compacted runs against plain ones."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.run import Hardware, Session
from sigmazero.run.captures import CapturedSteps, Captures
from sigmazero.run.search import Steps
from tests.helpers.attacks import how, longer
from tests.helpers.networks import TinyNet

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CAPTURABLE = sorted(name for name, attack in sz.ATTACKS.items() if attack.capturable)
PAYS = {steps: steps.pays for steps in (Steps, CapturedSteps)}  # whether rows that have their answer leave


@pytest.fixture(autouse=True)
def same_kernels(monkeypatch):
    """No rows leave, and the same shape has the same kernel: what is left to differ is the recording."""
    for steps in PAYS:
        monkeypatch.setattr(steps, "pays", lambda *_: False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)


def question(kind: str, budget: int | None = None, rows: int = 48):
    net = TinyNet(kind).cuda()
    x, y = net.x.repeat(8, 1, 1, 1).cuda(), net.y.repeat(8).cuda()
    x[6:] = (x[6:] + 0.05 * torch.rand(42, 1, 1, 1, generator=torch.Generator().manual_seed(0)).cuda()).clamp(0, 1)
    return net, make_problem(x[:rows], y[:rows], budget=budget)


def ask(name: str, kind: str, budget: int | None = None, **hardware):
    """A search in batches of exactly so many rows, without padding."""
    attack = longer(name)
    net, problem = question(kind, how(attack).get("budget", budget))
    return Session(attack, net, Hardware(**hardware), batch_size=len(problem)).run(problem)


def equal(one: sz.Result, two: sz.Result) -> None:
    for name in ("success", "l0", "forwards", "backwards", "step_found", "outcome", "x_adv"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("name", CAPTURABLE)
def test_captured_is_eager(name, kind):
    equal(ask(name, kind, capture=False), ask(name, kind, capture=True))


@pytest.mark.parametrize("name", CAPTURABLE)
def test_compaction_changes_nothing(name, monkeypatch):
    """Smaller recordings have other kernels, whose rounding a long search amplifies: this one is short."""
    attack = replace(longer(name), steps=max(1, 25 // max(1, longer(name).iterations // longer(name).steps)))
    net, problem = question("conv", how(attack).get("budget", 6))
    one = Session(attack, net, batch_size=48).run(problem)
    for steps, pays in PAYS.items():
        monkeypatch.setattr(steps, "pays", pays)
    two = Session(attack, net, batch_size=48).run(problem)
    for field in ("success", "l0", "forwards", "backwards", "step_found", "outcome"):
        assert torch.equal(getattr(one, field), getattr(two, field)), field
    assert (one.x_adv - two.x_adv).abs().max() < 1e-9


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("prepare", ["compile", "auto"])
def test_compiled_is_eager(prepare, monkeypatch):
    """Compiled kernels round otherwise, so the search is short."""
    monkeypatch.setattr("sigmazero.run.search_model.WORTH_COMPILING", 1)
    attack = sz.get("sigma-zero", steps=20)
    net, problem = question("rgb")
    one, two = (
        Session(attack, net, Hardware(prepare=how, capture=how != "none"), batch_size=48).run(problem)
        for how in ("none", prepare)
    )
    assert torch.equal(one.success, two.success)
    assert torch.equal(one.l0, two.l0)
    assert (one.x_adv - two.x_adv).abs().max() < 1e-9


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_coarse_searches_claim_nothing_false(precision):
    net = TinyNet("rgb", torch.float32).cuda()
    x, y = net.x.repeat(20, 1, 1, 1).cuda(), net.y.repeat(20).cuda()
    result = sz.get("sigma-zero", steps=100).run(net, x, y, hardware=sz.Hardware(precision=precision))
    exact = sz.get("sigma-zero", steps=100).run(net, x, y)
    assert torch.equal(net(result.x_adv).argmax(1) != y, result.success)
    assert torch.equal((result.x_adv != x).flatten(1).sum(1)[result.success], result.l0[result.success].long())
    assert result.asr() >= exact.asr()


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_later_phase_is_prepared_without_waiting(monkeypatch):
    begin, begun = Captures.begin, []

    def strict(self, oracle, before):
        torch.cuda.set_sync_debug_mode("error" if before is not None else "default")
        try:
            begun.append(begin(self, oracle, before))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return begun[-1]

    monkeypatch.setattr(Captures, "begin", strict)
    net = TinyNet("conv").cuda()
    sz.get("sigma-swap", queries=400).run(net, net.x.cuda(), net.y.cuda(), hardware=sz.Hardware(capture=True))
    assert [type(stepper) for stepper in begun] == [CapturedSteps, CapturedSteps]


def test_long_searches_by_scores_are_captured_on_images():
    net = TinyNet("conv").cuda()
    attack, hardware = sz.get("query-swap", queries=400), sz.Hardware(capture=True)
    result = attack.run(net, net.x.cuda(), net.y.cuda(), hardware=hardware)  # raises where a step cannot be captured
    eager = attack.run(net, net.x.cuda(), net.y.cuda(), hardware=sz.Hardware(capture=False))
    equal(result, eager)


@pytest.mark.parametrize("name", ["sigma-zero", "swap-search"])  # one asks nothing before its steps, the other does
def test_a_model_that_cannot_be_captured_is_attacked_eagerly(name, caplog):
    net = TinyNet("conv").cuda()

    def looks_at_values(x):
        return net(x) * (1.0 if float(x.detach().sum()) > -1 else 2.0)

    result = sz.get(name, steps=30).run(looks_at_values, net.x.cuda(), net.y.cuda())
    assert result.success.all()
    assert "could not be captured" in caplog.text
    eager = sz.get(name, steps=30).run(looks_at_values, net.x.cuda(), net.y.cuda(), hardware=sz.Hardware(capture=False))
    assert torch.equal(result.forwards, eager.forwards)
    assert torch.equal(result.backwards, eager.backwards)


def test_batches_and_problems_share_recordings():
    attack, (net, problem) = sz.get("sigma-zero", steps=40), question("conv")
    with Session(attack, net, batch_size=16) as session:
        whole, again = session.run(problem), session.run(problem)
        darker = session.run(make_problem(problem.x * 0.5, problem.y))
        assert session.prepared._pool.made == 1
        # Other boxes are scaled to [0, 1], which is one more thing that a step does, whatever their bounds.
        boxes = [(-0.5, 1.0), (0.0, 2.0)]
        scaled = [session.run(make_problem(problem.x, problem.y, bounds=bounds)) for bounds in boxes]
        assert session.prepared._pool.made == 2
    equal(whole, again)
    equal(darker, attack.run(net, problem.x * 0.5, problem.y, batch_size=16))
    for bounds, result in zip(boxes, scaled, strict=True):
        equal(result, attack.run(net, problem.x, problem.y, bounds=bounds, batch_size=16))


@pytest.mark.filterwarnings("ignore:out of memory")
def test_recordings_are_made_anew_after_memory_ran_out():
    attack, (net, problem) = sz.get("sigma-zero", steps=40), question("conv")
    wanted = Session(attack, net, batch_size=12).run(problem)
    asked = []

    def small_machine(x):
        asked.append(len(x))
        if len(x) > 12 and asked.count(len(x)) > 3:  # after the first recording was made
            raise torch.OutOfMemoryError("no room")
        return net(x)

    with Session(attack, small_machine, Hardware(capture=True), batch_size=24) as session:
        result = session.run(problem)
        assert session.size == 12
        assert session.prepared._pool.made == 1
    assert 24 in asked
    equal(wanted, result)


def test_two_threads_take_turns():
    attack, (net, problem) = sz.get("sigma-zero", steps=40), question("conv")
    other = TinyNet("conv").cuda()
    wanted = Session(attack, net, batch_size=16).run(problem)
    with ThreadPoolExecutor(4) as pool:
        jobs = [
            pool.submit(Session(attack, model, Hardware(capture=True), batch_size=16).run, problem)
            for model in (net, other, net, other)
        ]
        for job in jobs:
            equal(wanted, job.result())
