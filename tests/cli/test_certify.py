"""`sigmazero certify`: what it says about rows, after Ctrl-C, and where a store has proofs alone."""

import pytest

from sigmazero.certifier.search import BranchAndBound

MINE = ("certify", "net.py:build", "mine.npz", "--device", "cpu", "--rows", "3,5", "--attack", "none")


@pytest.fixture
def interrupted(monkeypatch):
    def run(self, rows):
        raise KeyboardInterrupt

    monkeypatch.setattr(BranchAndBound, "run", run)


def test_rows_are_named_by_their_ids(sigmazero, own):
    lines = sigmazero(*MINE, "--each").stdout.splitlines()
    assert lines[0] == "rows of mine.npz, by their ids:"
    assert [line.partition(": at least ")[0] for line in lines[1:3]] == ["row 3", "row 5"]


@pytest.mark.usefixtures("interrupted")
def test_an_interruption_says_what_is_stored_and_how_to_go_on(sigmazero, own):
    done = sigmazero(*MINE, "--store", "p.db")
    assert done.exit_code == 130
    assert "stopped; bounds of 2 of 2 rows stored in p.db. To go on: sigmazero certify net.py:build" in done.stderr
    done = sigmazero(*MINE)
    assert done.exit_code == 130
    assert "stopped; nothing was kept. --store FILE keeps" in done.stderr


def test_a_store_with_proofs_alone_names_the_attack_that_it_needs(sigmazero, own):
    assert sigmazero(*MINE, "--store", "p.db").exit_code == 0
    for words in (("report", "p.db"), ("plot", "p.db", "curves")):
        done = sigmazero(*words)
        assert done.exit_code == 2
        assert "p.db holds proofs about 2 rows, and a table" in done.stderr
        assert "sigmazero attack MODEL DATA --store p.db" in done.stderr
    assert sigmazero("attack", *MINE[1:7], "--steps", 5, "--store", "p.db").exit_code in (0, 3)
    assert sigmazero("report", "p.db").exit_code == 0
