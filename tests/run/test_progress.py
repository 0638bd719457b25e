"""A run on a terminal shows how far it is, how fast, and how long it will still take."""

import sys

import pytest
import torch
from rich.progress import Progress, TaskProgressColumn, TimeRemainingColumn

import sigmazero as sz

SEEN: list["Watched"] = []


class Watched(Progress):
    """Rich's bar, which says what it was told."""

    def __init__(self, *columns, **options):
        super().__init__(*columns, **options)
        self.moved: list[float] = []
        SEEN.append(self)

    def advance(self, task_id, advance=1):
        self.moved.append(advance)
        super().advance(task_id, advance)


@pytest.fixture
def terminal(monkeypatch):
    SEEN.clear()
    monkeypatch.setattr("rich.progress.Progress", Watched)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    return monkeypatch


def test_time_left_is_shown_and_the_bar_moves_within_a_batch(terminal):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3))
    x = torch.rand(6, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    sz.get("sigma-zero", steps=20).run(model, x, model(x).argmax(1), progress=True)
    (bar,) = SEEN
    kinds = {type(column) for column in bar.columns}
    assert {TimeRemainingColumn, TaskProgressColumn} <= kinds
    assert sum(bar.moved) == pytest.approx(6)
    assert len(bar.moved) > 2  # one batch, and more than its end is seen


def test_elsewhere_nothing_is_shown(terminal):
    terminal.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    model, x = torch.nn.Linear(6, 3), torch.rand(2, 6)
    sz.get("sigma-zero", steps=2).run(model, x, model(x).argmax(1), progress=True)
    assert not SEEN
