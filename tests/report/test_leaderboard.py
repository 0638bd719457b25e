import json
import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sigmazero.report.site import folder, index, ranking
from sigmazero.report.site.ranking import ModelId, boards
from tests.cli.conftest import sigmazero  # noqa: F401
from tests.helpers.cells import cell, fill
from tests.helpers.links import Page, broken

INF = math.inf
HOSTILE = ["../<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "a/b\\c", "..", " ", "</script>", "é 模型"]
SMALL = [
    cell("robust", "fmn", [30, 60, 90, INF]),
    cell("robust", "bb", [20, 80, INF, 40]),
    cell("weak", "fmn", [0, 1, 2, 3]),
    cell("weak", "bb", [0, 4, 1, 3]),
    cell("tie", "fmn", [0, 1, 2, 3]),
    cell("tie", "bb", [0, 4, 1, 3]),
]


def nothing(info):
    return {}


def order(board, criterion):
    return [(rank, standing.model.name) for rank, standing in board.ranked(criterion)]


def test_the_best_of_all_attacks_and_the_best_alone():
    (board,) = boards(SMALL)
    robust = board.standings[0]
    assert robust.l0.tolist() == [20, 60, 90, 40]
    assert (robust.robust(24), robust.robust(50), robust.median) == (0.75, 0.5, 50)
    assert robust.alone(24) == ranking.Best(0.75, "bb")
    assert robust.alone(None) == ranking.Best(60, "bb")
    assert robust.clean == 1
    assert not robust.lacks


def test_equals_share_a_rank_and_stand_by_name():
    (board,) = boards([*SMALL, cell("last", "fmn", [0, 0, 0, 0]), cell("last", "bb", [0, 0, 0, 0])])
    assert order(board, 24.0) == [(1, "robust"), (2, "tie"), (2, "weak"), (2, "last")]  # all 0 %; then by the median
    assert order(board, None) == [(1, "robust"), (2, "tie"), (2, "weak"), (4, "last")]


LISTS = st.lists(st.one_of(st.integers(0, 120).map(float), st.just(INF)), min_size=5, max_size=5)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(LISTS, LISTS), min_size=1, max_size=6), st.sampled_from([0.0, 10.0, 24.0, None]))
def test_the_order_is_that_of_the_facts(models, criterion):
    cells = [cell(f"m{i}", name, l0) for i, pair in enumerate(models) for name, l0 in zip("ab", pair, strict=True)]
    (board,) = boards(cells)
    best = {f"m{i}": np.minimum(*map(np.array, pair)) for i, pair in enumerate(models)}

    def score(name):
        return float(np.median(best[name])) if criterion is None else float(np.mean(best[name] > criterion))

    found = order(board, criterion)
    values = [score(name) for _, name in found]
    assert values == sorted(values, reverse=True)
    assert [rank for rank, _ in found] == [1 + sum(other > value for other in values) for value in values]


@pytest.mark.parametrize(
    "other",
    [
        {"dataset": "cifar10", "data_hash": "x"},
        {"data_hash": "x"},
        {"unit": "pixel"},
        {"goal": "targeted"},
        {"goal": "targeted", "origin": {"target": 3}},
        {"precision": "bf16"},
    ],
)
def test_what_does_not_compare_is_apart(other):
    found = boards([*SMALL, cell("weak", "fmn", [9, 9, 9, 9], **other), cell("new", "fmn", [9, 9, 9, 9], **other)])
    assert [len(board.standings) for board in found] == [3, 2]
    assert len({board.name for board in found}) == 2


def test_versions_are_not_mixed():
    mixed = [cell("a", "fmn", [1]), cell("b", "fmn", [2], version=2)]
    with pytest.raises(ValueError, match="more than one version"):
        boards(mixed)
    assert len(boards(mixed, mix=True)[0].standings) == 2


def test_one_name_with_two_weights_is_two_models():
    twice = [cell("a", "fmn", [1]), cell("a", "fmn", [2], model_sha256="other")]
    (board,) = boards(twice)
    assert [rank for rank, _ in board.ranked(None)] == [1, 2]
    assert len({standing.model.slug for standing in board.standings}) == 2


def test_unfinished_models_have_no_rank_and_fewer_attacks_are_told():
    (board,) = boards([*SMALL, cell("begun", "fmn", [50, 60], rows=4), cell("easy", "fmn", [99, 99, 99, 99])])
    assert order(board, 24.0)[0] == (1, "easy")
    assert order(board, 24.0)[-1] == (None, "begun")
    notes = "".join(index.notes(board))
    assert "2 of 4 rows" in notes
    assert "may look better for it. Other runs: bb." in notes


def test_a_budget_is_a_witness_for_all_and_a_figure_at_its_own():
    (board,) = boards([cell("a", "fmn", [30, 40, INF, 9]), cell("a", "sparse-rs", [20, 24, INF, 3], budget=24)])
    (standing,) = board.standings
    assert standing.l0.tolist() == [20, 24, INF, 3]
    assert standing.alone(24.0).attack == "sparse-rs"
    assert standing.alone(50.0).attack == "fmn"
    assert standing.alone(None) == ranking.Best(35, "fmn")


def test_cells_of_several_stores_count_once():
    half = cell("a", "fmn", [1, 2, 3, 4])
    part = replace(half[0]), half[1].take(slice(0, 2))
    for cells in ([part, half], [half, part]):
        (kept,) = ranking.unique(cells)
        assert len(kept[1]) == 4


def test_a_site_with_hostile_names_stays_in_its_folder(tmp_path):
    cells = [cell(name, attack, [1, 2, i]) for i, name in enumerate(HOSTILE) for attack in ("fmn", HOSTILE[0])]
    cells += [cell(HOSTILE[1], HOSTILE[2], [5, 5, 5], dataset=HOSTILE[0], data_hash="y")]
    site = tmp_path / "deep" / "site"
    made = folder.write_site(site, cells, lambda info: {HOSTILE[1]: HOSTILE[0]})
    assert made == len(HOSTILE)
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"site"}
    pages = list(site.rglob("*.html"))
    assert len(pages) == 1 + len(HOSTILE)
    assert not list(broken(site))
    for path in pages:
        page = Page(path)
        assert not [tag for tag, _ in page.links if tag in ("img", "script")]
        assert "<script>alert" not in path.read_text(encoding="utf-8")
        assert path.name.isascii()
        assert path.name.replace("-", "").replace(".", "").isalnum()


def test_links_reach_every_model_and_files_are_the_same_each_time(tmp_path):
    folder.write_site(tmp_path / "a", SMALL, nothing)
    folder.write_site(tmp_path / "b", list(SMALL), nothing)
    assert not list(broken(tmp_path / "a"))
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert [(tmp_path / "a" / f).read_bytes() for f in files] == [(tmp_path / "b" / f).read_bytes() for f in files]
    linked = {target for _, target in Page(tmp_path / "a" / "index.html").links}
    assert {f"models/{ModelId(name, f'weights of {name}').slug}.html" for name in ("robust", "weak", "tie")} <= linked


def test_the_orders_on_the_page_are_those_of_the_ranking():
    (board,) = boards(SMALL)
    asked = index.criteria([10.0, 24.0])
    assert asked == [24.0, 10.0, None]
    written = [standing.model for _, standing in board.ranked(24.0)]
    for criterion, places in zip(asked, index.order_data(board, asked), strict=True):
        assert [(rank, written[place].name) for place, rank in places] == order(board, criterion)


def test_an_old_site_is_replaced_and_nothing_else_is(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    folder.write_site(site, SMALL, nothing)
    folder.write_site(site, SMALL[:2], nothing)
    assert len(list((site / "models").iterdir())) == 1
    (site / "CNAME").write_text("mine")
    with pytest.raises(ValueError, match="also has CNAME"):
        folder.write_site(site, SMALL, nothing)
    (site / "CNAME").unlink()
    (site / folder.MARKER).write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        folder.write_site(site, SMALL, nothing)
    (site / folder.MARKER).unlink()
    with pytest.raises(ValueError, match="no site made by sigmazero"):
        folder.write_site(site, SMALL, nothing)
    assert len(list((site / "models").iterdir())) == 1
    (tmp_path / "link").symlink_to(site)
    with pytest.raises(ValueError, match="is a link"):
        folder.write_site(tmp_path / "link", SMALL, nothing)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        folder.write_site(tmp_path / "file", SMALL, nothing)
    assert {path.name for path in tmp_path.iterdir()} == {"site", "link", "file"}


def test_a_failure_leaves_the_old_site(tmp_path, monkeypatch):
    site = tmp_path / "site"
    folder.write_site(site, SMALL, nothing)
    before = (site / "index.html").read_bytes()
    whole = os.replace

    def fails(old: Path, new: Path) -> None:
        if Path(old).name.endswith(".part"):
            raise OSError("no room")
        whole(old, new)

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(OSError, match="no room"):
        folder.write_site(site, SMALL[:2], nothing)
    assert (site / "index.html").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_the_command(sigmazero, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    one = fill(tmp_path / "one.db", [cell("M1", "fmn", [1, 2], origin={"model": {"spec": "M1", "name": "M1"}})])
    two = fill(tmp_path / "two.db", [cell("mine", "fmn", [3, 4], origin={"model": {"spec": "/home/me/net.py:build"}})])
    done = sigmazero("report", one, two, "--bundle", "site", "--k", "5")
    assert done.exit_code == 0, done.output
    assert done.stdout == "wrote site/index.html\n"
    text = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "SmallCNN, adversarially trained with DDN" in text
    assert "312,202" in text
    assert "net.py:build" in text
    assert "/home/me" not in text
    assert "robust accuracy at k = 5" in text
    assert json.loads((tmp_path / "site" / folder.MARKER).read_text())["files"][0] == "index.html"


def test_stores_without_samples_are_named(tmp_path):
    with pytest.raises(ValueError, match="no samples yet"):
        folder.write_site(tmp_path / "site", [], nothing)
    assert not (tmp_path / "site").exists()
