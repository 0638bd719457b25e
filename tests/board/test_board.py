"""Points of a leaderboard are replayed, and whatever does not hold is refused by name."""

import shutil
import tracemalloc
import zipfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

import sigmazero as sz
from sigmazero.auto import CASCADES, Cascade
from sigmazero.bench.identity import hash_weights
from sigmazero.bench.loader import Loader, UntrustedCode
from sigmazero.bench.plan import DataSpec
from sigmazero.board import Leaderboard, add, submit, verify, write_board
from sigmazero.board.folder import BoardError, new_board
from sigmazero.board.pages import read_boards
from sigmazero.board.points import placements
from sigmazero.core import faults
from sigmazero.store.store import Store, StoreBusy
from tests.board.conftest import ROWS, Made, card, network, worse
from tests.cli.conftest import own, sigmazero  # noqa: F401 (fixtures)
from tests.plans import NET


def placement(made: Made, name: str = "small"):
    return next(each for each in placements(made.board, "mine", made.loader) if each.name == name)


def entry(made: Made, name: str = "small"):
    with Store(made.board.entry("mine") / "points.db") as store:
        return placement(made, name).known(store)


def best(made: Made, name: str = "small"):
    return entry(made, name)[1]


def finders(made: Made, name: str = "small") -> list[tuple[str, str]]:
    """Return who found the best point of each sample, and with what."""
    runs, found = entry(made, name)
    whose = [runs[at].info if at >= 0 else runs[0].info for at in found.winner]
    return [(info.parameters["by"], info.attack) for info in whose]


def entries(board: Leaderboard, name: str = "small"):
    """Return the entries of a board as its page has them, by their names."""
    with ExitStack() as opened:
        found = next(each for each in read_boards(board, opened, Loader("cpu")) if each.title == name)
        for entry in found.entries:
            assert len(entry.best) == len(entry.changes)
        return {entry.name: entry for entry in found.entries}


def lines(made: Made) -> list[str]:
    verdict = verify(made.board, made.loader)
    assert not verdict.skipped
    return verdict.wrong


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
    assert {by for by, _ in finders(made)[1:]} == {"Ada"}


def test_a_submission_that_lowers_three_samples_changes_exactly_those(made):
    before, whose, pixels = best(made), finders(made), best(made, "small-pixels")
    offered = worse(made)
    offered[[2, 5, 7]] = made.points[[2, 5, 7]]
    offered[4] = made.images[4]  # fools nobody
    offered[6] = worse(made, 5)[6]  # more changes than are held
    done = submit(made.board, made.save(offered, list(range(ROWS))), made.loader, by="Bob", tool="pen", entry="mine")
    assert (done[0].board, done[0].lowered, done[0].refused) == ("small", [2, 5, 7], 1)
    after = best(made)
    assert (after.changes != before.changes).nonzero()[0].tolist() == [2, 5, 7]
    for row, (now, then) in enumerate(zip(finders(made), whose, strict=True)):
        assert now == (("Bob", "pen") if row in (2, 5, 7) else then)
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


@pytest.mark.parametrize("value", [40.0, torch.nan])
def test_points_outside_the_box_and_no_numbers_do_not_count(made, value):
    offered = made.points.clone()
    offered[3] = made.images[3]
    offered[3, 0, 0, 0] = value
    done = submit(made.board, made.save(offered, [2, 3]), made.loader, by="Bob", entry="mine")
    assert (done[0].lowered, [change.refused for change in done]) == ([2], [1, 1])


def test_a_forged_point_with_a_forged_checksum_fails_the_replay(made):
    board = made.board
    with Store(board.entry("mine") / "points.db") as store:
        info = next(info for info in store.cells() if info.dataset == "small" and info.parameters["by"] == "Ada")
        facts = store.facts(info.key).take(np.array([2]))
    forged = facts.take(np.array([0]))
    forged.value[:] = made.images[int(facts.row[0])].flatten()[forged.index].numpy() + 1e-4
    with Store(board.entry("mine") / "points.db", write=True) as store:
        one = placement(made).describe("Eve", "forge", 9)
        forged.l0[:], forged.l0_pixel[:] = 1, 1
        store.register([one])
        store.append(one.key, forged.row, forged, run=1)
    row = int(facts.row[0])
    assert any(
        f"forge against mine on small [{one.key[:12]}], row {row}: the model is not fooled" in x for x in lines(made)
    )


def test_other_weights_rows_or_names_than_the_card_says_are_wrong(made):
    file, rules = made.path / "entries/mine/card.toml", made.path / "board.toml"
    card_text, sha256 = file.read_text(), hash_weights(network())
    file.write_text(card_text.replace(sha256, "0" * 64))
    assert any("the weights of mine here have sha256 " + sha256 in line for line in lines(made))
    file.write_text(card_text.replace('name = "mine"', 'name = "yours"'))
    assert any("the model or the rows are not the card's" in line for line in lines(made))
    file.write_text(card_text)
    assert lines(made) == []
    rows = made.board.boards["small"].sha256
    rules.write_text(rules.read_text().replace(rows, "1" * 64))
    assert any("board.toml: the rows of board small here have sha256 " + rows[:12] in line for line in lines(made))


def test_the_hash_of_a_card_is_filled_in(made):
    text = card(made.path.parent, name='"open"', sha256="").read_text()
    assert "sha256" not in text
    add(made.board, made.path.parent / "mine.toml", made.loader, by="Ada", version=None)
    assert made.board.card("open").sha256 == hash_weights(network())
    assert (made.path / "entries/open/card.toml").read_text().endswith(text)
    assert {file.name for file in (made.path / "entries/open").iterdir()} == {"card.toml", "net.py", "points.db"}
    assert lines(made) == []


def test_a_link_beside_a_card_is_refused_and_nothing_is_copied(made):
    """A card from a stranger could have another file of this machine published."""
    (made.path.parent / "secret.txt").write_text("secret")
    (made.path.parent / "net.safetensors").symlink_to(made.path.parent / "secret.txt")
    linked = card(made.path.parent, name='"other"', weights='"net.safetensors"')
    with pytest.raises(ValueError, match=r"'net\.safetensors' is a link"):
        add(made.board, linked, made.loader, by="Eve", version=None)
    assert made.board.slugs == ["mine"]


def test_code_runs_only_where_it_is_trusted(made):
    verdict = verify(made.board, Loader("cpu"))
    assert not verdict.wrong
    assert ["net.py:build" in line and "--trust-code" in line for line in verdict.skipped] == [True]
    with pytest.raises(UntrustedCode):
        submit(made.board, made.save(made.points, [2]), Loader("cpu"), by="Bob", entry="mine")
    with pytest.raises(UntrustedCode):
        add(made.board, card(made.path.parent), Loader("cpu"), by="Eve", version=None)
    write_board(made.board, made.path.parent / "site")  # needs no model


@pytest.mark.parametrize("point", ["entry.written", "entry.moved", "store.commit"])
@pytest.mark.parametrize("what", ["submit", "add", "correct"])
def test_a_change_that_is_cut_short_leaves_a_whole_leaderboard(made, monkeypatch, point, what):
    """As `kill -9` leaves it: nothing is put right before the next change."""

    class Killed(BaseException):
        pass

    def reach(name: str) -> None:
        if name == point:
            monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
            monkeypatch.setattr(Leaderboard, "_settle", lambda *_: None)
            raise Killed

    file = made.save(made.points, [2, 3])
    named = card(made.path.parent, name='"mine"' if what == "correct" else '"new"', title='"better"')
    change: Any = partial(submit, made.board, file, made.loader, by="Bob", entry="mine")
    if what != "submit":
        change = partial(add, made.board, named, made.loader, by="Bob", stores=[file], version=None)
    with monkeypatch.context() as patch:
        patch.setattr(faults, "reach", reach)
        with pytest.raises(Killed):
            change()
    monkeypatch.undo()
    assert made.board.slugs == ["mine"]
    assert lines(made) == []
    assert write_board(made.board, made.path.parent / "site") == 1
    assert finders(made)[2][0] == "Ada"
    assert not made.board.card("mine").about.get("title")
    submit(made.board, file, made.loader, by="Bob", entry="mine")
    assert finders(made)[2][0] == "Bob"
    assert not [each for each in made.path.glob("entries/.*") if each.is_dir()]


def test_only_one_changes_a_leaderboard_at_a_time(made):
    with made.board.changing(), pytest.raises(StoreBusy):
        submit(made.board, made.save(made.points, [2]), made.loader, by="Bob", entry="mine")


def test_an_accuracy_that_the_model_does_not_have_is_refused(made):
    add(made.board, card(made.path.parent, accuracy="90.0"), made.loader, by="Ada", version=None)
    assert lines(made) == []
    np.savez(made.path.parent / "wrong.npz", images=made.images.numpy(), labels=((made.labels + 1) % 4).numpy())
    spec = DataSpec("wrong", str(made.path.parent / "wrong.npz"))
    new_board(made.path, "wrong", spec, "feature", (1,))
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
    assert "SZ004" in [each["code"] for each in entries(made.board)["flat"].findings]


def test_a_model_without_gradients_has_a_track_of_its_own(made):
    net = made.path.parent / "net.py"
    file = card(made.path.parent, name='"shy"', model='"net.py:shy"', boards='["small"]')
    net.write_text(net.read_text() + "\ndef shy():\n    net = Net(0)\n    net.ability = 'scores'\n    return net\n")
    add(made.board, file, made.loader, by="Ada", version=None)
    assert [*entries(made.board)] == ["mine"]
    assert [*entries(made.board, "small, scores only")] == ["shy"]
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
    one = card(made.path.parent, name='"one"', boards='["small"]')
    add(made.board, one, made.loader, by="Ada", version=None)
    for arrays, words in (
        ({"x_adv": np.zeros((2, 7), np.float32), "ids": np.arange(2)}, r"x_adv of shape \(2, 7\)"),
        ({"x_adv": np.zeros((2, 3, 4, 5), np.int64), "ids": np.arange(2)}, "int64 x_adv"),
        ({"x_adv": made.points[:2].numpy(), "ids": np.array([1, 1])}, "two points for one row"),
        ({"x_adv": made.points[:2].numpy(), "ids": np.array([1])}, "2 points and 1 ids"),
        ({"x_adv": made.points[:2].numpy(), "ids": np.array([100, 101])}, "no point for a row of this board"),
        ({"x_adv": made.points[:0].numpy(), "ids": np.arange(0)}, "no point for a row of this board"),
        ({"x_adv": made.points[:2].numpy()}, "no .npz file with x_adv and ids"),
    ):
        np.savez(file, **arrays)
        with pytest.raises(BoardError, match=words):
            submit(made.board, file, made.loader, by="Bob", entry="one")
    file.write_bytes(b"PK no zip")
    with pytest.raises(BoardError, match=r"no \.npz file"):
        submit(made.board, file, made.loader, by="Bob", entry="one")
    with pytest.raises(BoardError, match="by is empty"):
        submit(made.board, file, made.loader, by=" ", entry="one")


def test_a_large_submission_takes_memory_for_the_rows_of_the_board_alone(made, tmp_path):
    rows, size = 200_000, 60  # 48 MB of points, 10 of them for rows of the board
    file = tmp_path / "many.npz"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("ids.npy", "w") as ids:
            np.lib.format.write_array(ids, np.arange(rows)[::-1])
        with archive.open("x_adv.npy", "w") as points:
            header = {"descr": "<f4", "fortran_order": False, "shape": (rows, 3, 4, 5)}
            np.lib.format.write_array_header_1_0(points, header)
            points.write(bytes(4 * size * (rows - ROWS)) + made.points.numpy()[::-1].tobytes())
    tracemalloc.start()
    done = submit(made.board, file, made.loader, by="Bob", entry="mine")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert done[0].lowered == list(range(1, ROWS))
    assert peak < 40e6


def test_a_point_that_is_not_finite_on_a_clean_input_counts_as_wrong(made):
    net = made.path.parent / "net.py"
    file = card(made.path.parent, name='"odd"', model='"net.py:odd"', boards='["small"]')
    text = "\nclass Odd(Net):\n    def forward(self, x):\n        out = super().forward(x)\n"
    text += f"        bad = (x - torch.tensor({made.images[4].tolist()}).to(x)).abs().flatten(1).sum(1) == 0\n"
    net.write_text(net.read_text() + text + "        return torch.where(bad[:, None], torch.nan, out)\n")
    net.write_text(net.read_text() + "\ndef odd(): return Odd(0)\n")
    add(made.board, file, made.loader, by="Ada", version=None, allow=["SZ004", "SZ007"])
    assert entries(made.board)["odd"].changes[4] == 0


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
