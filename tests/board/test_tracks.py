"""Random models stand on a track of their own, and what makes figures doubtful keeps a model off the leaderboard."""

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.auto import VERSIONS
from sigmazero.auto.versions import Version
from sigmazero.bench.plan import DataSpec
from sigmazero.board import add, write_board
from sigmazero.board.folder import BoardError, new_board
from sigmazero.board.pages import read_boards
from tests.board.conftest import card
from tests.board.test_board import lines

NOISY = """
class Noisy(Net):
    def forward(self, x):
        return super().forward(x) + 0.3 * torch.randn(len(x), 4)
def noisy(): return Noisy(0)
class Strays(Net):
    def forward(self, x):
        import numpy
        return super().forward(x) + torch.from_numpy(numpy.random.randn(len(x), 4)).float()
def strays(): return Strays(0)
"""


def test_a_random_model_has_a_track_of_its_own_and_is_replayed_by_vote(made, monkeypatch):
    members = (sz.get("sigma-zero", steps=15),)
    monkeypatch.setitem(VERSIONS, "rand", Version("rand", 1, members, members, draws=2))
    net = made.path.parent / "net.py"
    file = card(made.path.parent, name='"noisy"', model='"net.py:noisy"', boards='["small"]', random="true")
    net.write_text(net.read_text() + NOISY)
    (done,) = add(made.board, file, made.loader, by="Ada", allow=["SZ014"])
    assert done.lowered
    assert done.refused < len(done.lowered)
    assert [(board.anchor, board.track) for board in read_boards(made.board)] == [
        *(("small", "main"), ("small-random", "random"), ("small-pixels", "main"))
    ]
    torch.manual_seed(5)  # nothing depends on the state outside
    assert lines(made) == []
    write_board(made.board, made.path / "site")
    assert "These models are random" in (made.path / "site/index.html").read_text()
    with pytest.raises(BoardError, match="random is otherwise in"):
        add(made.board, _not_random(file), made.loader, by="Ada", version=None)


def _not_random(file):
    file.write_text(file.read_text().replace("random = true", "random = false"))
    return file


@pytest.mark.parametrize(
    ("build", "said"),
    [("build", "says random = true and answers the same"), ("strays", "draws from elsewhere than torch's generators")],
)
def test_who_says_random_must_be_so_in_a_way_that_can_be_replayed(made, build, said):
    net = made.path.parent / "net.py"
    file = card(made.path.parent, name='"other"', model=f'"net.py:{build}"', boards='["small"]', random="true")
    net.write_text(net.read_text() + NOISY)
    with pytest.raises(BoardError, match=said):
        add(made.board, file, made.loader, by="Ada", version=None)
    assert made.board.slugs == ["mine"]


def test_what_the_cascade_finds_against_its_own_figures_is_refused_too(made, monkeypatch):
    # A search of one step with gradients, and a blind one that finds more: gradients are beaten.
    members = (sz.get("sigma-zero", steps=1), sz.get("sparse-rs-min", steps=60))
    monkeypatch.setitem(VERSIONS, "quick", Version("quick", 4, members, members))
    file = card(made.path.parent, name='"other"', boards='["small"]')
    with pytest.raises(BoardError, match=r"SZ014.*allow SZ014"):
        add(made.board, file, made.loader, by="Ada", version="quick")
    assert made.board.slugs == ["mine"]
    add(made.board, file, made.loader, by="Ada", version="quick", allow=["SZ014"])
    shown = next(s for s in read_boards(made.board)[0].scores if s.card.name == "other")
    assert "SZ014" in [each["code"] for each in shown.card.findings]


def test_an_accuracy_far_below_the_claim_is_a_finding(made):
    half = made.labels.clone()
    half[::2] = (half[::2] + 1) % 4
    np.savez(made.path.parent / "half.npz", images=made.images.numpy(), labels=half.numpy())
    new_board(made.path, "half", DataSpec("half", str(made.path.parent / "half.npz")), "feature", (1,), None)
    claims = card(made.path.parent, name='"claims"', boards='["half"]', accuracy="99.0")
    with pytest.raises(BoardError, match="SZ030"):
        add(made.board, claims, made.loader, by="Ada", version=None)
