"""A replayed step is the step: captured, fused and compacted runs against plain ones."""

import pytest
import torch

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.run import session as drive
from sigmazero.run.graphs import Captured
from sigmazero.run.hardware import Engine, Steppers
from tests.attacks.test_attacks import how, small
from tests.networks import TinyNet

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
CAPTURABLE = sorted(name for name, attack in sz.ATTACKS.items() if attack.capturable)


def ask(name: str, kind: str, **engine):
    net, attack = TinyNet(kind).cuda(), small(name)
    compact = engine.pop("compact", True)
    x, y = net.x.repeat(8, 1, 1, 1).cuda(), net.y.repeat(8).cuda()
    x[6:] = (x[6:] + 0.05 * torch.rand(42, 1, 1, 1, generator=torch.Generator().manual_seed(0)).cuda()).clamp(0, 1)
    problem = make_problem(x, y, budget=how(attack).get("budget", engine.pop("budget", None)))
    return drive.run(attack, net, problem, compact=compact, engine=Engine(**engine))


def alike(one: sz.Result, two: sz.Result) -> None:
    """Equal up to what rounding can do to a few samples of a chaotic search."""
    assert torch.equal(one.forwards - one.success.long(), two.forwards - two.success.long()) or (
        (one.forwards - two.forwards).abs().float().mean() < 4
    )
    assert (one.success != two.success).sum() <= 1
    both = one.success & two.success
    assert ((one.l0 - two.l0)[both].abs() > 0).float().mean() <= 0.1
    near = (one.x_adv - two.x_adv).flatten(1).abs().amax(1) < 1e-6
    assert near[both].float().mean() >= 0.85


@pytest.mark.parametrize("kind", ["conv", "rgb"])
@pytest.mark.parametrize("name", CAPTURABLE)
def test_captured_is_eager(name, kind):
    alike(ask(name, kind, capture=False), ask(name, kind, capture=True))


@pytest.mark.parametrize("name", CAPTURABLE)
def test_compaction_changes_nothing(name):
    alike(ask(name, "conv", capture=True, budget=6), ask(name, "conv", capture=True, budget=6, compact=False))


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.parametrize("name", ["sigma-zero"])
def test_fused_is_eager(name):
    alike(ask(name, "rgb", capture=False), ask(name, "rgb", capture=True, fuse=True))


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_coarse_searches_claim_nothing_false(precision):
    net = TinyNet("rgb", torch.float32).cuda()
    x, y = net.x.repeat(20, 1, 1, 1).cuda(), net.y.repeat(20).cuda()
    result = sz.get("sigma-zero", steps=100).run(net, x, y, precision=precision)
    exact = sz.get("sigma-zero", steps=100).run(net, x, y)
    assert torch.equal(net(result.x_adv).argmax(1) != y, result.success)
    assert torch.equal((result.x_adv != x).flatten(1).sum(1)[result.success], result.l0[result.success].long())
    assert result.asr() >= exact.asr()


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_later_phase_is_prepared_without_waiting(monkeypatch):
    begin, begun = Steppers.begin, []

    def strict(self, oracle, size, before=None):
        torch.cuda.set_sync_debug_mode("error" if before is not None else "default")
        try:
            begun.append(begin(self, oracle, size, before))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        return begun[-1]

    monkeypatch.setattr(Steppers, "begin", strict)
    net = TinyNet("conv").cuda()
    sz.get("sigma-swap", queries=120).run(net, net.x.cuda(), net.y.cuda(), capture=True)
    assert [type(stepper) for stepper in begun] == [Captured, Captured]


@pytest.mark.parametrize("name", ["sigma-zero", "swap-search"])  # one asks nothing before its steps, the other does
def test_a_model_that_cannot_be_captured_is_attacked_eagerly(name, caplog):
    net = TinyNet("conv").cuda()

    def looks_at_values(x):
        return net(x) * (1.0 if float(x.detach().sum()) > -1 else 2.0)

    result = sz.get(name, steps=30).run(looks_at_values, net.x.cuda(), net.y.cuda())
    assert result.success.all()
    assert "could not be captured" in caplog.text
    eager = sz.get(name, steps=30).run(looks_at_values, net.x.cuda(), net.y.cuda(), capture=False)
    assert torch.equal(result.forwards, eager.forwards)
    assert torch.equal(result.backwards, eager.backwards)


@pytest.mark.filterwarnings("ignore:out of memory")  # giving way is allowed, going beyond is not
def test_memory_limit_holds():
    net = TinyNet("conv", torch.float32).cuda()
    x, y = net.x.repeat(2000, 1, 1, 1).cuda(), net.y.repeat(2000).cuda()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    # Each stream of a recording has a workspace of 32 MiB for its matrix products on recent devices.
    limit = torch.cuda.memory_reserved() + 160 * 2**20
    result = sz.get("sigma-zero", steps=30).run(net, x, y, max_memory=limit)
    assert result.success.any()
    assert torch.cuda.max_memory_reserved() <= limit
