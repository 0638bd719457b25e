"""Bounds that are proved stand below the points of a leaderboard: kept, shown, proved again, and never crossed."""

import re
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sigmazero.bench.constraints import Allowed
from sigmazero.bench.identity import hash_weights
from sigmazero.bench.loader import EVERYTHING, Loader
from sigmazero.bench.plan import DataSpec, ModelSpec
from sigmazero.bench.proofs import proof_key
from sigmazero.board import Leaderboard, add, prove, submit, verify
from sigmazero.board.folder import POINTS, BoardError, new_board
from sigmazero.board.pages import read_boards, write_board
from sigmazero.certifier.certify import certify
from sigmazero.store import Store, StoreError
from sigmazero.store.proofs import ProofKey
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.plans import keep_proofs

NET = """
import torch

def build():
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(5, 2)).requires_grad_(False)
    model[1].weight.copy_(torch.tensor([[1.0, 0.9, 0.8, 0.7, 0.2], [0.0] * 5]))
    model[1].bias.copy_(torch.tensor([0.0, 0.95]))
    return model.eval()
"""
X = torch.ones(4, 1, 1, 5)
X[0, ..., 1:4], X[1, ..., 2:4] = 0, 0
Y = torch.tensor([0, 0, 0, 1])
TRUTH = [1, 2, 3, 0]


def network() -> Any:
    space: dict[str, Any] = {}
    exec(NET, space)
    return space["build"]()


@pytest.fixture
def board(tmp_path: Path) -> Leaderboard:
    """A network of which the truth is known, and points that have one change too many where that is possible."""
    np.savez(tmp_path / "rows.npz", images=X.numpy(), labels=Y.numpy())
    new_board(tmp_path / "board", "small", DataSpec("small", str(tmp_path / "rows.npz")), "feature", (1, 2))
    (tmp_path / "net.py").write_text(NET)
    told = {"name": "mine", "model": "net.py:build", "sha256": hash_weights(network())}
    lines = [f'{key} = "{value}"' for key, value in told.items()]
    (tmp_path / "mine.toml").write_text("\n".join([*lines, 'boards = ["small"]', ""]))
    points(tmp_path / "first.npz", [2, 3, 4])
    made = Leaderboard(tmp_path / "board")
    stores = [tmp_path / "first.npz"]
    add(made, tmp_path / "mine.toml", loader(), by="Ada", stores=stores, version=None, allow=("SZ001",))
    return Leaderboard(tmp_path / "board")


def loader() -> Loader:
    return Loader("cpu", trust=EVERYTHING)


def points(path: Path, counts: list[int]) -> Path:
    """Points that take away so many of the largest weights in use, for the first rows."""
    found = X[: len(counts)].clone()
    for row, count in enumerate(counts):
        flat = found[row].view(-1)
        order = [place for place in range(5) if flat[place] > 0]
        flat[order[:count]] = 0
    np.savez(path, x_adv=found.numpy(), ids=np.arange(len(counts)))
    return path


def intervals(board: Leaderboard) -> list[tuple[float, float]]:
    """What each sample needs at least and at most."""
    with ExitStack() as opened:
        (entry,) = read_boards(board, opened, Loader("cpu"))[0].entries
        return list(zip(entry.lower.tolist(), entry.changes.tolist(), strict=True))


def test_rows_become_intervals_and_exact_ones(board, tmp_path):
    assert intervals(board) == [(1, 2), (1, 3), (1, 4), (0, 0)]
    (done,) = prove(board, "mine", loader(), up_to=1)
    assert (done.rows, done.exact, done.of) == ([1, 2], 1, 4)
    assert intervals(board) == [(1, 2), (2, 3), (2, 4), (0, 0)]
    (again,) = prove(board, "mine", loader(), up_to=1)
    assert again.rows == []
    submit(board, points(tmp_path / "best.npz", TRUTH[:3]), loader(), by="Bob", entry="mine")
    assert intervals(board) == [(1, 1), (2, 2), (2, 3), (0, 0)]
    assert verify(board, loader(), again=20.0).wrong == []


def test_proofs_that_are_taken_over_are_marked_until_they_are_made_here(board, tmp_path):
    how: Any = {"method": "by hand", "version": 1, "loader": loader()}
    rows = board.rows("small", loader())
    key = proof_key(network(), "feature", Allowed(), rows, ModelSpec("mine", str(tmp_path / "net.py:build")))
    keep_proofs(tmp_path / "p.db", key, rows, [0, 2, 3, 0], [0.0] * 4, **how)
    prove(board, "mine", loader(), source=tmp_path / "p.db")
    assert verify(board, loader()).unchecked == 2
    write_board(board, tmp_path / "site")
    for page in ("index.html", "models/mine.html"):
        assert "claimed, proofs not checked" in (tmp_path / "site" / page).read_text()
    (again,) = prove(board, "mine", loader(), up_to=2)
    assert (again.rows, verify(board, loader()).unchecked) == ([], 0)
    write_board(board, tmp_path / "site")
    assert "not checked" not in (tmp_path / "site" / "index.html").read_text()


def test_points_below_a_bound_and_bounds_above_a_point_are_refused(board, tmp_path):
    wrong: Any = {"method": "by hand", "version": 1, "loader": loader()}
    rows = board.rows("small", loader())
    key = proof_key(network(), "feature", Allowed(), rows, ModelSpec("mine", str(tmp_path / "net.py:build")))
    keep_proofs(tmp_path / "p.db", key, rows, [2, 3, 4, 0], [0.0] * 4, **wrong)
    (done,) = prove(board, "mine", loader(), source=tmp_path / "p.db")  # taken over, though each is one too many
    assert done.rows == [0, 1, 2]
    lower = points(tmp_path / "best.npz", TRUTH[:3])
    with pytest.raises(BoardError, match=r"row 0 is fooled by 1 changes, and 2 are proved to be needed"):
        submit(board, lower, loader(), by="Bob", entry="mine")
    said = verify(board, loader(), again=20.0)
    assert (said.wrong, said.unchecked) == ([], 0)
    expected = [rf"row {row}: that {TRUTH[row] + 1} changes are needed did not come out again" for row in range(3)]
    assert len(said.skipped) == 3
    for line, words in zip(said.skipped, expected, strict=True):
        assert re.search(words, line), line
    keep_proofs(tmp_path / "q.db", key, rows, [0, 5, 0, 0], [0.0] * 4, **wrong)
    with pytest.raises(StoreError, match=r"row 1 of small: .* with 3 changed features .* proves that 5 are"):
        prove(board, "mine", loader(), source=tmp_path / "q.db")
    assert intervals(board)[1] == (3, 3)


def test_a_bound_that_is_put_in_by_hand_is_found(board):
    with Store(board.entry("mine") / POINTS, write=True) as store:
        key = ProofKey.of_cell(store.cells()[0])
        assert key is not None
        store.keep_digests(board.rows("small", loader()).content_hash, ["0" * 32] * 4)
        row = (*key, "0" * 32, 3, "certify", 1, 0.0)
        store._base.execute("INSERT INTO proofs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    said = verify(board, loader())
    assert any("proves that 3 are needed" in line for line in said.wrong), said
    assert (board.entry("mine") / POINTS).is_file()


@pytest.mark.parametrize(
    ("arithmetic", "method", "words"),
    [("float32", "certify", "proved"), ("real", "certify over the reals", "proved over the reals")],
)
def test_a_proof_says_in_which_arithmetic_it_holds(board, tmp_path, monkeypatch, arithmetic, method, words):
    monkeypatch.setattr(import_module("sigmazero.board.prove"), "certify", partial(certify, arithmetic=arithmetic))
    prove(board, "mine", loader())
    with Store(board.entry("mine") / POINTS) as store:
        proofs = [proof for key in store.proof_keys() for proof in store.proofs(key).values() if proof.least > 1]
    assert [proof.method for proof in proofs] == [method] * 2
    write_board(board, tmp_path / "site")
    assert re.search(rf"≥ 50\.0 {words}\b(?! over)", (tmp_path / "site/index.html").read_text())
    assert verify(board, loader(), again=20.0).wrong == []
