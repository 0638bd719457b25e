"""The search loses nothing: what it says is proved was asked about, and what was proved stays so."""

import math
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import sigmazero as sz
from sigmazero.certifier import _kernels, fused, leaves, search
from sigmazero.certifier.bounds import Bounder, Effort
from sigmazero.certifier.graph import trace
from sigmazero.certifier.inquiry import Inquiry
from sigmazero.certifier.leaves import Boxes
from sigmazero.certifier.search import Search, Spending
from sigmazero.certifier.tactics import Tactics
from sigmazero.certifier.tasks import Tasks


def asked(seed: int, features: int = 5, rows: int = 3) -> Inquiry:
    """A small network, some inputs, and a box of its own for each feature; one feature may not change."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 3)).requires_grad_(False).eval()
    x = torch.rand(rows, features)
    low, high = x - 0.5 * torch.rand(features), x + 0.5 * torch.rand(features)
    low[:, 1] = high[:, 1] = x[:, 1]
    return Inquiry(model, Bounder(trace(model, x)), x, model(x).argmax(1), low, high)


class Covered(Search):
    """Keeps what was proved: for each input and set of sites, how much of the box of values."""

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self.parts: dict[tuple[int, frozenset[int]], float] = {}
        self.boxes = 0

    def _proved(self, tasks: Any, at: int, ask: search.Ask) -> torch.Tensor:
        good = super()._proved(tasks, at, ask)
        if isinstance(tasks, Tasks) and bool(good.any()):
            self.keep(tasks.take(good))
        return good

    def _boxed(self, boxes: Boxes, effort: Effort) -> torch.Tensor:
        good = super()._boxed(boxes, effort)
        if bool(good.any()):
            self.keep(boxes.take(good))
        return good

    def _ask(self, tasks: Tasks, effort: Effort) -> torch.Tensor:
        """Nothing is proved of the first site, so that its values are halved."""
        return super()._ask(tasks, effort) & (tasks.begin > 0).all(1)

    def keep(self, some: Tasks | Boxes) -> None:
        """Take in what was proved."""
        if isinstance(some, Boxes):
            self.boxes += len(some)
            whole = leaves.whole_boxes(self.inquiry, some.rows, some.sites)
            moves = whole.high > whole.low
            share = torch.where(moves, (some.high - some.low) / (whole.high - whole.low), 1.0).flatten(1).prod(1)
            for row, sites, part in zip(some.rows.tolist(), some.sites.tolist(), share.tolist(), strict=True):
                self.add(row, sites, part)
            return
        for row, ranges in zip(some.rows.tolist(), some.sites(self.inquiry.order).tolist(), strict=True):
            for sites in combinations({site for places in ranges for site in places if site >= 0}, self.t):
                most = [sum(site in places for site in sites) <= ranges.count(places) for places in ranges]
                if all(most):
                    self.add(row, sites, 1.0)

    def add(self, row: int, sites: Any, part: float) -> None:
        """Some of the values of a set of sites are proved."""
        key = row, frozenset(sites)
        self.parts[key] = self.parts.get(key, 0.0) + part


@pytest.mark.parametrize("t", [1, 2, 3])
def test_what_is_proved_was_asked_about(t, monkeypatch):
    """Every set of t sites, with all its values, and none twice; also where every input waits for the others."""
    monkeypatch.setattr(search, "GIVEN", 1e-9)
    proved = valued = 0
    for seed in range(8):
        inquiry = asked(seed)
        tally = Spending.new(inquiry)
        run = Covered(inquiry, tally, t, batch=16)
        for row in run.run(torch.arange(3)).tolist():
            proved += 1
            for sites in combinations(range(5), t):
                part = run.parts[row, frozenset(sites)]
                assert part == pytest.approx(1.0, abs=1e-6)
            valued += run.boxes > 0
    assert proved > 3
    assert valued > 3


def test_what_is_proved_when_time_is_over_stays_proved():
    """The end comes when nothing of the first input is left."""
    inquiry = asked(0)
    tactics = Tactics(1)
    tactics.note(3, Effort.INTERVALS, 10, 10, 1.0)
    run = Search(inquiry, Spending.new(inquiry), 1, batch=16, tactics=tactics)

    def ask(tasks: Tasks, effort: Effort) -> torch.Tensor:
        if not bool((tasks.rows == 0).any()):
            run.end = -math.inf
        return tasks.rows == 0

    run._ask = ask
    assert run.run(torch.arange(3)).tolist() == [0]
    assert run.tally.open.tolist() == [False, True, True]


def test_a_witness_is_one_point():
    """Of several that are met at once, and not some values of each."""
    inquiry = asked(0)
    tally = Spending.new(inquiry)
    points = torch.arange(20.0).view(4, 5)
    tally.meet(points, torch.tensor([2, 0, 2, 0]))
    assert tally.found.tolist() == [True, False, True]
    assert torch.equal(tally.witness[[2, 0]], points[:2])


def test_the_strongest_bound_has_the_last_word(monkeypatch):
    """Whatever tactics leave out, a box that cannot be halved is not given up before it was tried."""
    inquiry = asked(0)
    monkeypatch.setattr(Tactics, "choose", lambda self, at: ())
    found = sz.certify(inquiry.model, inquiry.x, inquiry.y, mask=torch.zeros(5, dtype=torch.bool), attack=None)
    assert found.status == ["proved"] * 3


def test_a_box_without_a_number_between_its_ends_is_not_halved():
    """It would be a half of itself, for ever."""
    inquiry = asked(0)
    low = torch.ones(1, 1, 1, dtype=torch.float64)
    box = Boxes(torch.tensor([0]), torch.tensor([[0]]), low, low + 2.0**-52)
    ends = torch.ones_like(inquiry.x.double())
    narrow = Inquiry(inquiry.model, inquiry.bounder, ends, inquiry.y, ends, ends + 2.0**-52)
    halves, left = leaves.halved(narrow, box)
    assert (len(halves), len(left)) == (0, 1)


def test_where_memory_runs_out_batches_become_smaller(monkeypatch, caplog):
    inquiry = asked(0, rows=12)
    right, ids = Bounder.margins, torch.arange(12)

    def narrow(self, clean, rows, labels, region, effort):
        if len(rows) > 9:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(self, clean, rows, labels, region, effort)

    found = []
    for margins in (right, narrow):
        tactics = Tactics(2)
        tactics.note(3, Effort.INTERVALS, 1000, 999, 1.0)  # so that the first batch, of all inputs, is tried
        monkeypatch.setattr(Bounder, "margins", margins)
        found.append(Search(inquiry, Spending.new(inquiry), 2, batch=16, tactics=tactics).run(ids).tolist())
    assert found[0] == found[1]
    assert len(found[0])
    assert "batches have 6 tasks" in caplog.text


def test_where_memory_runs_out_at_the_first_tries_fewer_are_tried(monkeypatch, caplog):
    """Four tasks for each 64 of a batch tell what a level is worth: 12, where 9 fit."""
    inquiry, right, ids = asked(0), Bounder.margins, torch.arange(3)

    def narrow(self, clean, rows, labels, region, effort):
        if len(rows) > 9:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(self, clean, rows, labels, region, effort)

    wanted = Search(inquiry, Spending.new(inquiry), 2, batch=200).run(ids).tolist()
    monkeypatch.setattr(Bounder, "margins", narrow)
    assert Search(inquiry, Spending.new(inquiry), 2, batch=200).run(ids).tolist() == wanted
    assert "batches have 6 tasks" in caplog.text


def test_kernels_are_built_after_some_work_alone(monkeypatch):
    device: Any = SimpleNamespace(is_cuda=True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(_kernels, "supports", lambda a: True)
    for patience, wanted in ((math.inf, None), (0.0, _kernels)):
        monkeypatch.setattr(fused, "PATIENCE", patience)
        fused._begun.cache_clear()
        assert fused.kernels(device) is wanted
        assert fused.kernels(torch.zeros(1)) is None
