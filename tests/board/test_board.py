"""A leaderboard believes nobody: points are replayed, and what was tampered with is refused by name."""

import json
import os
import shutil
import sqlite3

import numpy as np
import pytest
import torch

from sigmazero.bench.identity import hash_file
from sigmazero.bench.loader import Loader, UntrustedCode
from sigmazero.bench.plan import DataSpec
from sigmazero.board import Leaderboard, add, submit, verify, write_board
from sigmazero.board.entry import describe, held
from sigmazero.board.folder import BoardError, new_board
from sigmazero.board.pages import read_boards
from sigmazero.store.store import Store, StoreBusy
from tests.board.conftest import ROWS, Made, card, worse


def best(made: Made, name: str = "small"):
    board = made.board
    with Store(board.entry("mine") / "points.db") as store:
        return held(store, board.boards[name])


def lines(made: Made) -> list[str]:
    verdict = verify(made.board, made.loader)
    assert not verdict.skipped
    return verdict.wrong


def reseal(made: Made, *files: str) -> None:
    """As a forger does who knows of the seals."""
    made.board.seal({file: [hash_file(made.path / file)] for file in files})


def test_every_point_is_replayed_on_both_boards(made):
    verdict = verify(made.board, made.loader)
    assert not verdict.wrong
    assert verdict.points == 2 * (ROWS - 1)
    features, pixels = best(made), best(made, "small-pixels")
    changed = (worse(made) != made.images).flatten(1).sum(1).double().numpy()
    changed[0] = 0  # wrong as it is
    assert features.changes.tolist() == changed.tolist()
    assert (pixels.changes <= features.changes).all()
    assert pixels.changes.sum() < features.changes.sum()
    assert {info.parameters["by"] for info in features.source[1:]} == {"Ada"}


def test_a_submission_that_lowers_three_samples_changes_exactly_those(made):
    before, pixels = best(made), best(made, "small-pixels")
    offered = worse(made)
    offered[[2, 5, 7]] = made.points[[2, 5, 7]]
    offered[4] = made.images[4]  # fools nobody
    offered[6] = worse(made, 5)[6]  # more changes than are held
    done = submit(made.board, made.save(offered, list(range(ROWS))), made.loader, by="Bob", tool="pen", entry="mine")
    assert (done[0].board, done[0].lowered, done[0].refused) == ("small", [2, 5, 7], 1)
    after = best(made)
    assert (after.changes != before.changes).nonzero()[0].tolist() == [2, 5, 7]
    whose = [(info.parameters["by"], info.attack) for info in after.source]
    assert [row for row, (by, _) in enumerate(whose) if by == "Bob"] == [2, 5, 7]
    assert {tool for by, tool in whose if by == "Bob"} == {"pen"}
    assert [info.key for row, info in enumerate(after.source) if row not in (2, 5, 7)] == [
        info.key for row, info in enumerate(before.source) if row not in (2, 5, 7)
    ]
    assert (best(made, "small-pixels").changes <= pixels.changes).all()
    assert lines(made) == []
    # The same again lowers nothing, and leaves every byte as it is.
    bytes_before = (made.path / "entries/mine/points.db").read_bytes()
    again = submit(made.board, made.path.parent / "points.npz", made.loader, by="Eve", entry="mine")
    assert [change.lowered for change in again] == [[], []]
    assert (made.path / "entries/mine/points.db").read_bytes() == bytes_before


def test_a_store_says_which_model_it_is_about(made, tmp_path):
    with pytest.raises(BoardError, match="does not say which model"):
        submit(made.board, made.save(made.points, [1]), made.loader, by="Bob")
    mine = made.path / "entries/mine/points.db"
    copy = shutil.copyfile(mine, tmp_path / "copy.db")
    assert [change.lowered for change in submit(made.board, copy, made.loader, by="Bob")] == [[], []]
    with pytest.raises(BoardError, match="no model is called 'other'; there are mine"):
        submit(made.board, copy, made.loader, by="Bob", entry="other")


def test_a_point_outside_the_box_does_not_count(made):
    offered = made.points.clone()
    offered[3] = made.images[3]
    offered[3, 0, 0, 0] = 40.0
    done = submit(made.board, made.save(offered, [3]), made.loader, by="Bob", entry="mine")
    assert [(change.lowered, change.refused) for change in done] == [([], 1), ([], 1)]


def alter_delta(made: Made) -> None:
    base = sqlite3.connect(made.path / "entries/mine/points.db")
    with base:
        cell, place, blob = base.execute("SELECT cell, position, became FROM samples WHERE length(became)").fetchone()
        altered = bytearray(blob)
        altered[-3] ^= 0xFF
        base.execute("UPDATE samples SET became = ? WHERE cell = ? AND position = ?", (bytes(altered), cell, place))
    base.close()


def test_an_altered_delta_is_refused_by_name(made):
    alter_delta(made)
    found = lines(made)
    assert any(line.startswith("entries/mine/points.db was changed since it was sealed") for line in found)
    reseal(made, "entries/mine/points.db")
    assert any("entries/mine/points.db" in line and "against mine on small" in line for line in lines(made))


def test_a_forged_point_with_a_forged_checksum_fails_the_replay(made):
    board = made.board
    with board.points("mine") as store:
        info = held(store, board.boards["small"]).source[3]
        facts = store.facts(info.key).take(np.array([2]))
    forged = facts.take(np.array([0]))
    forged.value[:] = made.images[int(facts.row[0])].flatten()[forged.index].numpy() + 1e-4
    rules, rows, loader = board.boards["small"], board.rows("small", made.loader), made.loader
    with board.points("mine") as store:
        one = describe(board.card("mine"), rules, rows, board.allowed("small", loader), "gradients", "Eve", "forge", 9)
        forged.l0[:], forged.l0_pixel[:] = 1, 1
        store.register([one])
        store.append(one.key, forged.row, forged, run=1)
    row = int(facts.row[0])
    assert any(
        f"forge against mine on small [{one.key[:12]}], row {row}: the model is not fooled" in x for x in lines(made)
    )


def test_an_altered_card_is_refused_by_name(made):
    file = made.path / "entries/mine/card.toml"
    file.write_text(file.read_text().replace('name = "mine"', 'name = "yours"'))
    assert any(line.startswith("entries/mine/card.toml was changed since") for line in lines(made))
    with pytest.raises(BoardError, match=r"entries/mine/card\.toml was changed since"):
        submit(made.board, made.save(made.points, [1]), made.loader, by="Bob", entry="yours")
    with pytest.raises(BoardError, match=r"entries/mine/card\.toml was changed since"):
        write_board(made.board, made.path.parent / "site")


def test_another_hash_is_refused_by_name(made):
    file = made.path / "entries/mine/card.toml"
    card_text = file.read_text()
    right = card_text.split('sha256 = "')[1][:64]
    file.write_text(card_text.replace(right, "0" * 64))
    reseal(made, "entries/mine/card.toml")
    assert any("the weights of mine here have sha256 " + right in line for line in lines(made))
    file.write_text(card_text)
    reseal(made, "entries/mine/card.toml")
    assert lines(made) == []
    rules = made.path / "board.toml"
    rows = made.board.boards["small"].sha256
    rules.write_text(rules.read_text().replace(rows, "1" * 64))
    reseal(made, "board.toml")
    assert any("board.toml: the rows of board small here have sha256 " + rows[:12] in line for line in lines(made))


def test_other_code_weights_or_an_older_store_are_noticed(made):
    old = (made.path / "entries/mine/points.db").read_bytes()
    submit(made.board, made.save(made.points, [2]), made.loader, by="Bob", entry="mine")
    (made.path / "entries/mine/points.db").write_bytes(old)
    (made.path / "entries/mine/net.py").write_text("def build(): raise SystemExit\n")
    (made.path / "entries/mine/more.txt").write_text("x")
    broken = list(made.board.broken())
    assert [line.split()[0] for line in broken] == [
        *("entries/mine/net.py", "entries/mine/points.db", "entries/mine/more.txt")
    ]
    with pytest.raises(BoardError, match=r"points\.db was changed"):
        add(made.board, card(made.path.parent), made.loader, by="Eve", version=None)
    (made.path / "seals.json").write_text("{}")
    with pytest.raises(BoardError, match=r"seals\.json is damaged"):
        made.board.refuse_broken("mine")


def test_a_finder_cannot_be_renamed(made):
    """Who found a point is part of the key of its cell."""
    with made.board.points("mine") as store:
        info = held(store, made.board.boards["small"]).source[3]
        told = json.loads(info.text())
        told["parameters"]["by"] = "Eve"
        store.register([type(info).parse(json.dumps(told))])
    assert any("does not fit its key" in line for line in lines(made))


def test_code_runs_only_where_it_is_trusted(made):
    verdict = verify(made.board, Loader("cpu"))
    assert not verdict.wrong
    assert ["net.py:build" in line and "--trust-code" in line for line in verdict.skipped] == [True]
    with pytest.raises(UntrustedCode):
        submit(made.board, made.save(made.points, [2]), Loader("cpu"), by="Bob", entry="mine")
    with pytest.raises(UntrustedCode):
        add(made.board, card(made.path.parent), Loader("cpu"), by="Eve", version=None)
    write_board(made.board, made.path.parent / "site")  # needs no model


def test_a_change_that_is_cut_short_leaves_a_whole_leaderboard(made, monkeypatch):
    points, real, seals = made.save(made.points, [2, 3]), os.replace, []

    def fails(old, new):
        if str(new).endswith("points.db"):
            raise OSError("no room")
        real(old, new)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fails)
        with pytest.raises(OSError, match="no room"):
            submit(made.board, points, made.loader, by="Bob", entry="mine")
    assert lines(made) == []  # as before
    assert best(made).source[2].parameters["by"] == "Ada"
    whole = Leaderboard.seal

    def second(self, files, gone=""):
        seals.append(files)
        if len(seals) == 2:
            raise OSError("no room")
        whole(self, files, gone)

    with monkeypatch.context() as patch:
        patch.setattr(Leaderboard, "seal", second)
        with pytest.raises(OSError, match="no room"):
            submit(made.board, points, made.loader, by="Bob", entry="mine")
    assert lines(made) == []  # the new points are in place, and sealed
    assert best(made).source[2].parameters["by"] == "Bob"
    assert not list(made.path.rglob("*.part*"))


def test_only_one_changes_a_leaderboard_at_a_time(made):
    with made.board.changing(), pytest.raises(StoreBusy):
        submit(made.board, made.save(made.points, [2]), made.loader, by="Bob", entry="mine")


def test_certified_bounds_make_a_row_an_interval(made):
    folder, needed = made.path.parent, best(made).changes
    (folder / "lower.csv").write_text(f"board,row,changes\nsmall,3,{int(needed[3]) - 1}\nsmall,0,7\n")
    lower = '{ file = "lower.csv", method = "by hand", url = "https://example.org/proof" }'
    add(made.board, card(folder, lower=lower), made.loader, by="Ada", version=None)
    score = read_boards(made.board)[0].scores[0]
    assert score.lower.tolist() == [0, 1, 1, needed[3] - 1, *[1] * (ROWS - 4)]
    assert score.certified(1) == 0.1 < score.robust(1) == 0.9
    assert score.card.links == {"certificate": "https://example.org/proof"}
    with pytest.raises(BoardError, match=r"row 3 is fooled by .* certified to be needed; one of both is wrong"):
        submit(made.board, made.save(made.points, [3]), made.loader, by="Bob", entry="mine")
    (made.path / "entries/mine/lower.csv").write_text("board,row,changes\nsmall,3,60\n")
    reseal(made, "entries/mine/lower.csv")
    assert any("board small, row 3:" in line and "60 are certified" in line for line in lines(made))
    (made.path / "entries/mine/lower.csv").write_text("small,three,1\n")
    reseal(made, "entries/mine/lower.csv")
    assert any("lower.csv:1: 'small,three,1' is not board,row,changes" in line for line in lines(made))


def test_an_accuracy_that_the_model_does_not_have_is_refused(made):
    add(made.board, card(made.path.parent, accuracy="90.0"), made.loader, by="Ada", version=None)
    assert lines(made) == []
    np.savez(made.path.parent / "wrong.npz", images=made.images.numpy(), labels=((made.labels + 1) % 4).numpy())
    spec = DataSpec("wrong", str(made.path.parent / "wrong.npz"))
    new_board(made.path, "wrong", spec, "feature", (1,), None)
    other = card(made.path.parent, name='"claims"', boards='["wrong"]', accuracy="90.0")
    add(made.board, other, made.loader, by="Ada", version=None, allow=["SZ005"])
    assert lines(made) == ["entries/claims: card.toml says 90 % accuracy; on board wrong 0 of 10 are right"]


def test_what_the_doctor_finds_wrong_is_refused(made):
    net = made.path.parent / "net.py"
    noisy = net.read_text() + "\nclass Noisy(Net):\n    def forward(self, x):\n        return super().forward(x)"
    noisy += " + torch.randn(len(x), 4)\ndef noisy(): return Noisy(0)\n"
    file = card(made.path.parent, name='"noisy"', model='"net.py:noisy"')
    net.write_text(noisy)
    with pytest.raises(BoardError, match="SZ003"):
        add(made.board, file, made.loader, by="Ada", version=None, allow=["SZ003"])
    flat = (
        net.read_text() + "\nclass Flat(Net):\n    def forward(self, x):\n        return super().forward(x.round())\n"
    )
    file = card(made.path.parent, name='"flat"', model='"net.py:flat"')
    net.write_text(flat + "def flat(): return Flat(0)\n")
    with pytest.raises(BoardError, match=r"SZ004.*allow SZ004"):
        add(made.board, file, made.loader, by="Ada", version=None)
    assert made.board.slugs == ["mine"]
    add(made.board, file, made.loader, by="Ada", version=None, allow=["SZ004", "SZ005"])
    shown = next(s for s in read_boards(made.board)[0].scores if s.card.name == "flat")
    assert "SZ004" in [each["code"] for each in shown.card.findings]


def test_a_model_without_gradients_has_a_track_of_its_own(made):
    net = made.path.parent / "net.py"
    file = card(made.path.parent, name='"shy"', model='"net.py:shy"', boards='["small"]')
    net.write_text(net.read_text() + "\ndef shy():\n    net = Net(0)\n    net.ability = 'scores'\n    return net\n")
    add(made.board, file, made.loader, by="Ada", version=None)
    assert [(board.anchor, len(board.scores)) for board in read_boards(made.board)] == [
        *(("small", 1), ("small-scores-only", 1), ("small-pixels", 1))
    ]
    assert lines(made) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"nmae": '"x"'}, "unknown key 'nmae'"),
        ({"sha256": '"abc"'}, "sha256 = 'abc'"),
        ({"model": ""}, "model is missing"),
        ({"weights": '"../../secret.pt"'}, "must be the name of a file beside the card"),
        ({"model": '"/etc/evil.py:build"'}, "must be the name of a file beside the card"),
        ({"paper": '"javascript:alert(1)"'}, "paper = 'javascript:alert(1)'"),
        ({"boards": '["large"]'}, "there is no board 'large'; there are small, small-pixels"),
    ],
)
def test_a_wrong_card_is_named_with_its_line(made, changes, said):
    with pytest.raises(ValueError, match=r"mine\.toml") as caught:
        add(made.board, card(made.path.parent, **changes), made.loader, by="Ada")
    assert said in str(caught.value)


def test_arrays_that_do_not_fit_are_named(made):
    file = made.path.parent / "bad.npz"
    np.savez(file, x_adv=torch.rand(2, 7).numpy())
    one = card(made.path.parent, name='"one"', boards='["small"]')
    add(made.board, one, made.loader, by="Ada", version=None)
    with pytest.raises(BoardError, match=r"bad\.npz has x_adv of shape \(2, 7\)"):
        submit(made.board, file, made.loader, by="Bob", entry="one")
    np.savez(file, x_adv=made.points[:2].numpy(), ids=np.array([1, 1]))
    with pytest.raises(BoardError, match="two points for one row"):
        submit(made.board, file, made.loader, by="Bob", entry="one")
    with pytest.raises(BoardError, match="say who found"):
        submit(made.board, file, made.loader, by=" ", entry="one")
