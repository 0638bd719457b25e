"""What outlives a batch is made once, every row comes once, and between batches all is the caller's."""

import copy
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.core.inputs import make_problem
from sigmazero.core.result import Outcome
from sigmazero.run import Hardware, Session
from sigmazero.run.memory import remembered
from tests.helpers.networks import TinyNet

ATTACK = sz.get("sigma-zero", steps=12)


def question(net: TinyNet, rows: int = 30, **options):
    x, y = net.x.repeat(6, 1, 1, 1)[:rows], net.y.repeat(6)[:rows].clone()
    y[3] = (y[3] + 1) % 3  # wrong from the start
    return make_problem(x, y, **options)


def test_every_row_comes_once_and_the_first_rows_first():
    net = TinyNet("conv").train()
    problem = question(net)
    with Session(ATTACK, net, batch_size=8) as session:
        parts = []
        for part in session.batches(problem):
            parts.append(part)
            assert net.training  # between batches the model is the caller's
            assert all(parameter.requires_grad for parameter in net.parameters())
            assert torch.is_grad_enabled()
        whole = session.run(problem)
    wrong = net(problem.x).argmax(1) != problem.y
    assert torch.equal(whole.outcome == Outcome.ALREADY, wrong)
    seen: list[int] = []
    for rows, result in parts:
        seen += rows.tolist()
        assert sorted(seen) == list(range(len(seen))), "figures of a part would be those of easy rows"
        assert int((result.outcome != Outcome.ALREADY).sum()) in (0, 8), "batches are full"
        assert torch.equal(result.x_adv, whole.x_adv[rows])
        assert torch.equal(result.forwards, whole.forwards[rows])
    assert len(seen) == 30
    assert [len(rows) for rows, _ in Session(ATTACK, net).batches(problem.take(torch.arange(0)))] == [0]


def test_a_run_that_goes_on_makes_the_batches_of_one_that_was_never_stopped():
    net, asked = TinyNet("conv"), []
    problem = question(net)
    whole = list(Session(ATTACK, net, batch_size=8).batches(problem))
    known = torch.zeros(30, dtype=torch.bool)
    known[whole[0][0]] = known[whole[1][0][:3]] = True

    def counted(x):
        asked.append(len(x))
        return net(x)

    ((rows, result), *_) = Session(ATTACK, counted, batch_size=8).batches(problem, known=known)
    assert torch.equal(result.x_adv[:8], whole[1][1].x_adv[:8])
    assert torch.equal(rows[:8], whole[1][0][:8])
    assert sum(asked) == 30 + 2 * 8 * 13  # every clean input, and of two batches 12 steps and a verification


def test_a_halved_batch_stays_halved():
    net, sizes = TinyNet("conv"), []

    def small_machine(x):
        sizes.append(len(x))
        if len(x) > 3:
            raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
        return net(x)

    with Session(ATTACK, small_machine, batch_size=12) as session:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            first = session.run(question(net, rows=12))
        assert [str(one.message)[-15:] for one in caught] == ["going on with 6", "going on with 3"]
        assert session.size == 3
        sizes.clear()
        second = session.run(question(net, rows=12))
    assert max(sizes) == 3
    assert torch.equal(first.x_adv, second.x_adv)


def test_rows_that_a_coarse_search_misjudged_come_last_and_count_both_searches():
    net = TinyNet("conv", torch.float32)
    x = (net.x[:1] + torch.tensor([0.0, 0.01, 0.02, 0.03])[:, None, None, None]).clamp(0, 1)  # all of one class
    problem = make_problem(x, net.y[:1].repeat(4))

    class Fickle(nn.Module):
        """Contradicts its copy, on which a coarse search runs, about changed inputs until a search runs on itself."""

        def __init__(self) -> None:
            super().__init__()
            self.net, self.searched = net, False

        def __deepcopy__(self, memo):
            return copy.deepcopy(self.net, memo)

        def forward(self, x):
            self.searched |= torch.is_grad_enabled()
            changed = ~(x[:, None] == problem.x).flatten(2).all(2).any(1, keepdim=True)
            return self.net(x) + 1000 * (changed & (not self.searched)) * nn.functional.one_hot(problem.y[:1], 5)

    parts = list(Session(ATTACK, Fickle(), Hardware(precision="bf16"), batch_size=2).batches(problem))
    assert sorted(torch.cat([rows for rows, _ in parts]).tolist()) == [0, 1, 2, 3]
    exact = Session(ATTACK, net).run(problem)
    rows, again = parts[-1]
    assert len(rows) == 4
    assert again.success.any()
    assert torch.equal(again.l0, exact.l0[rows])
    assert (again.backwards == 2 * exact.backwards[rows]).all()
    assert (again.forwards > 2 * exact.backwards[rows] + 2).all()  # two clean checks, in fp32 and in bf16


class Moody(nn.Module):
    """Right only in eval mode; notes whether it was ever asked in another."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 3)).double()
        self.asked_in_training = 0

    def forward(self, x):
        self.asked_in_training += self.training
        return self.body(x) * (-1 if self.training else 1)


@pytest.mark.parametrize("models", [1, 3])
def test_eight_threads_take_turns(models):
    """Modes and parameters are restored exactly, and every result is that of a run alone."""
    nets = [Moody(seed) for seed in range(models)]
    for net in nets:
        net.train()
        net.body[1].weight.requires_grad_(False)
    x = TinyNet("conv").x
    ys = [copy.deepcopy(net).eval()(x).argmax(1) for net in nets]
    wanted = [ATTACK.run(net, x, y, batch_size=2) for net, y in zip(nets, ys, strict=True)]
    needs = [[p.requires_grad for p in net.parameters()] for net in nets]
    for net in nets:
        net.asked_in_training = 0
    gate = threading.Barrier(8)

    def work(thread: int):
        gate.wait()
        k = thread % models
        return k, ATTACK.run(nets[k], x, ys[k], batch_size=2)

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    for k, result in results:
        assert torch.equal(result.x_adv, wanted[k].x_adv)
        assert torch.equal(result.forwards, wanted[k].forwards)
    for net, need in zip(nets, needs, strict=True):
        assert net.asked_in_training == 0
        assert all(part.training for part in net.modules())
        assert [p.requires_grad for p in net.parameters()] == need


def test_true_labels_given_as_targets_are_noticed():
    model = torch.nn.Linear(4, 3)
    x = torch.rand(5, 4, generator=torch.Generator().manual_seed(0))
    with pytest.warns(UserWarning, match="all targets equal the prediction"):
        sz.get("sigma-zero", steps=2).run(model, x, model(x).argmax(1), targeted=True)


def test_a_measured_batch_size_is_kept_while_the_model_lives_and_memory_is_as_free():
    measured: list[int] = []

    def measure() -> int:
        measured.append(64)
        return 64

    net, other = TinyNet("conv"), TinyNet("conv")
    for owner, free in ((net, 100), (net, 95), (net, 80), (other, 100), (lambda x: x, 100), (lambda x: x, 100)):
        assert remembered(owner, "question", free, measure) == 64
    assert len(measured) == 5  # only the second was known
    assert remembered(net, "another question", 100, lambda: 32) == 32
