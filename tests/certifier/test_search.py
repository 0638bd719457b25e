"""The search loses nothing: what it says is proved was asked about, and what was proved stays so."""

import itertools
import math
import time
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import nn

from sigmazero.certifier import relaxation, search
from sigmazero.certifier.bounds import NetworkBounds, Strength
from sigmazero.certifier.graph import trace
from sigmazero.certifier.search import SITES, BranchAndBound, Progress, Size, Strategy
from sigmazero.certifier.subproblems import Question, SiteGroups, ValueBoxes


def question(seed: int, features: int = 5, rows: int = 3) -> Question:
    """A small network, some inputs, and a box of its own for each feature; one feature may not change."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, 8), nn.ReLU(), nn.Linear(8, 3)).requires_grad_(False).eval()
    x = torch.rand(rows, features)
    low, high = x - 0.5 * torch.rand(features), x + 0.5 * torch.rand(features)
    low[:, 1] = high[:, 1] = x[:, 1]
    return Question(model, NetworkBounds(trace(model, x)), x, model(x).argmax(1), low, high)


def proved_by(search: BranchAndBound, rows: torch.Tensor) -> list[int]:
    """The rows that a search proves in the end; before that it reports no others."""
    *before, last = (each.tolist() for each in search.run(rows))
    assert all(set(each) <= set(last) for each in before)
    return last


class Covered(BranchAndBound):
    """Notes what was proved: for each input and set of sites, how much of the box of values."""

    def __init__(self, *given: Any, **how: Any) -> None:
        super().__init__(*given, **how)
        self.parts: dict[tuple[int, frozenset[int]], float] = {}
        self.boxes = 0

    def _proved(self, some: Any, size: Size) -> torch.Tensor:
        good = super()._proved(some, size)
        if isinstance(some, SiteGroups) and bool(good.any()):
            self.note(some.take(good))
        return good

    def _bounded(self, some: Any, strength: Strength) -> torch.Tensor:
        """Prove nothing about the first site, so that its values are halved."""
        good = super()._bounded(some, strength)
        if isinstance(some, SiteGroups):
            return good & (some.begin > 0).all(1)
        if bool(good.any()):
            self.note(some.take(good))
        return good

    def note(self, some: SiteGroups | ValueBoxes) -> None:
        """Note what was proved."""
        if isinstance(some, ValueBoxes):
            self.boxes += len(some)
            whole = ValueBoxes.whole(self.question, some.rows, some.sites)
            moves = whole.high > whole.low
            share = torch.where(moves, (some.high - some.low) / (whole.high - whole.low), 1.0).flatten(1).prod(1)
            for row, sites, part in zip(some.rows.tolist(), some.sites.tolist(), share.tolist(), strict=True):
                self.add(row, sites, part)
            return
        for row, ranges in zip(some.rows.tolist(), some.sites(self.question.order).tolist(), strict=True):
            for sites in combinations({site for places in ranges for site in places if site >= 0}, self.t):
                most = [sum(site in places for site in sites) <= ranges.count(places) for places in ranges]
                if all(most):
                    self.add(row, sites, 1.0)

    def add(self, row: int, sites: Any, part: float) -> None:
        """Add some of the values of a set of sites."""
        key = row, frozenset(sites)
        self.parts[key] = self.parts.get(key, 0.0) + part


@pytest.mark.parametrize("t", [1, 2, 3])
def test_what_is_proved_was_asked_about(t, monkeypatch):
    """Every set of t sites, with all its values, and none twice; also where every input waits for the others."""
    monkeypatch.setattr(search, "PATIENCE", 1e-9)
    proved = valued = 0
    for seed in range(8):
        asked = question(seed)
        progress = Progress(asked)
        run = Covered(asked, progress, Strategy(t), batch=16)
        for row in proved_by(run, torch.arange(3)):
            proved += 1
            for sites in combinations(range(5), t):
                part = run.parts[row, frozenset(sites)]
                assert part == pytest.approx(1.0, abs=1e-6)
            valued += run.boxes > 0
    assert proved > 3
    assert valued > 3


def test_what_is_proved_when_time_is_over_stays_proved():
    """The end comes when nothing of the first input is left."""
    asked = question(0)
    strategy = Strategy(1)
    strategy.note(Size(SITES, 3), Strength.INTERVALS, 10, 10, 1.0)
    run = BranchAndBound(asked, Progress(asked), strategy, batch=16)

    def bounded(some: Any, strength: Strength) -> torch.Tensor:
        if not bool((some.rows == 0).any()):
            run.end = -math.inf
        return some.rows == 0

    run._bounded = bounded
    assert proved_by(run, torch.arange(3)) == [0]
    assert run.progress.open.tolist() == [False, True, True]


def test_a_box_without_a_number_between_its_ends_is_not_halved():
    """It would be a half of itself, for ever."""
    asked = question(0)
    low = torch.ones(1, 1, 1, dtype=torch.float64)
    box = ValueBoxes(torch.tensor([0]), torch.tensor([[0]]), low, low + 2.0**-52)
    ends = torch.ones_like(asked.x.double())
    narrow = Question(asked.model, asked.bounds, ends, asked.y, ends, ends + 2.0**-52)
    halves, left = box.split(narrow)
    assert (len(halves), len(left)) == (0, 1)


def test_where_memory_runs_out_batches_become_smaller(monkeypatch, caplog):
    asked = question(0, rows=12)
    right, ids = NetworkBounds.margins, torch.arange(12)

    def narrow(self, clean, region, labels, strength):
        if len(labels) > 9:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return right(self, clean, region, labels, strength)

    found = []
    for margins in (right, narrow):
        strategy = Strategy(2)
        strategy.note(
            Size(SITES, 3), Strength.INTERVALS, 1000, 999, 1.0
        )  # so that the first batch, of all inputs, is tried
        monkeypatch.setattr(NetworkBounds, "margins", margins)
        found.append(proved_by(BranchAndBound(asked, Progress(asked), strategy, batch=16), ids))
    assert found[0] == found[1]
    assert len(found[0])
    assert "batches have 6 subproblems" in caplog.text


def test_a_report_between_two_batches_holds_only_what_is_proved(monkeypatch):
    asked, rows = question(3, rows=12), torch.arange(12)
    expected = proved_by(BranchAndBound(asked, Progress(asked), Strategy(1), batch=1), rows)
    monkeypatch.setattr(search, "REPORT", 0.0)
    reports = [each.tolist() for each in BranchAndBound(asked, Progress(asked), Strategy(1), batch=1).run(rows)]
    assert reports[-1] == expected
    assert any(0 < len(each) < len(expected) for each in reports)
    assert all(set(before) <= set(after) for before, after in itertools.pairwise(reports))


def test_a_slow_step_ends_when_time_is_over(monkeypatch):
    """Not after the batch: the clock is read inside it."""
    asked = question(0)
    right = relaxation.relax

    def slow(*given):
        for _ in range(50):
            time.sleep(0.01)
            asked.bounds.tick()
        return right(*given)

    monkeypatch.setattr(relaxation, "relax", slow)
    progress = Progress(asked)
    run = BranchAndBound(asked, progress, Strategy(2), batch=16, limit=0.03)
    assert proved_by(run, torch.arange(3)) == []
    assert progress.open.all()
    assert float(progress.boxes.sum()) == 0
