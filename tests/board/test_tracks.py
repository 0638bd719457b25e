"""What makes figures doubtful keeps a model off the leaderboard."""

import numpy as np
import pytest

import sigmazero as sz
from sigmazero.auto import CASCADES, Cascade
from sigmazero.bench.plan import DataSpec
from sigmazero.board import add
from sigmazero.board.folder import BoardError, new_board
from sigmazero.store import Store
from tests.board.conftest import card

NOISY = """
class Noisy(Net):
    def forward(self, x):
        return super().forward(x) + 0.3 * torch.randn(len(x), 4)
def noisy(): return Noisy(0)
"""


def test_a_random_model_is_refused(made):
    net = made.path.parent / "net.py"
    file = card(made.path.parent, name='"other"', model='"net.py:noisy"', boards='["small"]')
    net.write_text(net.read_text() + NOISY)
    with pytest.raises(BoardError, match="SZ003"):
        add(made.board, file, made.loader, by="Ada", version=None)
    assert made.board.slugs == ["mine"]


def test_what_the_cascade_finds_against_its_own_figures_is_refused_too(made, monkeypatch):
    # A search of one step with gradients, and a blind one that finds more: gradients are beaten.
    members = (sz.get("sigma-zero", steps=1), sz.get("sparse-rs-min", steps=60))
    monkeypatch.setitem(CASCADES, "quick", {"minimum": Cascade("quick", 1, members)})
    file = card(made.path.parent, name='"other"', boards='["small"]')
    with pytest.raises(BoardError, match=r"SZ014.*allow SZ014"):
        add(made.board, file, made.loader, by="Ada", version="quick")
    assert made.board.slugs == ["mine"]
    add(made.board, file, made.loader, by="Ada", version="quick", allow=["SZ014"])
    with Store(made.board.entry("other") / "points.db") as store:
        assert "SZ014" in [each["code"] for found in store.findings().values() for each in found]


def test_an_accuracy_far_below_the_claim_is_a_finding(made):
    half = made.labels.clone()
    half[::2] = (half[::2] + 1) % 4
    np.savez(made.path.parent / "half.npz", images=made.images.numpy(), labels=half.numpy())
    new_board(made.path, "half", DataSpec("half", str(made.path.parent / "half.npz")), "feature", (1,), None)
    claims = card(made.path.parent, name='"claims"', boards='["half"]', accuracy="99.0")
    with pytest.raises(BoardError, match="SZ030"):
        add(made.board, claims, made.loader, by="Ada", version=None)
