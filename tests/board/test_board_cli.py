"""`sigmazero board`, as people type it."""

from dataclasses import replace
from html import escape

import numpy as np
import torch

import sigmazero as sz
from sigmazero.bench.loader import Loader
from sigmazero.board import Leaderboard, verify, write_board
from sigmazero.board.example import BOARDS, build_example
from sigmazero.store.store import Store
from tests.board.conftest import network
from tests.cli.conftest import own, sigmazero  # noqa: F401 (fixtures)
from tests.plans import NET


def test_a_leaderboard_from_nothing_to_its_site(sigmazero, own):  # noqa: F811
    (own / "net.py").write_text(NET)
    made = sigmazero("board", "init", "b", "small", "mine.npz", "--limit", "4", "--k", "1,3")
    assert made.exit_code == 0, made.output
    assert made.stdout.startswith("board small: 4 rows, sha256 ")
    assert sigmazero("board", "init", "b", "small", "mine.npz").exit_code == 2
    card = 'name = "mine"\nmodel = "net.py:build"\nboards = ["small"]\n'
    (own / "card.toml").write_text(card)
    labels = network()(torch.from_numpy(np.load(own / "mine.npz")["images"])).argmax(1)
    np.savez(own / "mine2.npz", images=np.load(own / "mine.npz")["images"], labels=labels.numpy())
    assert sigmazero("board", "init", "b", "right", "mine2.npz", "--limit", "4").exit_code == 0
    (own / "card.toml").write_text(card.replace('"small"', '"right"'))
    refused = sigmazero("board", "add", "b", "card.toml", "--by", "Ada")
    assert refused.exit_code == 2
    assert "--trust-code" in refused.stderr
    added = sigmazero("board", "add", "b", "card.toml", "--by", "Ada", "--cascade", "quick", "--trust-code")
    assert added.exit_code == 0, added.output
    assert "board right: 4 points, 4 lowered (rows 4, 7, 9, 10), 0 do not hold" in added.stdout
    checked = sigmazero("board", "verify", "b", "--trust-code")
    assert (checked.exit_code, checked.stdout) == (0, "1 model, 4 points replayed: 0 wrong, 0 not checked\n")
    assert sigmazero("board", "verify", "b").exit_code == 1
    store = own / "b" / "entries" / "mine" / "points.db"
    nothing = sigmazero("board", "submit", "b", store, "--by", "Bob", "--trust-code")
    assert nothing.exit_code == 1
    assert "0 lowered, 0 do not hold" in nothing.stdout
    assert sigmazero("board", "site", "b", "--out", "site").stderr == "wrote site/index.html\n"
    assert "sigma-swap (SparseAutoAttack quick" in (own / "site/models/mine.html").read_text(encoding="utf-8")
    (own / "b/entries/mine/card.toml").write_text(card)
    wrong = sigmazero("board", "verify", "b", "--trust-code")
    assert wrong.exit_code == 1
    assert "entries/mine: card.toml has no sha256" in wrong.stderr


def test_names_write_no_lines_of_their_own(sigmazero, own):  # noqa: F811
    """A forged name in a store, or who says to have found points, must not look like a line of the verdict."""
    evil = "x\n1 model, 9 points replayed: 0 wrong, 0 not checked"
    (own / "net.py").write_text(NET)
    assert sigmazero("board", "init", "b", "small", "mine.npz", "--limit", "4").exit_code == 0
    (own / "card.toml").write_text('name = "mine"\nmodel = "net.py:build"\nboards = ["small"]\n')
    added = sigmazero("board", "add", "b", "card.toml", "--by", "Ada", "--cascade", "none", "--trust-code")
    assert added.exit_code == 0, added.output
    with Store(own / "b/entries/mine/points.db", write=True) as store:
        info = store.cells()[0]
        parameters = {**info.parameters, "by": evil, "tool": evil}
        store.register([replace(info, key="f" * 64, attack=evil, parameters=parameters, provenance={})])
    said = sigmazero("board", "verify", "b", "--trust-code")
    assert said.exit_code == 1
    assert not [line for line in (said.stdout + said.stderr).splitlines() if line.startswith("1 model, 9 points")]


def test_the_example_is_built_from_what_the_package_brings(tmp_path, monkeypatch):
    """Without files of other models and data there are two boards; a space with groups is honoured."""
    monkeypatch.setenv("SIGMAZERO_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("sigmazero.board.example.BOARDS", BOARDS[1:3])
    said = list(build_example(tmp_path / "b", Loader("cpu"), rows=3))
    assert [line.split(":")[0] for line in said[:2]] == ["board adult", "board photos-features is left out"]
    board = Leaderboard(tmp_path / "b")
    assert board.slugs == ["adult-mlp", "adult-mlp-robust"]
    with Store(board.entry("adult-mlp") / "points.db") as store:
        assert all(info.space != "–" for info in store.cells())
    assert write_board(board, tmp_path / "site") == 2
    page = (tmp_path / "site/models/adult-mlp.html").read_text()
    assert all(escape(name) in page for name in sz.data.load("adult-sample").classes or ["?"])
    assert "fnlwgt" in page or "age" in page  # what was changed, by the names of its features
    verdict = verify(board, Loader("cpu"))
    assert (verdict.wrong, verdict.skipped) == ([], [])
    assert verdict.points > 0
